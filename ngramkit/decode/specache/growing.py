"""Tensors that grow along their rows."""

from __future__ import annotations

import torch


class Rows:
    """Rows [heads, length, dim], with room for `room` at first; on the device or in CPU memory."""

    def __init__(self, room: int, *, on_cpu: bool = False) -> None:
        self._room, self._on_cpu = room, on_cpu
        self._memory: torch.Tensor | None = None
        self.length = 0

    def extend(self, new: torch.Tensor) -> torch.Tensor:
        """Add rows like `new` [heads, n, dim] and return them, uninitialised."""
        begin, end = self.length, self.length + new.shape[1]
        if self._memory is None or end > self._memory.shape[1]:
            room = max(self._room, end + end // 4 if begin else end)
            shape = (new.shape[0], room, new.shape[2])
            larger = cpu_memory(new, shape) if self._on_cpu else new.new_empty(shape)
            if self._memory is not None:
                larger[:, :begin] = self.held
            self._memory = larger
        self.length = end
        return self._memory[:, begin:end]

    @property
    def held(self) -> torch.Tensor:
        assert self._memory is not None
        return self._memory[:, : self.length]

    @property
    def bytes(self) -> int:
        return 0 if self._memory is None else self._memory.nbytes


def cpu_memory(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return uninitialised memory of the same dtype, pinned if `like` is on CUDA."""
    return torch.empty(shape, dtype=like.dtype, pin_memory=like.is_cuda)
