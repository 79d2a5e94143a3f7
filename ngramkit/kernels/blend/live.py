"""What followed the last 1, 2, 3, ... tokens in the live context: counts by order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.table import DEPTH, N_LEVELS, NEVER, REACHED, count
from ngramkit.kernels.jit import part


class Live(NamedTuple):
    """The live context, with a chain from every token to where the same token stood before."""

    tokens: Array  # int32[capacity]
    previous: Array  # int32[capacity], -1 ends a chain
    latest: Array  # int32[V + 1], the newest position of each token, -1 for none
    seen: Array  # int32[capacity], how often the token has stood, up to and with this position


def new_live(vocabulary: int, capacity: int) -> Live:
    return Live(
        tokens=np.empty(capacity, np.int32),
        previous=np.empty(capacity, np.int32),
        latest=np.full(vocabulary + 1, -1, np.int32),
        seen=np.empty(capacity, np.int32),
    )


def grown(live: Live, capacity: int) -> Live:
    """The same with room for `capacity` tokens."""
    more = capacity - len(live.tokens)
    return live._replace(
        tokens=np.concatenate([live.tokens, np.empty(more, np.int32)]),
        previous=np.concatenate([live.previous, np.empty(more, np.int32)]),
        seen=np.concatenate([live.seen, np.empty(more, np.int32)]),
    )


@part
def remember(live, begin, end):
    """Links live.tokens[begin:end] into the chains."""
    for position in range(begin, end):
        token = live.tokens[position]
        before = live.latest[token]
        live.previous[position] = before
        live.latest[token] = position
        live.seen[position] = live.seen[before] + 1 if before >= 0 else 1


@part
def unlearn(live, begin, end):
    """live.tokens[begin:end], the newest ones, were taken back."""
    for position in range(end - 1, begin - 1, -1):
        live.latest[live.tokens[position]] = live.previous[position]


@part
def count_live(live, size, recent, into, hops):
    """Adds what followed `recent` in live.tokens[:size], at the newest `hops` occurrences.

    An id that equals the separator stands for all that the tokenizer does not know.
    """
    separator = len(live.latest) - 1
    if recent[0] < 0 or recent[0] == separator:
        return
    position = live.latest[recent[0]]
    if position == size - 1:  # what follows it is the question
        position = live.previous[position]
    while position >= 0 and hops > 0:
        match = 1
        before = position - 1
        while match < DEPTH and before >= 0 and live.tokens[before] == recent[match]:
            match += 1
            before -= 1
        last = N_LEVELS + REACHED[match]
        if live.tokens[position + 1] < separator:
            row = count(into, live.tokens[position + 1], N_LEVELS, last)
            if row >= 0 and into.newest[row] == NEVER:
                into.newest[row] = position
        position = live.previous[position]
        hops -= 1
