"""Answers that a gateway gave from its cache: no model wrote them again.

Read from: LiteLLM's StandardLoggingPayload and spend logs (`cache_hit`, a bool or its text),
Portkey and Helicone (`cacheStatus`, `cache_status`: HIT). Tokens of a prompt that an engine had in
its cache are another matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FROM_CACHE = "the answer came from a cache"
KEYS = {"cache_hit", "cacheHit", "cache_status", "cacheStatus", "from_cache"}
INSIDE = ("metadata", "_hidden_params", "hidden_params")
NAMES = {*KEYS, *INSIDE}
HITS = {"true", "hit", "semantic hit", "semantic_hit"}


def is_from_cache(body: Mapping[str, Any]) -> bool:
    """Return whether a line of a log says that its answer came from a cache.

    >>> is_from_cache({"cache_hit": "True"}), is_from_cache({"cache_hit": None})
    (True, False)
    """
    if body.keys().isdisjoint(NAMES):
        return False
    holders = [body, *(body[key] for key in INSIDE if key in body)]
    return any(
        str(holder[key]).lower() in HITS
        for holder in holders
        if isinstance(holder, dict)
        for key in KEYS & holder.keys()
    )
