"""What references say comes next, and how far that is trusted.

Where the text agrees with them, the token at the cursor, or the change that was made before where
they say the same. Where the two have just parted, two guesses: as many tokens were replaced as were
written since, or what was written was put in. Before the first, the texts' beginnings. How often
offers come true is learnt by how long the two have agreed.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.references.align import advance, begin, follow
from ngramkit.kernels.references.edits import chance, edit_at, first_of
from ngramkit.kernels.references.texts import (
    ANCHOR,
    CURSOR,
    EDIT,
    EDITS,
    KINDS,
    LONGEST_EDIT,
    LOST,
    MATCH,
    OFFERS,
    SINCE,
    STEP,
    References,
    held,
)

RIGHT, ASKED = range(2)
PRIOR = 10.0  # a first trust counts as if learnt from so many tokens
# Before the first token; 1, 2, more tokens after the two parted; a match of 1, 2, 3, 5, 8, 16, 32
# tokens at most, or of more.
FIRST_TRUST = (0.3, 0.3, 0.15, 0.1, 0.5, 0.7, 0.8, 0.9, 0.94, 0.97, 0.98, 0.99)
SUBSTITUTED = np.float32(0.6)  # rather than put in
BEGIN, FOLLOW, CHAIN = range(3)


def new_references(table: Array, starts: Array) -> References:
    """`table` int64[0 or 1, 7] and what is behind it must outlive it."""
    found = References(
        table=table,
        starts=starts,
        trust=np.full((KINDS, 2), PRIOR),
        edits=np.zeros((EDITS, 5), np.int64),
        inserted=np.zeros((EDITS, LONGEST_EDIT), np.int32),
        made=np.zeros(1, np.int64),
        since=np.zeros(SINCE, np.int32),
        tokens=np.empty(OFFERS, np.int32),
        p=np.empty(OFFERS, np.float32),
    )
    found.trust[:, RIGHT] *= np.array(FIRST_TRUST)
    return found


@part
def offer(references, state):
    """Fills references.tokens and references.p; returns the kind, -1 where there is no offer."""
    references.tokens[0] = -1
    if state[EDIT] >= 0:
        _put(references, 0, references.inserted[state[EDIT], state[STEP]], np.float32(1))
        return _kind_of(state[MATCH])
    if state[CURSOR] >= 0:
        return _ahead(references, state)
    if state[ANCHOR] < 0:
        return _beginnings(references)
    one = held(references, state[ANCHOR] + state[LOST])
    other = held(references, state[ANCHOR])
    count = _put(references, 0, one, SUBSTITUTED)
    count = _put(references, count, other, np.float32(1) - SUBSTITUTED)
    return min(state[LOST], np.int64(3)) if count else np.int64(-1)


@part
def _put(references, count, token, p):
    """Offers a token that is one; returns how many there are now."""
    if token < 0:
        return np.int64(count)
    for i in range(count):
        if references.tokens[i] == token:
            references.p[i] += p
            return np.int64(count)
    references.tokens[count], references.p[count] = token, p
    if count + 1 < OFFERS:
        references.tokens[count + 1] = -1
    return np.int64(count + 1)


@part
def credit(references, kind, written):
    """Counts whether the offer held what was written. One that is wrong is not excused where all
    other sources are too, as it would be in blend.trust: it speaks of one place, and surely."""
    account = references.trust[kind]
    account[ASKED] += 1
    for i in range(OFFERS):
        if references.tokens[i] < 0:
            return
        if references.tokens[i] == written:
            account[RIGHT] += 1


@part
def _ahead(references, state):
    cursor = state[CURSOR]
    own, edit = held(references, cursor), edit_at(references, cursor)
    again = np.float32(0)
    if edit >= 0:
        again = chance(references, edit)
    count = _put(references, 0, own, np.float32(1) - again)
    if edit >= 0:
        count = _put(references, count, first_of(references, edit, cursor), again)
    return _kind_of(state[MATCH]) if count else np.int64(-1)


@part
def _beginnings(references):
    texts = min(len(references.starts), OFFERS)
    count = np.int64(0)
    for i in range(texts):
        token = held(references, references.starts[i])
        count = _put(references, count, token, np.float32(1) / np.float32(texts))
    return np.int64(0) if count else np.int64(-1)


@part
def _kind_of(match):
    if match <= 3:
        return np.int64(3 + max(match, 1))
    if match <= 5:
        return np.int64(7)
    if match <= 8:
        return np.int64(8)
    return np.int64(9 if match <= 16 else 10 if match <= 32 else 11)


@entry
def act(what, references, state, recent, tokens, scores):
    """What drafters other than blend ask for. `state` int64[STATE] and `recent` int32[n] follow.

    BEGIN: the prompt has been read. FOLLOW: `tokens` int32[m] were written. CHAIN: fills `tokens`
    with the likeliest path, its probabilities float32[m] with `scores`; returns its length.
    """
    if what == BEGIN:
        begin(references, state, recent)
        return 0
    if what == FOLLOW:
        for i in range(len(tokens)):
            kind = offer(references, state)
            if kind >= 0:
                credit(references, kind, np.int64(tokens[i]))
            _push(recent, tokens[i])
            follow(references, state, recent, np.int64(tokens[i]))
        return 0
    score = np.float32(1)
    for i in range(len(tokens)):
        kind = offer(references, state)
        if kind < 0:
            return i
        best = 0
        for j in range(1, OFFERS):
            if references.tokens[j] < 0:
                break
            if references.p[j] > references.p[best]:
                best = j
        account = references.trust[kind]
        score *= np.float32(account[RIGHT] / account[ASKED]) * references.p[best]
        tokens[i], scores[i] = references.tokens[best], score
        _push(recent, tokens[i])
        advance(references, state, recent, np.int64(tokens[i]))
    return len(tokens)


@part
def _push(recent, token):
    for i in range(len(recent) - 1, 0, -1):
        recent[i] = recent[i - 1]
    recent[0] = token
