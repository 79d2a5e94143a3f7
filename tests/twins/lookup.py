"""The naive twin of llama.cpp's lookup: drafts from cache files as its ngram-cache.cpp does.

Every count and product is held against 32 bits: what would overflow there raises here.
"""

from __future__ import annotations

import struct
from collections import Counter

LAX = ((2, 66), (2, 50), (1, 50), (1, 50))  # by order from 1: seen at least, percent at least
STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))


def load(path):
    """{context: {token: count}} of a cache file."""
    raw, cache, at = path.read_bytes(), {}, 0
    while at < len(raw):
        *key, size = struct.unpack_from("=5i", raw, at)
        at += 20
        pairs = struct.unpack_from(f"={2 * size}i", raw, at)
        at += 8 * size
        cache[tuple(token for token in key if token != -1)] = dict(
            zip(pairs[::2], pairs[1::2], strict=True)
        )
    return cache


def of_text(tokens):
    """The cache that llama.cpp keeps of the context itself."""
    cache = {}
    for order in (1, 2, 3, 4):
        for i in range(len(tokens) - order):
            cache.setdefault(tuple(tokens[i : i + order]), Counter())[tokens[i + order]] += 1
    return cache


def draft(tokens, length, dynamic, static):
    """At most `length` tokens after `tokens`; `dynamic`, `static` as `load` gives them."""
    context, drafted = of_text(tokens), []
    if len(tokens) < 4:
        return drafted
    while len(drafted) < length:
        text = [*tokens, *drafted]
        weights = static.get(tuple(text[-2:]), {})
        found = _weighed(context, text, weights, LAX)
        if found is None:
            found = _weighed(dynamic, text, weights, STRICT)
        if found is None:
            found = _alone(weights)
        if found is None:
            return drafted
        drafted.append(found)
    return drafted


def _weighed(cache, text, weights, rule):
    """By the longest context that its rule allows, the token of most count x weight."""
    for order in (4, 3, 2, 1):
        followers = cache.get(tuple(text[-order:]), {})
        best, most = None, (0, 0)
        for token, count in followers.items():
            weight = _held(100 * weights[token]) if token in weights else 1
            if _held(count * weight) > _held(most[0] * most[1]):
                best, most = token, (count, weight)
        seen, (least, percent) = sum(followers.values()), rule[order - 1]
        if best is not None and seen >= least and _held(100 * most[0]) >= _held(percent * seen):
            return best
    return None


def _alone(followers):
    """Of the static cache: the most frequent token, where it has half."""
    if sum(followers.values()) < 2:
        return None
    token = max(followers, key=lambda each: followers[each])
    return token if _held(100 * followers[token]) >= _held(50 * sum(followers.values())) else None


def _held(value):
    if value >= 1 << 31:
        raise OverflowError(value)
    return value
