"""Copying: the token after the longest match of the context, in the live context and past requests,
and the token that follows in the last answer to the same prompt.

Counts end at DEPTH tokens and treat all places alike. But a text that is being copied goes on at
one place, and the longer it has been copied, the surer that is. So one place is kept in the live
context and one in past requests, as in PAQ's match model: that of the longest match, of equal ones
the newest. It moves on while the text agrees. Where the two part, a near place is worth more than a
longer match elsewhere: edited texts and similar tool calls come together again. Until they do, the
offer is the token that stands there if every token written since replaced one.

An answer to the same prompt is followed from its first token, as if the prompt before it were a
long match. Greedy models write it again, sampled texts soon leave it: its trust is learnt over
requests, and fast.

The probability p of an offered token, as all else predicts it, is raised or lowered by what such
offers came to (secondary symbol estimation, as PAQ calls it):

    logit p' = trust + slope * logit p

Both depend on the kind of the offer: the length of the match, and whether it was found near by. The
slopes and the first trust were fitted on recorded agents, edits, tool calls and samples, see
research.fit_copying; the trust then moves with every token that is learnt from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.counts import MATCH_LENGTH, MATCH_NEXT, MATCH_SHARD, row_of
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

# Rows of a copying state: in the live context, in past requests, in an answer to the same prompt.
OWN, PAST, SAME = range(3)
PLACES = 3
WIDTH = SIZE + 1  # of a shard table; the row of the text comes first, then these columns:
NEXT = WIDTH  # the position of the token expected next, -1 for none
MATCH = WIDTH + 1  # tokens before it that agree with the context
NEAR = WIDTH + 2  # 1 where it was found near the anchor
ANCHOR = WIDTH + 3  # the position expected when a long match last agreed, -1 for none
LOST = WIDTH + 4  # tokens written since
COLUMNS = WIDTH + 5

SOLID = 5  # tokens of a match that makes a new anchor
NEAR_WORTH = 4  # tokens that a near match counts as longer
BACK = 16  # tokens that a near match may lie before the anchor
NEAR_MATCH = 8  # tokens of a near match that are counted, at most
NEAR_BY = np.array([-1, 4, 16, 64])  # tokens from the anchor, by the match
LONG_LOST = 48  # tokens, after which an anchor is given up

# Kinds of offers: by the tokens that agree, from 2, 4, 6, 8, 12, 16, 24, 32, 48, 64 on; of those
# found near, from 1, 2, 4 on (from NEAR_MATCH on as others); lost for 1, 2, more tokens.
FROM = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NEAR_FROM = (1, 2, 4)
LEAST_MATCH, LONGEST = FROM[0], FROM[-1]
KIND = np.searchsorted(FROM, np.arange(LONGEST + 1), side="right") - 1
NEAR_KIND = np.searchsorted(NEAR_FROM, np.arange(NEAR_MATCH), side="right") - 1 + len(FROM)
LOST_KIND = len(FROM) + len(NEAR_FROM) - 1  # and the tokens, 1 to 3

# By row and kind: the first trust, the slope.
FITTED = np.array([
    [(0.30, 0.78), (0.51, 0.75), (0.82, 0.67), (0.92, 0.67), (1.29, 0.59), (1.84, 0.50),
     (2.05, 0.57), (2.57, 0.50), (3.02, 0.42), (3.35, 0.38), (0.46, 0.72), (0.75, 0.70),
     (1.07, 0.64), (1.50, 0.90), (1.23, 0.91), (1.05, 0.95)],
    [(-0.02, 0.85), (-0.07, 0.74), (0.00, 0.80), (0.16, 0.60), (0.73, 0.63), (1.14, 0.65),
     (1.49, 0.75), (2.28, 0.60), (2.77, 0.65), (3.18, 0.56), (0.53, 0.66), (0.76, 0.62),
     (0.94, 0.63), (1.00, 0.90), (0.67, 0.91), (0.47, 0.89)],
], np.float32)  # fmt: skip
FIRST = FITTED[[OWN, PAST, PAST]]  # an answer to the same prompt is a past request
RATES = np.array([0.1, 0.1, 0.5])  # of learning, per token, by row
LEAST_P = np.float32(2.5e-3)  # p is taken as at least so far from 0 and 1


class Copying(NamedTuple):
    """The worth of offers, by row and kind."""

    trust: Array  # float64[PLACES, kinds], in logits
    slopes: Array  # float32[PLACES, kinds]


def new_copying() -> Copying:
    return Copying(FIRST[:, :, 0].astype(np.float64), np.ascontiguousarray(FIRST[:, :, 1]))


def forget_trust(copying: Copying) -> None:
    """Forget what was learnt, for a new request, but for that of answers to the same prompt."""
    copying.trust[:SAME] = FIRST[:SAME, :, 0]


def new_copy_state() -> Array:
    """Return the state before the first token, int64[PLACES, COLUMNS]."""
    state = np.zeros((PLACES, COLUMNS), np.int64)
    state[:, NEXT] = state[:, ANCHOR] = -1
    return state


def follow_answer(state: Array, answer: Array, at: int, vocabulary: int) -> None:
    """Follow an earlier answer to the same prompt, int32[n], of which `at` tokens were written
    again. The caller keeps it alive."""
    place = state[SAME]
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
def step_places(before, state, token):
    """Set a state to `before`, which may be the same one, moved on by `token`."""
    for which in range(PLACES):
        place = state[which]
        if before[which, NEXT] < 0 and before[which, ANCHOR] < 0:
            place[NEXT] = place[ANCHOR] = -1
            place[MATCH] = 0
            continue
        for column in range(COLUMNS):
            place[column] = before[which, column]
        if place[NEXT] >= 0 and document_token(place, place[NEXT]) == token:
            place[NEXT] += 1
            place[MATCH] += 1
        else:
            place[NEXT], place[MATCH] = -1, 0
        if place[MATCH] >= SOLID:
            place[ANCHOR], place[LOST] = place[NEXT], 0
        elif place[ANCHOR] >= 0:
            place[LOST] += 1
            if place[LOST] > LONG_LOST:
                place[ANCHOR] = -1


@part
def keep_own_text(state, live):
    """Take over the live context, which grows, and whose array is then another."""
    state[OWN, TOKENS], state[OWN, SIZE] = live.table[0, TOKENS], live.table[0, SIZE]


@part
def come_back(place, recent):
    """Move a place that the text has left to a match near the anchor."""
    if place[NEXT] < 0 and place[ANCHOR] >= 0:
        end, match = longest_near(place, place[ANCHOR], recent, NEAR_MATCH, BACK)
        if match:
            place[NEXT], place[MATCH], place[NEAR] = end, match, 1


@part
def find_place(place, table, longest, recent):
    """Move the place to a match near the anchor, or to the longest match in the shards of `table`
    (`longest`, int64[3]), where that is worth more than the match of the place so far."""
    come_back(place, recent)
    worth = place[MATCH]
    if place[ANCHOR] >= 0 and (place[NEXT] < 0 or place[NEAR]):
        worth += NEAR_WORTH
    if longest[MATCH_LENGTH] <= worth:
        return
    for column in range(WIDTH):
        place[column] = table[longest[MATCH_SHARD], column]
    place[NEXT], place[MATCH] = longest[MATCH_NEXT], longest[MATCH_LENGTH]
    place[NEAR] = 0
    if place[MATCH] >= SOLID:
        place[ANCHOR], place[LOST] = place[NEXT], 0


@part
def longest_near(shard, anchor, recent, most, back):
    """Return the end and the length of the longest match near a text position, of equals the
    nearest, then the one ahead; length 0 where there is none. Of a match `most` tokens are
    counted; it lies at most `back` tokens before `anchor`."""
    best, longest, nearest, near = anchor, np.int64(0), np.int64(0), NEAR_BY
    last = np.int64(recent[0])
    if last < 0 or last >= shard[VOCABULARY]:
        return best, longest
    first = max(anchor - min(back, near[-1]), np.int64(1))
    behind = min(anchor + near[-1] + 1, shard[SIZE])  # something follows before that
    for end in range(first, behind):
        if token_at(shard, end - 1) != last:  # most: this loop is short, so that it is fast
            continue
        match = match_before(shard, end, recent, most)
        away = abs(end - anchor)
        rank = 2 * away - (end > anchor)  # 0, 1, -1, 2, -2, ... from the anchor
        if away <= near[min(match, len(near) - 1)] and (
            match > longest or (match == longest and rank < nearest)
        ):
            best, longest, nearest = end, match, rank
    return best, longest


@part
def offer(place):
    """Return the kind of an offer and its token; the token is -1 where there is none."""
    match = place[MATCH]
    if place[NEXT] >= 0:
        if place[NEAR] and match < NEAR_MATCH:
            return NEAR_KIND[match], document_token(place, place[NEXT])
        if match < LEAST_MATCH:
            return np.int64(0), np.int64(-1)
        return KIND[min(match, LONGEST)], document_token(place, place[NEXT])
    if place[ANCHOR] < 0:
        return np.int64(0), np.int64(-1)
    kind = LOST_KIND + min(place[LOST], np.int64(3))
    return np.int64(kind), document_token(place, place[ANCHOR] + place[LOST])


@part
def mix_in_copy(copying, which, place, into, p, written):
    """Change p float32[CANDIDATES] by what `place` offers; first learn from the token that
    followed, `written`, unless that is -1."""
    kind, token = offer(place)
    if token < 0 or token >= len(into.rows) - 1:
        return
    rows = into.state[0]
    row = row_of(into, token)
    if row < 0:
        return
    if row == rows:
        p[row] = 0
    one, trust = np.float32(1), copying.trust[which]
    before = min(max(p[row], LEAST_P), one - LEAST_P)
    logit = np.float32(trust[kind]) + copying.slopes[which, kind] * np.log(before / (one - before))
    after = one / (one + np.exp(-logit))
    if written >= 0:
        trust[kind] += RATES[which] * (np.float64(written == token) - after)
    scale = (one - after) / max(one - p[row], LEAST_P)
    for other in range(into.state[0]):
        p[other] *= scale
    p[row] = after
