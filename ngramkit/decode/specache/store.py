"""Full-precision pairs in CPU memory, and copies of them to the device.

A pair moves here when it leaves the residual. On CUDA the memory is pinned and copies run on their
own stream.
"""

from __future__ import annotations

from typing import Any

import torch


class Copies:
    """Copies between the device and CPU memory, ordered by marks; here synchronous."""

    def copy(self, target: torch.Tensor, source: torch.Tensor, *, now: bool = False) -> None:
        """Begin a copy after all earlier work; `now`: without waiting for it."""
        target.copy_(source)

    def mark(self) -> Any:
        return None

    def wait(self, mark: Any) -> None:
        """Make later work of the device wait for the mark."""

    def wait_here(self, mark: Any) -> None:
        """Wait on the CPU for the mark."""


class OnStream(Copies):
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, target: torch.Tensor, source: torch.Tensor, *, now: bool = False) -> None:
        if not now:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
        for tensor in (target, source):
            if tensor.is_cuda:
                tensor.record_stream(self._stream)

    def mark(self) -> Any:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def wait(self, mark: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark)

    def wait_here(self, mark: Any) -> None:
        mark.synchronize()


def copies_for(device: torch.device) -> Copies:
    return OnStream(device) if device.type == "cuda" else Copies()


def cpu_memory(like: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return uninitialised memory, pinned if `like` is on CUDA."""
    return torch.empty(shape, dtype=dtype, pin_memory=like.is_cuda)


class PairStore:
    """One layer's pairs [heads, length, dim] in CPU memory; append-only."""

    def __init__(self, copies: Copies, room: int) -> None:
        self._copies = copies
        self._room = room
        self._parts: tuple[torch.Tensor, torch.Tensor] | None = None
        self._written: Any = None
        self.length = 0

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Append [heads, n, dim] each, on the device."""
        end = self.length + keys.shape[1]
        parts = self._with_room(keys, values, end)
        for part, new in zip(parts, (keys, values), strict=True):
            self._copies.copy(part[:, self.length : end], new)
        self._written = self._copies.mark()
        self.length = end

    def gather(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pairs at `positions` (int64[heads, k], on the CPU): [heads, k, dim] each.

        They are contiguous: scattered copies to a device are slow (Fig. 2).
        """
        self._copies.wait_here(self._written)
        keys, values = self.everything
        return _rows(keys, positions), _rows(values, positions)

    @property
    def everything(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[heads, length, dim] each, on the CPU."""
        assert self._parts is not None
        keys, values = self._parts
        return keys[:, : self.length], values[:, : self.length]

    @property
    def bytes(self) -> int:
        return 0 if self._parts is None else sum(part.nbytes for part in self._parts)

    def _with_room(
        self, keys: torch.Tensor, values: torch.Tensor, end: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._parts is not None and end <= self._parts[0].shape[1]:
            return self._parts
        self._room = max(self._room, end + end // 4 if self._parts is not None else end)
        old = self._parts
        if old is not None:
            self._copies.wait_here(self._written)
        parts = []
        for i, new in enumerate((keys, values)):
            part = cpu_memory(new, (new.shape[0], self._room, new.shape[2]), new.dtype)
            if old is not None:
                part[:, : self.length] = old[i][:, : self.length]
            parts.append(part)
        self._parts = (parts[0], parts[1])
        return self._parts


def _rows(numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    index = positions.unsqueeze(-1).expand(-1, -1, numbers.shape[-1])
    out = torch.empty(index.shape, dtype=numbers.dtype, pin_memory=numbers.is_pinned())
    return torch.gather(numbers, 1, index, out=out)
