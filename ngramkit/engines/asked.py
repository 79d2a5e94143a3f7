"""What a batch asks of a request: to take in what was written, and then to draft."""

from __future__ import annotations

from typing import Any, NamedTuple

from ngramkit.drafters.base import TokenArray


class Asked(NamedTuple):
    request: Any  # see blend_requests, drafter_requests
    written: TokenArray  # since its last draft
    size: int  # nodes or tokens to draft then, at most; 0: none
