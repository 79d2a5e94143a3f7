"""The bits of stored weights, from a model's quantisation config.

Each method has its own layout. All of them write a number of bits under one of a few keys, or name
a type such as int4, NVFP4 or Float8WeightOnlyConfig, at the top or nested.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LOG = logging.getLogger("ngramkit")
PLACES = ("quantization_config", "compression_config", "quantization")  # the last one: MLX
BITS = ("bits", "num_bits", "nbits", "w_bit", "weight_bits")
METHODS = {"bitnet": 2.0, "bitsandbytes": 4.0}  # whose names lack the number of bits
OTHERS = re.compile(  # keys that do not describe the stored weights
    "activ|input|output|cache|scale|zero|bias|producer|compute|storage|backward|expert"
)
LEFT_OUT = re.compile("ignore|exclude|skip|not_convert")  # keys of modules in full width
TYPE = re.compile(r"(?:int|fp|nf|float|(?<![a-z])w)(\d+)|e(\d)m(\d)")
OTHER_MODULES = re.compile("vis|image|audio|mtp")
LAYER = re.compile(r"layers\.(\d+)\.")


def quantisation_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (config.get(place) for place in PLACES)
    return next((each for each in found if isinstance(each, Mapping) and each), None)


def bits_of_weights(how: Mapping[str, Any]) -> float:
    """Return the bits of a weight by a quantisation config, 0.0 if it does not show them."""
    if bits := positive_number(how, BITS):
        return bits
    if bits := positive_number(how, ("nbits_per_codebook",)):  # AQLM: of a group of weights
        sizes = (positive_number(how, (key,)) or 1 for key in ("in_group_size", "out_group_size"))
        for size in sizes:
            bits /= size
        return bits * (positive_number(how, ("num_codebooks",)) or 1)
    loaded = [re.search(r"_(\d)bit$", key) for key, value in how.items() if value is True]
    if widths := [float(found[1]) for found in loaded if found]:
        return min(widths)
    own = {key: value for key, value in how.items() if not OTHERS.search(key)}
    named = [_bits_in_name(value) for value in own.values() if isinstance(value, str)]
    if bits := min(filter(None, named), default=0.0):
        return bits
    nested = {key: value for key, value in own.items() if isinstance(value, Mapping)}
    general = {key: each for key, each in nested.items() if re.search("global|default", key)}
    parts = list(filter(None, map(bits_of_weights, (general or nested).values())))
    return sum(parts) / len(parts) if parts else 0.0


def _bits_in_name(name: str) -> float:
    name = re.sub(r"\w*activation", "", name.lower())
    found = [
        int(width) if width else int(exponent) + int(mantissa) + 1
        for width, exponent, mantissa in TYPE.findall(name)
    ]
    return METHODS.get(name) or min((float(n) for n in found if 0 < n <= 8), default=0.0)


def share_left_out(how: Mapping[str, Any], part: str, layers: int) -> float:
    """Return the share of layers whose `part`, a pattern, a quantisation config leaves out."""
    names = [name for name in _modules_left_out(how) if re.search(part, name)]
    found = [LAYER.search(name) for name in names if not OTHER_MODULES.search(name)]
    if not all(found):
        return 1.0
    return min(len({each[1] for each in found if each}) / layers, 1.0)


def _modules_left_out(how: Mapping[str, Any]) -> Iterator[str]:
    for key, value in how.items():
        if isinstance(value, Mapping):
            yield from _modules_left_out(value)
        elif isinstance(value, list) and LEFT_OUT.search(key):
            yield from (name for name in value if isinstance(name, str))


def unknown_method(how: Mapping[str, Any]) -> str:
    """Return the name of a method whose bits are not known, and log it once."""
    method = how.get("quant_method") or "without a quant_method"
    name = str(getattr(method, "value", method))[:60]
    _warn_of_unknown(name)
    return name


@functools.cache
def _warn_of_unknown(name: str) -> None:
    LOG.warning("unknown quantisation %r: passes are priced as if its weights had 16 bits", name)


def positive_number(config: Mapping[str, Any], keys: Sequence[str]) -> float:
    """Return the first positive number under `keys`, the mean of a list by layers, or 0.0."""
    for key in keys:
        value = config.get(key)
        values: list[Any] = value if isinstance(value, list) else [value]
        sound = all(isinstance(each, int | float) and 0 <= each < 1e9 for each in values)
        if sound and any(values):  # layers without attention have no heads
            return float(sum(values) / len(values))
    return 0.0
