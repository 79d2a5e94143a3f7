"""Where the last 1, 2, 3, ... tokens stand in suffix arrays, as a text or a draft goes on."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.blend.corpus import APART, buckets, first_of, first_width
from ngramkit.kernels.blend.table import DEPTH, hashed, slot_of
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import bucket, narrow

ALL = -1  # as `awake`: every source is looked up
LAST_BIT = 62  # of `awake`; it stands for all sources from there on


@part
def is_awake(awake, source):
    """Whether a source is looked up; `awake` has a bit for each, -1 is all of them."""
    return (awake >> min(source, LAST_BIT)) & 1


@part
def descend(corpus, parent, child, recent, scan, awake):
    """The intervals of every order of `recent`, from those of the context one token shorter.

    `parent`, `child` int64[DEPTH + 1, shards, 2]. Stops in each source at the first order with at
    most `scan` occurrences: longer ones are told apart there by comparing backwards. Sources that
    are not `awake` have none. Those of one token are left to `blend.corpus` where it has `firsts`.
    """
    for order in range(1, DEPTH + 1):
        for s in range(len(corpus.table)):
            child[order, s, 0] = child[order, s, 1] = 0
    for source in range(len(corpus.ends)):
        if is_awake(awake, source):
            _descend(corpus, source, parent, child, recent, scan)


@part
def _descend(corpus, source, parent, child, recent, scan):
    table, first, end = corpus.table, first_of(corpus, source), corpus.ends[source]
    token = np.int64(recent[0])
    if len(corpus.firsts):
        width = first_width(corpus, source, token)
    else:
        width = buckets(table, first, end, token, child[1])
    if width <= scan:
        return
    width = _pair(corpus, source, child[2], recent)
    for order in range(3, DEPTH + 1):
        if width <= scan:
            return
        width = 0
        for s in range(first, end):
            low, high = parent[order - 1, s, 0], parent[order - 1, s, 1]
            if low < high:
                low, high = narrow(table[s], low, high, order - 1, token)
                child[order, s, 0], child[order, s, 1] = low, high
                width += high - low


@part
def _pair(corpus, source, child, recent):
    """The intervals of the last two tokens: the widest searches, and the most often repeated."""
    key = hashed(recent, 2) + APART * np.uint64(source)
    slot = slot_of(key, len(corpus.pair_keys))
    known = corpus.pair_keys[slot] == key
    table, pairs = corpus.table, corpus.pairs
    width = 0
    for s in range(first_of(corpus, source), corpus.ends[source]):
        if not known:
            low, high = bucket(table[s], np.int64(recent[1]))
            if low < high:
                low, high = narrow(table[s], low, high, 1, np.int64(recent[0]))
            pairs[slot, s, 0], pairs[slot, s, 1] = low, high
        child[s, 0], child[s, 1] = pairs[slot, s, 0], pairs[slot, s, 1]
        width += child[s, 1] - child[s, 0]
    corpus.pair_keys[slot] = key
    return width
