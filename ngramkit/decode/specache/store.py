"""Full-precision pairs in CPU memory, and copies of them to the device.

A pair moves here when it leaves the residual. On CUDA the memory is pinned and copies run on their
own stream.
"""

from __future__ import annotations

from typing import Any

import torch

from ngramkit.decode.specache.growing import Rows


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


class PairStore:
    """One layer's pairs [heads, length, dim] in CPU memory; append-only."""

    def __init__(self, copies: Copies, room: int) -> None:
        self._copies = copies
        self._keys, self._values = Rows(room, on_cpu=True), Rows(room, on_cpu=True)
        self._written: Any = None

    @property
    def length(self) -> int:
        return self._keys.length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Append [heads, n, dim] each, on the device."""
        if self.length:  # growing reads the earlier pairs
            self._copies.wait_here(self._written)
        self._copies.copy(self._keys.extend(keys), keys)
        self._copies.copy(self._values.extend(values), values)
        self._written = self._copies.mark()

    def gather(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pairs at `positions` (int64[heads, k], on the CPU): [heads, k, dim] each.

        They are contiguous: scattered copies to a device are slow (Fig. 2).
        """
        self._copies.wait_here(self._written)
        return _rows(self._keys.held, positions), _rows(self._values.held, positions)

    @property
    def keys(self) -> torch.Tensor:
        """[heads, length, dim], on the CPU."""
        return self._keys.held

    @property
    def bytes(self) -> int:
        return self._keys.bytes + self._values.bytes


def _rows(numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    index = positions.unsqueeze(-1).expand(-1, -1, numbers.shape[-1])
    out = torch.empty(index.shape, dtype=numbers.dtype, pin_memory=numbers.is_pinned())
    return torch.gather(numbers, 1, index, out=out)
