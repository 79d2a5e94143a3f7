"""Reference texts, and where in them the text being written stands.

References lie one behind the other in one suffix array (see `suffix.search`), a separator after
each. The *state* of an alignment says which of their tokens is expected next, and is kept while the
text agrees. Where the two part, the longest of the last tokens' matches is taken, and a near one
before a longer far one: `locate`.

`recent` is int32[n], the last tokens of the text, the newest first, NO_TOKEN before the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import SIZE, VOCABULARY, bucket, narrow, position_at, token_at

# The state of an alignment, int64[STATE]: positions in the references, -1 for none.
CURSOR = 0  # of the token that is expected next
MATCH = 1  # tokens in a row that agreed before it
ANCHOR = 2  # where a long match was last lost: it is gone on with near there
LOST = 3  # tokens written since
EDIT, STEP = 4, 5  # the edit that is being repeated (references.edits), and how far it is; EDIT -1
BEGUN = 6  # 0 while the prompt is read
STATE = 7

SOLID = 4  # a match as long makes a new anchor
NEAR = 4  # a near match counts as if it were so much longer
REACH = 64  # a match of 1, 2, 3 tokens is near at up to 4, 16, 64 from the anchor
LEAST_FAR = 2  # a far match is as long at least ...
MOST_FAR = 64  # ... and stands at so many places at most
EDITS = 32  # remembered; newer ones take the places of older ones
LONGEST_EDIT = 16  # tokens taken out or put in, at most
SINCE = 48  # tokens after an anchor that are remembered
OFFERS = 4  # tokens offered at once
KINDS = 12  # of offers, by how far the alignment goes; see references.offers


class References(NamedTuple):
    """Reference texts and what a request has learnt about them."""

    table: Array  # int64[0 or 1, 7], see suffix.search.shard_table; 0: there are none
    starts: Array  # int64[texts], where each begins
    trust: Array  # float64[KINDS, 2], accounts as in blend.trust
    edits: Array  # int64[EDITS, 5], see references.edits
    inserted: Array  # int32[EDITS, LONGEST_EDIT]
    made: Array  # int64[1], edits there ever were
    since: Array  # int32[SINCE], written since the anchor
    tokens: Array  # int32[OFFERS], offered now; -1 ends them
    p: Array  # float32[OFFERS], how likely each is


def new_state() -> Array:
    """Before the prompt."""
    return np.array([-1, 0, -1, 0, -1, 0, 0], np.int64)


@part
def held(references, position):
    """The token at a position; -1 where a text has ended."""
    shard = references.table[0]
    if position < 0 or position >= shard[SIZE]:
        return np.int64(-1)
    token = np.int64(token_at(shard, position))
    return token if token < shard[VOCABULARY] else np.int64(-1)


@part
def agreeing(references, end, recent):
    """How many tokens before `end` are the last ones of the text."""
    match = 0
    while match < len(recent):
        token = held(references, end - 1 - match)
        if token < 0 or token != recent[match]:
            break
        match += 1
    return np.int64(match)


@part
def locate(references, state, recent):
    """The text has just parted from the references, or begins: sets CURSOR and MATCH anew."""
    anchor = state[ANCHOR]
    best, length, worth, distance = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    if anchor >= 0:
        for i in range(2 * REACH + 1):  # 0, 1, -1, 2, -2, ...: nearest first, forward first
            away = np.int64((i + 1) // 2)
            end = anchor + away if i % 2 else anchor - away
            match = agreeing(references, end, recent)
            if match > 0 and away <= (4 << (2 * min(match, 3) - 2)) and match + NEAR > worth:
                best, length, worth, distance = end, match, match + NEAR, away
    match, low, high = _longest(references, recent)
    if match >= LEAST_FAR and high - low <= MOST_FAR and match >= worth:
        for i in range(low, high):
            end = position_at(references.table[0], i) + match
            away = _distance(references, end, anchor)
            nearer = away < distance or (away == distance and end > best)
            if match > worth or nearer:
                best, length, worth, distance = end, match, match, away
    state[CURSOR], state[MATCH] = best, length


@part
def _distance(references, end, anchor):
    """From the anchor; where there is none, from the beginning of the text that holds it."""
    if anchor >= 0:
        return abs(end - anchor)
    starts, low, high = references.starts, np.int64(0), np.int64(len(references.starts))
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] < end:
            low = middle
        else:
            high = middle
    return end - starts[low]


@part
def _longest(references, recent):
    """The length of the longest match of the last tokens, and its interval."""
    shard = references.table[0]
    high = np.int64(0)  # no longer one than up to what the references do not know
    while high < len(recent) and 0 <= recent[high] < shard[VOCABULARY]:
        high += 1
    low, begin, end = np.int64(0), np.int64(0), np.int64(0)
    while low < high:
        middle = (low + high + 1) >> 1
        first, last = _find(shard, recent, middle)
        if first < last:
            low, begin, end = middle, first, last
        else:
            high = middle - 1
    return low, begin, end


@part
def _find(shard, recent, length):
    """The interval of all suffixes that begin with the last `length` tokens of the text."""
    low, high = bucket(shard, np.int64(recent[length - 1]))
    low, high = np.int64(low), np.int64(high)
    for depth in range(1, length):
        if low >= high:
            break
        low, high = narrow(shard, low, high, depth, np.int64(recent[length - 1 - depth]))
    return low, high
