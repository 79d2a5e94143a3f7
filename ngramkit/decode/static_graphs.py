"""Passes recorded once and replayed: what the host has to do for a pass is then one launch.

A recording is bound to the addresses of what the pass reads and writes, so it belongs to the
memory it was made with. Its result is overwritten by the next replay in the same memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

Body = Callable[[], torch.Tensor]


class Recorder(Protocol):
    """Makes recordings for one model.

    `new_pool`: where the recordings of one memory have their intermediate results. `record`
    gives None where it cannot. `wait` returns when no replay is running any more.
    """

    def new_pool(self) -> Any: ...
    def record(self, body: Body, pool: Any) -> Body | None: ...
    def wait(self) -> None: ...


class Recordings:
    """Of one memory, by what is fixed in them. `recorder` None: every pass is run as it is."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._pool = None if recorder is None else recorder.new_pool()
        self.made: dict[Hashable, Body | None] = {}

    def run(self, key: Hashable, body: Body) -> torch.Tensor:
        """What `body` returns, by a replay of what it did the first time it came with `key`."""
        if self._recorder is None:
            return body()
        if key not in self.made:
            self.made[key] = self._recorder.record(body, self._pool)
        replay = self.made[key]
        return body() if replay is None else replay()

    def clear(self) -> None:
        """The memory moves: nothing recorded holds any more."""
        if self.made and self._recorder is not None:
            self._recorder.wait()
        self.made.clear()


class CudaGraphs:
    """Records as CUDA graphs. A memory's share one pool: its passes run one after another, and a
    result is read before the next pass.

    Where a pass cannot be captured that is said once, and all passes run as they are.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self._name = name
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._works = True

    def new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def record(self, body: Body, pool: Any) -> Body | None:
        """Runs the pass for warmth, on a stream of its own, before it is captured there."""
        if not self._works:
            return None
        with torch.cuda.device(self._device):
            current: Any = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            try:
                # Of a capture that fails torch leaves its stream the current one; this restores it.
                with torch.cuda.stream(self._stream):
                    body()  # libraries load, kernels are chosen; an error here is the pass's own
                    return self._captured(body, pool)
            finally:
                current.wait_stream(self._stream)

    def _captured(self, body: Body, pool: Any) -> Body | None:
        graph = torch.cuda.CUDAGraph()
        try:
            # Found before the capture, which would leave torch's random generator in disorder.
            with NoWaiting():
                body()
            with torch.cuda.graph(graph, pool=pool, stream=self._stream):
                result = body()
        except Exception as error:
            self._works = False
            reason = str(error.__context__ or error).partition("\n")[0]
            logging.getLogger("ngramkit").warning(
                "a pass of %s cannot be captured as a CUDA graph (%s); it runs uncaptured",
                self._name,
                reason,
            )
            return None

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)


class NoWaiting:
    """Inside, what makes the host wait for the device raises RuntimeError."""

    def __enter__(self) -> None:
        self._before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_sync_debug_mode(self._before)
