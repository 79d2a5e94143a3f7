"""Stands in for CUDA graphs where there is no GPU: notes the operations of a pass with the very
tensors they were called with, and does them again, into the same results.

As in a graph, Python runs only while recording: what it computed then is fixed for good. What a
graph could not hold is an error: an operation whose result decides what the host does next.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class HostWaitsError(RuntimeError):
    pass


def waits(function, args):
    """Would the host have to wait for the device?"""
    if function is torch.ops.aten.index.Tensor:  # by numbers it is harmless
        return any(each is not None and each.dtype == torch.bool for each in args[1])
    return bool(WAITS & set(function.tags))


def tensors(*values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class Noting(TorchDispatchMode):
    """Inside, operations are noted; with `only_check` they are looked at."""

    def __init__(self, only_check=False):
        super().__init__()
        self.operations = []  # (function, args, kwargs, result)
        self._only_check = only_check

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        with self:  # some operations arrive whole, others as their parts
            parts = function.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        if waits(function, args):
            raise HostWaitsError(f"{function} makes the host wait")
        result = function(*args, **(kwargs or {}))
        if not self._only_check:
            self.operations.append((function, args, kwargs or {}, result))
        return result

    def again(self):
        for function, args, kwargs, result in self.operations:
            fresh = function(*args, **kwargs)
            for old, new in zip(tensors(result), tensors(fresh), strict=True):
                if old.data_ptr() != new.data_ptr():  # else it is a view, or was written in place
                    old.copy_(new)


class Tape:
    """A Recorder that counts."""

    def __init__(self):
        self.recorded = self.pools = self.waited = self.replayed = 0

    def new_pool(self):
        self.pools += 1
        return self.pools

    def record(self, body, pool):
        with Noting() as noting:
            result = body()
        self.recorded += 1

        def replay():
            self.replayed += 1
            noting.again()
            return result

        return replay

    def wait(self):
        self.waited += 1


class FakeCuda:
    """What ngramkit.decode.static_graphs uses of torch.cuda, with torch's habits: a capture that
    fails raises once more at its end, and leaves its stream the current one.

    `finds_waits`: whether set_sync_debug_mode finds everything that waits, which it does not
    promise.
    """

    def __init__(self, finds_waits=True):
        self.current = "the caller's"
        self.graphs = []
        self._finds_waits = finds_waits
        self._check = None

    def install(self, monkeypatch):
        for name in (
            "Stream", "CUDAGraph", "graph", "graph_pool_handle", "stream", "current_stream",
            "device", "synchronize", "get_sync_debug_mode", "set_sync_debug_mode",
        ):  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        return self

    class Stream:
        def __init__(self, device):
            self.waited_for = []

        def wait_stream(self, other):
            self.waited_for.append(other)

    class CUDAGraph:
        def replay(self):
            self.noting.again()

    @contextmanager
    def graph(self, graph, pool, stream):
        assert self._check is None  # waiting for the device is what torch does here
        self.graphs.append((graph, pool))
        before, self.current = self.current, stream
        graph.noting = Noting()
        try:
            with graph.noting:
                yield
        except HostWaitsError:
            raise RuntimeError("the capture is invalid\nand more") from None
        self.current = before

    def graph_pool_handle(self):
        return object()

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def current_stream(self):
        return self.Stream(None)

    def device(self, device):
        return nullcontext()

    def synchronize(self, device):
        self.synchronized = device

    def get_sync_debug_mode(self):
        return 0

    def set_sync_debug_mode(self, mode):
        if mode == "error" and self._finds_waits:
            self._check = Noting(only_check=True)
            self._check.__enter__()
        elif mode == 0 and self._check is not None:
            check, self._check = self._check, None
            check.__exit__(None, None, None)
