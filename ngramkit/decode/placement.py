"""Checks of devices and dtypes without torch."""

from __future__ import annotations

import re
from importlib.util import find_spec

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import version_of

DTYPES = ("float32", "float16", "bfloat16")
DEVICE = re.compile(r"auto|(cpu|mps|cuda|xpu)(:\d{1,3})?")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


def require_placement(device: str, dtype: str, device_map: str | None) -> None:
    if not DEVICE.fullmatch(device):
        raise UsageError(
            f"device must be auto, cpu, cuda or cuda:N, got {device!r}", option="device"
        )
    if device.startswith("cuda") and (version_of("torch") or "").endswith("+cpu"):
        raise UsageError(
            f"cannot use {device}: this torch is built for CPUs only",
            "Use device=cpu.",
            option="device",
        )
    if dtype not in ("auto", *DTYPES):
        raise UsageError(f"dtype must be auto, {', '.join(DTYPES)}, got {dtype!r}", option="dtype")
    if device_map not in (None, *DEVICE_MAPS):
        raise UsageError(
            f"device_map must be {' or '.join(DEVICE_MAPS)}, got {device_map!r}",
            option="device_map",
        )
    if device_map is not None and find_spec("accelerate") is None:
        raise UsageError(
            "cannot use device_map: it needs the package accelerate",
            "Run: pip install accelerate",
            option="device_map",
        )
