"""What a model runs on, in words."""

from __future__ import annotations

from typing import Any

import torch


def device_facts(model: Any) -> dict[str, str]:
    """The device's name, a transformers model's dtype, and how many threads a CPU uses for it."""
    device, dtype = model.device, str(model.dtype).removeprefix("torch.")
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device), "dtype": dtype}
    return {"device": f"{device.type}, {torch.get_num_threads()} threads", "dtype": dtype}
