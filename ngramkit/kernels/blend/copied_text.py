"""Follow copied texts: the live context, past requests, an earlier answer and references.

Each source has one place, as in PAQ's match model: that of the longest match, the newest among
equals. After a disagreement, a near place is preferred to a longer match elsewhere, because edits
converge again. Until they do, the token at the distance of the written tokens is offered.

References are followed at two places, see blend.references.

The last answer to the same prompt is either repeated or soon left, so its trust is learnt fast.

An offered token's probability p becomes p' by PAQ's secondary symbol estimation:

    logit p' = trust + slope * logit p

Trust and slope were fitted (research.fit_copying); trust then moves with every learnt token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import CONTEXT, HISTORY, REFERENCE as FROM_REFERENCE, Array
from ngramkit.kernels.blend.counts import (
    MATCH_LENGTH,
    MATCH_NEXT,
    MATCH_SHARD,
    row_of,
)
from ngramkit.kernels.jit import part
from ngramkit.kernels.suffix.search import (
    SIZE,
    TOKEN_BYTES,
    TOKENS,
    VOCABULARY,
    document_token,
    match_before,
    token_at,
)

# Places: live context, past requests, answer, references, and the alternative in these.
LIVE, PAST, SAME_PROMPT, REFERENCE, ALTERNATIVE = range(5)
PLACES = 5
# In which offers are mixed in.
MIXING_ORDER = np.array([PAST, LIVE, SAME_PROMPT, REFERENCE, ALTERNATIVE])
# Origins of offered tokens, by place.
ORIGINS = np.array([CONTEXT, HISTORY, HISTORY, FROM_REFERENCE, FROM_REFERENCE])

# Columns of a place: the row of its text in a shard table, then these.
WIDTH = SIZE + 1
NEXT = WIDTH  # the position of the token expected next, -1 for none
MATCH = WIDTH + 1  # tokens before it that agree with the context
NEAR = WIDTH + 2  # 1 if it was found near the anchor
ANCHOR = WIDTH + 3  # the position expected when a long match last agreed, -1 for none
LOST = WIDTH + 4  # tokens written since
EDIT = WIDTH + 5  # row, from 1, of the edit whose tokens come before NEXT, 0 for none
STEP = WIDTH + 6  # tokens of that edit written so far
COLUMNS = WIDTH + 7

# Columns of an edit of references: the position of the first replaced token, the numbers of
# replaced and of written tokens, the text size when it was made (-1: no edit), then the written
# tokens.
FROM_AT, REMOVED, INSERTED, MADE, WRITTEN = range(5)

ANCHOR_MATCH = 5  # tokens of a match that makes a new anchor
NEAR_WORTH = 4  # tokens added to the length of a near match
MAX_BEFORE_ANCHOR = 16  # tokens from a near match to the anchor after it, at most
NEAR_MATCH = 8  # tokens of a near match that are counted, at most
MAX_DISTANCE_BY_MATCH = np.array(
    [-1, 4, 16, 64]
)  # tokens from the anchor, at most, by match length
LONG_LOST = 48  # tokens after which an anchor is dropped

# Kinds of offers: matches of at least 2, 4, ... tokens; near ones of at least 1, 2, 4 tokens (from
# NEAR_MATCH on they count as others); no match for 1, 2 or more tokens.
MATCH_CLASSES = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NEAR_FROM = (1, 2, 4)
MIN_MATCH, LONGEST = MATCH_CLASSES[0], MATCH_CLASSES[-1]
KIND_BY_LENGTH = np.searchsorted(MATCH_CLASSES, np.arange(LONGEST + 1), side="right") - 1
NEAR_KIND = np.searchsorted(NEAR_FROM, np.arange(NEAR_MATCH), side="right") - 1 + len(MATCH_CLASSES)
LOST_KIND = len(MATCH_CLASSES) + len(NEAR_FROM) - 1  # plus the tokens without a match, 1 to 3

# First trust and slope by kind: for the live context and past requests as fitted; for references by
# the share of their offers that was right in edited files.
FITTED_TRUST = np.array([
    [(0.30, 0.78), (0.51, 0.75), (0.82, 0.67), (0.92, 0.67), (1.29, 0.59), (1.84, 0.50),
     (2.05, 0.57), (2.57, 0.50), (3.02, 0.42), (3.35, 0.38), (0.46, 0.72), (0.75, 0.70),
     (1.07, 0.64), (1.50, 0.90), (1.23, 0.91), (1.05, 0.95)],
    [(-0.02, 0.85), (-0.07, 0.74), (0.00, 0.80), (0.16, 0.60), (0.73, 0.63), (1.14, 0.65),
     (1.49, 0.75), (2.28, 0.60), (2.77, 0.65), (3.18, 0.56), (0.53, 0.66), (0.76, 0.62),
     (0.94, 0.63), (1.00, 0.90), (0.67, 0.91), (0.47, 0.89)],
    [(0.85, 0.40), (2.20, 0.20), (2.75, 0.20), (2.75, 0.20), (3.50, 0.20), (3.50, 0.20),
     (3.90, 0.20), (3.90, 0.20), (4.60, 0.20), (4.60, 0.20), (0.00, 0.40), (0.85, 0.40),
     (2.20, 0.20), (1.00, 0.50), (0.50, 0.50), (0.00, 0.50)],
    [(0.00, 0.40)] + [(0.69, 0.00)] * 15,  # the second beginning; two edits of three are repeated
], np.float32)  # fmt: skip
# By place; the last answer is like past requests.
FIRST_TRUST = FITTED_TRUST[[LIVE, PAST, PAST, 2, 3]]
LEARNING_RATES = np.array([0.1, 0.1, 0.5, 0.1, 0.5])  # learning rates per token, by place
MIN_PROBABILITY = np.float32(2.5e-3)  # distance of p from 0 and 1, at least


class Copying(NamedTuple):
    trust: Array  # float64[PLACES, kinds], in logits
    slopes: Array  # float32[PLACES, kinds]


def new_copying() -> Copying:
    return Copying(
        FIRST_TRUST[:, :, 0].astype(np.float64), np.ascontiguousarray(FIRST_TRUST[:, :, 1])
    )


def new_places() -> Array:
    """Return the places before the first token, int64[PLACES, COLUMNS]."""
    places = np.zeros((PLACES, COLUMNS), np.int64)
    places[:, NEXT] = places[:, ANCHOR] = -1
    return places


def follow_answer(places: Array, answer: Array, at: int, vocabulary: int) -> None:
    """Follow an answer, int32[n], at its token `at`; it must outlive the places."""
    place = places[SAME_PROMPT]
    place[TOKENS], place[TOKEN_BYTES] = answer.ctypes.data, answer.itemsize
    place[SIZE], place[VOCABULARY] = len(answer), vocabulary
    place[NEXT] = place[ANCHOR] = at
    place[MATCH] = LONGEST + at


@part
def copy_places(source, target):
    for which in range(PLACES):
        for column in range(COLUMNS):
            target[which, column] = source[which, column]


@part
def next_token(place, edits):
    """Return the token expected next, -1 at the end of a document."""
    if place[EDIT] > 0:
        return edits[place[EDIT] - 1, WRITTEN + place[STEP]]
    return document_token(place, place[NEXT])


@part
def step_places(before, places, token, edits):
    """Set `places` to `before`, which may be the same array, moved on by `token`."""
    for which in range(len(places)):
        place = places[which]
        if before[which, NEXT] < 0 and before[which, ANCHOR] < 0:
            place[NEXT] = place[ANCHOR] = -1
            place[MATCH] = place[EDIT] = 0
            continue
        for column in range(COLUMNS):
            place[column] = before[which, column]
        if place[NEXT] < 0 or next_token(place, edits) != token:
            place[NEXT], place[MATCH], place[EDIT] = -1, 0, 0
        elif place[EDIT] > 0:
            place[STEP] += 1
            if place[STEP] >= edits[place[EDIT] - 1, INSERTED]:
                place[EDIT] = 0
        else:
            place[NEXT] += 1
            place[MATCH] += 1
        if place[MATCH] >= ANCHOR_MATCH:
            place[ANCHOR], place[LOST] = place[NEXT], 0
        elif place[ANCHOR] >= 0:
            place[LOST] += 1
            if place[LOST] > LONG_LOST:
                place[ANCHOR] = -1
    _choose_reference_or_alternative(places[len(places) - 2], places[len(places) - 1])


@part
def _choose_reference_or_alternative(reference, alternative):
    """Go on at the alternative if only that was right; forget it if it was wrong."""
    if alternative[NEXT] >= 0 and reference[NEXT] < 0:
        copy_place(alternative, reference)
        alternative[NEXT] = -1
    if alternative[NEXT] < 0:
        alternative[ANCHOR] = -1


@part
def copy_place(source, target):
    for column in range(COLUMNS):
        target[column] = source[column]


@part
def point_to_live(places, live):
    """Point to the live context's array, which is replaced when it grows."""
    places[LIVE, TOKENS], places[LIVE, SIZE] = live.table[0, TOKENS], live.table[0, SIZE]


@part
def find_again_near_anchor(place, recent):
    """Move a place without a match to the end of the longest match near the anchor.

    Ties go to the nearest, then to the one ahead.
    """
    last = np.int64(recent[0])
    if place[NEXT] >= 0 or place[ANCHOR] < 0 or last < 0 or last >= place[VOCABULARY]:
        return
    anchor, near = place[ANCHOR], MAX_DISTANCE_BY_MATCH
    best, longest, nearest = anchor, np.int64(0), np.int64(0)
    first = max(anchor - MAX_BEFORE_ANCHOR, np.int64(1))
    behind = min(anchor + near[-1] + 1, place[SIZE])  # ends before it have a next token
    for end in range(first, behind):
        if token_at(place, end - 1) != last:  # most ends stop here, so the loop is fast
            continue
        match = match_before(place, end, recent, NEAR_MATCH)
        away = abs(end - anchor)
        rank = 2 * away - (end > anchor)  # 0, 1, -1, 2, -2, ... from the anchor
        if away <= near[min(match, len(near) - 1)] and (
            match > longest or (match == longest and rank < nearest)
        ):
            best, longest, nearest = end, match, rank
    if longest:
        place[NEXT], place[MATCH], place[NEAR] = best, longest, 1


@part
def choose_near_or_longest(place, table, longest, recent):
    """Move the place to a match near the anchor or to `longest`, in the shards of `table`."""
    find_again_near_anchor(place, recent)
    worth = place[MATCH]
    if place[ANCHOR] >= 0 and (place[NEXT] < 0 or place[NEAR]):
        worth += NEAR_WORTH
    if longest[MATCH_LENGTH] <= worth:
        return
    for column in range(WIDTH):
        place[column] = table[longest[MATCH_SHARD], column]
    place[NEXT], place[MATCH] = longest[MATCH_NEXT], longest[MATCH_LENGTH]
    place[NEAR] = 0
    if place[MATCH] >= ANCHOR_MATCH:
        place[ANCHOR], place[LOST] = place[NEXT], 0


@part
def offered_token(place, edits):
    """Return an offer's kind and token, -1 if there is no offer."""
    match = place[MATCH]
    if place[NEXT] >= 0:
        if place[NEAR] and match < NEAR_MATCH:
            return NEAR_KIND[match], next_token(place, edits)
        if match < MIN_MATCH:
            return np.int64(0), np.int64(-1)
        return KIND_BY_LENGTH[min(match, LONGEST)], next_token(place, edits)
    if place[ANCHOR] < 0:
        return np.int64(0), np.int64(-1)
    kind = LOST_KIND + min(place[LOST], np.int64(3))
    return np.int64(kind), document_token(place, place[ANCHOR] + place[LOST])


@part
def learn_copy_trust(trust, kind, which, is_right, p):
    trust[kind] += LEARNING_RATES[which] * (np.float64(is_right) - p)


@part
def mix_in_copies(copying, places, edits, into, p, written):
    """Change p float32[CANDIDATES] by offers, after learning from `written`, unless -1."""
    one = np.float32(1)
    for i in range(PLACES):
        which = MIXING_ORDER[i]
        kind, token = offered_token(places[which], edits)
        if token < 0 or token >= len(into.rows) - 1:
            continue
        into.state[2] = ORIGINS[which]
        rows = into.state[0]
        row = row_of(into, token)
        if row < 0:
            continue
        if row == rows:
            p[row] = 0
        trust, slope = copying.trust[which], copying.slopes[which, kind]
        before = min(max(p[row], MIN_PROBABILITY), one - MIN_PROBABILITY)
        logit = np.float32(trust[kind]) + slope * np.log(before / (one - before))
        after = one / (one + np.exp(-logit))
        if after - before > before:
            into.source[row] = ORIGINS[which]
        if written >= 0 and not (which == REFERENCE and places[ALTERNATIVE, NEXT] >= 0):
            learn_copy_trust(trust, kind, which, written == token, after)
        scale = (one - after) / max(one - p[row], MIN_PROBABILITY)
        for other in range(into.state[0]):
            p[other] *= scale
        p[row] = after
