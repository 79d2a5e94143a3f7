"""Answers that a gateway served from its cache. Hits of an engine's prefix cache do not count.

Source: LiteLLM (`cache_hit`, a bool or its text), Portkey and Helicone (`cacheStatus`,
`cache_status`: HIT).
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
    """Return whether the answer came from a cache."""
    if KEYS.isdisjoint(body):
        return False
    holders = [body, *(body[key] for key in METADATA & body.keys())]
    return any(
        str(holder[key]).lower() in HITS
        for holder in holders
        if isinstance(holder, dict)
        for key in FLAGS & holder.keys()
    )
