"""Answers that a gateway served from its cache, so no model wrote them again.

Read from: LiteLLM's StandardLoggingPayload and spend logs (`cache_hit`, a bool or its text),
Portkey and Helicone (`cacheStatus`, `cache_status`: HIT). An engine's prefix cache is not meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FROM_CACHE = "the answer came from a cache"
FLAGS = {"cache_hit", "cacheHit", "cache_status", "cacheStatus", "from_cache"}
METADATA = {"metadata", "_hidden_params", "hidden_params"}  # objects that may hold FLAGS
KEYS = FLAGS | METADATA
HITS = {"true", "hit", "semantic hit", "semantic_hit"}


def is_from_cache(body: Mapping[str, Any]) -> bool:
    """Return whether a logged object reports that its answer came from a cache.

    >>> is_from_cache({"cache_hit": "True"}), is_from_cache({"cache_hit": None})
    (True, False)
    """
    if KEYS.isdisjoint(body):
        return False
    holders = [body, *(body[key] for key in METADATA & body.keys())]
    return any(
        str(holder[key]).lower() in HITS
        for holder in holders
        if isinstance(holder, dict)
        for key in FLAGS & holder.keys()
    )
