"""The model's own opinion: what it held likely the last time it saw these tokens.

As Token Recycling (arXiv:2408.08696) keeps the model's top candidates per token, but for the last
one, two and three tokens. The longest that is known is mixed with the counts' prediction. How much
it is trusted is learnt while decoding, from how often it had what was then written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.blend_counts import hashed, row_of
from ngramkit.kernels.leaf import leaf

Array = npt.NDArray[Any]

ORDERS = 3
SURENESS = 4  # steps of how sure the counts are: their highest probability
TOPS = 16  # candidates kept, at most


class Opinions(NamedTuple):
    """By a hash of the last 1, 2 or 3 tokens; a newer opinion overwrites an older."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows, TOPS], -1 ends a row
    p: Array  # float32[rows, TOPS]
    trust: Array  # float64[ORDERS + 1, SURENESS, 2], times it was right, times it was asked


@leaf
def opine(opinions, recent, tokens, parents, top_ids, top_log_probs, scratch):  # type: ignore[no-untyped-def]
    """Keeps the opinions of one pass. `recent` is the context that ends with row 0's token.

    tokens, parents int32[n], top_ids int32[n, k], top_log_probs float32[n, k]: see Evidence.
    `scratch` int32[ORDERS].
    """
    for row in range(len(tokens)):
        at = row
        for i in range(ORDERS):
            if at > 0:
                scratch[i] = tokens[at]
                at = parents[at]
            else:  # at or above the root
                scratch[i] = recent[-at]
                at -= 1
        for order in range(1, ORDERS + 1):
            if scratch[order - 1] >= 0:
                _keep(opinions, hashed(scratch, order), top_ids[row], top_log_probs[row])


@leaf
def _keep(opinions, key, ids, log_probs):  # type: ignore[no-untyped-def]
    slot = np.int64(key % np.uint64(len(opinions.keys)))
    opinions.keys[slot] = key
    for i in range(TOPS):
        held = i < len(ids)
        opinions.tokens[slot, i] = ids[i] if held else -1
        opinions.p[slot, i] = np.exp(log_probs[i]) if held else 0


@leaf
def recall(opinions, recent):  # type: ignore[no-untyped-def]
    """The order and the slot of the longest known opinion; 0, 0 where there is none."""
    for order in range(ORDERS, 0, -1):
        if recent[order - 1] >= 0:
            key = hashed(recent, order)
            slot = np.int64(key % np.uint64(len(opinions.keys)))
            if opinions.keys[slot] == key:
                return order, slot
    return 0, np.int64(0)


@leaf
def sureness(into, p):  # type: ignore[no-untyped-def]
    """0..SURENESS - 1, from the highest probability."""
    highest = np.float32(0)
    for row in range(into.state[0]):
        highest = max(highest, p[row])
    return min(np.int64(highest * SURENESS), SURENESS - 1)


@leaf
def mix_in(opinions, recent, into, p):  # type: ignore[no-untyped-def]
    """Mixes the longest known opinion into p float32[CANDIDATES]."""
    order, slot = recall(opinions, recent)
    if order == 0:
        return
    account = opinions.trust[order, sureness(into, p)]
    trust = np.float32(account[0] / account[1])
    for row in range(into.state[0]):
        p[row] *= np.float32(1) - trust
    for i in range(TOPS):
        token = opinions.tokens[slot, i]
        if token < 0 or token >= len(into.stamp) - 1:
            continue
        before = into.state[0]
        row = row_of(into, token)
        if row == before:
            p[row] = 0
        if row >= 0:
            p[row] += trust * opinions.p[slot, i]


@leaf
def judge(opinions, recent, into, p, token):  # type: ignore[no-untyped-def]
    """Learns from what was written: `p` is the counts' prediction alone, `token` what came.

    One step of expectation maximisation on the weight of a mixture of two.
    """
    order, slot = recall(opinions, recent)
    if order == 0 or token >= len(into.stamp) - 1:
        return
    theirs = np.float32(1e-6)
    for i in range(TOPS):
        if opinions.tokens[slot, i] == token:
            theirs = opinions.p[slot, i]
    ours = np.float32(1e-6)
    if into.stamp[token] == into.state[1]:
        ours = max(ours, p[into.slot[token]])
    account = opinions.trust[order, sureness(into, p)]
    trust = account[0] / account[1]
    account[0] += trust * theirs / (trust * theirs + (1 - trust) * ours)
    account[1] += 1
