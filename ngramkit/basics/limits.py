"""Size limits of untrusted artifacts and JSON.

Each kind's module checks values, `formats.manifest` a manifest's entries, `basics.untrusted` JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# Names that a manifest may list: no folders, no leading dot, at most 100 characters.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Limits:
    json_bytes: int = 1 << 26  # of a file, such as a manifest
    json_values: int = 1 << 20  # a manifest of 70,000 shards has a fifth of that
    json_nesting: int = 32  # levels of lists and objects, with `strict`
    text_bytes: int = 1 << 22  # of a card, a recipe's record or exported code
    manifest_text: int = 1000  # characters of a name, an id or a parameter
    card_text: int = 200  # characters of an id or a fingerprint in a card on the Hub
    header_bytes: int = 1 << 20  # of a safetensors file
    dimensions: int = 8  # of an array
    vocabulary: int = (1 << 24) - 1  # ids and the separator fit three bytes: kernels.suffix.sort
    parameter: int = (1 << 31) - 1
    windows: int = 1 << 53  # counted in a frozen table; their sums are exact in any arithmetic
    log_bytes: int = 1 << 32  # of a fetched history's log, which is read into memory


LIMITS = Limits()


def is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LIMITS.manifest_text
