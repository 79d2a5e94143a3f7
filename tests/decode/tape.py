"""Stands in for CUDA graphs where there is no GPU: notes the operations of a pass with the very
tensors they were called with, and does them again.

As in a graph, Python runs only while recording: what it computed then is fixed for good. What a
graph could not hold is an error: an operation whose result decides what the host does next.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class HostWaitsError(RuntimeError):
    pass


def waits(function, args):
    """Would the host have to wait for the device?"""
    if function is torch.ops.aten.index.Tensor:  # by numbers it is harmless
        return any(each is not None and each.dtype == torch.bool for each in args[1])
    return bool(WAITS & set(function.tags))


class Noting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []  # (function, args, kwargs, result): keeps all tensors, so ids stay

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if waits(function, args):
            raise HostWaitsError(str(function))
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        return result


class Tape:
    """A Recorder. `recorded` counts recordings, `waited` what `wait` was called."""

    def __init__(self):
        self.recorded = self.pools = self.waited = self.replayed = 0

    def new_pool(self):
        self.pools += 1
        return self.pools

    def record(self, body, pool):
        with Noting() as noting:
            final = body()
        self.recorded += 1

        def replay():
            self.replayed += 1
            return again(noting.operations, final)

        return replay

    def wait(self):
        self.waited += 1


def again(operations, final):
    """The operations on what they were done on, results in place of results."""
    now = {}

    def current(tensor):
        return now.get(id(tensor), tensor)

    for function, args, kwargs, result in operations:
        args, kwargs = tree_map_only(torch.Tensor, current, (args, kwargs))
        fresh = function(*args, **kwargs)
        for old, new in zip(_tensors(result), _tensors(fresh), strict=True):
            now[id(old)] = new
    return current(final)


def _tensors(result):
    found = []
    tree_map_only(torch.Tensor, found.append, result)
    return found
