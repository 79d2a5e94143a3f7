"""How passes of a model run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def model_passes() -> Iterator[None]:
    """Run passes without gradients, and on CUDA without cuDNN's attention.

    cuDNN plans its attention for each shape that it has not seen. With drafts most passes have a
    new shape: on an H200 in bfloat16, with torch 2.11, each took 49 ms in place of 5. A caller who
    allows no other attention keeps cuDNN's.
    """
    backends: Any = torch.backends.cuda
    with torch.inference_mode():
        others = (
            backends.flash_sdp_enabled(),
            backends.mem_efficient_sdp_enabled(),
            backends.math_sdp_enabled(),
        )
        if not backends.cudnn_sdp_enabled() or not any(others):
            yield
            return
        backends.enable_cudnn_sdp(False)
        try:
            yield
        finally:
            backends.enable_cudnn_sdp(True)


class Forward:
    """A model's forward call, with positions if `generate` passes them.

    Some models count differently without.
    """

    def __init__(self, model: Any, cache: Any = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        self._model, self._device = model, model.device
        name = "cache_params" if "cache_params" in parameters else "past_key_values"
        self._cache = {"use_cache": False} if cache is None else {name: cache, "use_cache": True}

    def __call__(self, tokens: Any, begin: int, **inputs: Any) -> torch.Tensor:
        """Return the logits [rows, n, V] of tokens [rows, n] after `begin` others."""
        ids = torch.as_tensor(tokens, dtype=torch.int64).to(self._device)
        if self.takes_positions and "position_ids" not in inputs:
            positions = torch.arange(begin, begin + ids.shape[1], device=self._device)
            inputs["position_ids"] = positions[None]
        logits: torch.Tensor = self._model(input_ids=ids, **self._cache, **inputs).logits
        return logits
