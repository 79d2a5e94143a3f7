"""How passes of a model run."""

from __future__ import annotations

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
