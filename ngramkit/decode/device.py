"""What a model runs on, in words."""

from __future__ import annotations

import torch

from ngramkit.decode.load import LanguageModel


def device_facts(model: LanguageModel) -> dict[str, str]:
    """The device's name, the model's dtype, and how many threads a CPU uses for it."""
    device, dtype = model.model.device, str(model.model.dtype).removeprefix("torch.")
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device), "dtype": dtype}
    return {"device": f"{device.type}, {torch.get_num_threads()} threads", "dtype": dtype}
