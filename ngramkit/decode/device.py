"""What a model runs on, in words."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

DRIVER = Path("/proc/driver/nvidia/version")


def device_facts(model: Any) -> dict[str, str]:
    """The device's name, a transformers model's dtype, how many threads a CPU uses for it, and
    whether its weights are packed."""
    import torch

    from ngramkit.decode.packed_weights import is_packed

    device, dtype = model.device, str(model.dtype).removeprefix("torch.")
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device), "dtype": dtype}
    how = ", packed weights" if is_packed(model) else ""
    return {"device": f"{device.type}, {torch.get_num_threads()} threads{how}", "dtype": dtype}


def software_facts() -> dict[str, str]:
    """What decides how a pass runs beside the device: versions, and the driver's."""
    import torch

    facts = {name: version(name) for name in ("transformers", "torch", "ngramkit")}
    if torch.cuda.is_available():
        facts["cuda"] = str(torch.version.cuda)
    if DRIVER.is_file():
        facts["driver"] = DRIVER.read_text(encoding="utf-8").partition("\n")[0]
    return facts
