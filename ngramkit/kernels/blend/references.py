"""Follow references: find places in them again, and repeat their edits.

An identifier is renamed more than once. If the text leaves a reference and comes back, the tokens
that were replaced are remembered. When they come again next to one of the same neighbours, a second
place, the alternative, follows the edit. The beginning of the second reference is an alternative to
that of the first.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.copied_text import (
    ALTERNATIVE,
    ANCHOR,
    EDIT,
    FROM_AT,
    INSERTED,
    LOST,
    MADE,
    MATCH,
    NEAR,
    NEXT,
    REFERENCE,
    REMOVED,
    STEP,
    WIDTH,
    WRITTEN,
    choose_near_or_longest,
    copy_place,
    learn_copy_trust,
    offered_token,
    step_places,
)
from ngramkit.kernels.blend.counts import MATCH_LENGTH, MATCH_NEXT, MATCH_SHARD, push_recent
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.suffix.search import (
    SIZE,
    VOCABULARY,
    document_token,
    first_token_interval,
    match_before,
    narrow_interval,
    position_at,
)

REMEMBERED_EDITS = 32  # remembered edits, newer ones overwrite older ones
LONGEST_EDIT = 16  # tokens replaced or written, at most
BEGINNING_MATCH = 2  # match length in tokens at the beginning of a reference
MAX_EQUAL = 64  # occurrences of a longest match that is used in references, at most


def new_edits(rows: int = REMEMBERED_EDITS) -> Array:
    """Return room for edits, int64[rows, WRITTEN + LONGEST_EDIT]; without rows none is kept."""
    edits = np.zeros((rows, WRITTEN + LONGEST_EDIT), np.int64)
    edits[:, MADE] = -1
    return edits


def follow_beginning(place: Array, row: Array, at: int) -> None:
    """Follow a text that begins at token `at` of a shard, `row` int64[7] of its table."""
    place[:WIDTH] = row
    place[NEXT] = at
    place[ANCHOR], place[LOST], place[NEAR] = at, 0, 0
    place[EDIT], place[MATCH] = 0, BEGINNING_MATCH


@part
def step_written(places, recent, token, edits, size):
    """Move on by `token`, the last of `size` tokens and recent[0]; remember an edit that ends."""
    reference = places[len(places) - 2]
    anchor, lost = reference[ANCHOR], reference[LOST]
    step_places(places, places, token, edits)
    if len(edits) > 0 and anchor >= 0 and lost > 0 and reference[LOST] == 0:
        _remember_edit(edits, reference, anchor, lost + 1, recent, size)


@part
def _remember_edit(edits, reference, anchor, written, recent, size):
    """Remember how the last `written` tokens differ from the reference between two positions."""
    cursor, room = reference[NEXT], min(np.int64(len(recent)), written)
    match = min(match_before(reference, cursor, recent, room), cursor - anchor)
    inserted, removed = written - match, cursor - match - anchor
    if (
        written > len(recent) or match < 1 or max(inserted, removed) < 1
        or max(inserted, removed) > LONGEST_EDIT
    ):  # fmt: skip
        return
    oldest = 0
    for e in range(1, len(edits)):
        if edits[e, MADE] < edits[oldest, MADE]:
            oldest = e
    edit = edits[oldest]
    edit[FROM_AT], edit[REMOVED], edit[INSERTED], edit[MADE] = anchor, removed, inserted, size
    for i in range(inserted):
        edit[WRITTEN + i] = recent[written - 1 - i]


@part
def forget_edits(edits, size):
    """Forget the edits that were made after `size` tokens."""
    for e in range(len(edits)):
        if edits[e, MADE] > size:
            edits[e, MADE] = -1


@part
def choose_edit_to_repeat(reference, alternative, edits):
    """Follow an edit that can be repeated at the reference's place.

    The one with most of the same neighbours is chosen, then the newest.
    """
    if len(edits) == 0 or reference[NEXT] < 0 or reference[EDIT] > 0 or alternative[NEXT] >= 0:
        return
    best, most = np.int64(-1), np.int64(0)
    for e in range(len(edits)):
        same = _same_neighbours(reference, edits[e], reference[NEXT])
        if same > most or (same > 0 and same == most and edits[e, MADE] > edits[best, MADE]):
            best, most = np.int64(e), same
    if best < 0:
        return
    copy_place(reference, alternative)
    alternative[ANCHOR], alternative[LOST] = reference[NEXT], 0
    alternative[NEXT] += edits[best, REMOVED]
    alternative[EDIT], alternative[STEP] = best + 1 if edits[best, INSERTED] > 0 else 0, 0


@part
def _same_neighbours(text, edit, at):
    """Return how many neighbours of an edit, one before and two after, are also at `at`.

    0 if it cannot be repeated there.
    """
    begin, removed = edit[FROM_AT], edit[REMOVED]
    if edit[MADE] < 0 or begin == at:
        return np.int64(0)
    after = np.int64(0)
    for i in range(removed + 2):
        token = document_token(text, begin + i)
        if token < 0 or token != document_token(text, at + i):
            break
        after += 1
    if after < removed:
        return np.int64(0)
    before = document_token(text, begin - 1)
    same = np.int64(before >= 0 and before == document_token(text, at - 1))
    if removed == 0 and (after == 0 or same == 0):
        return np.int64(0)
    return same + after - removed


@part
def find_again_in_references(place, references, longest, recent):
    """Move a place without a match to one near its anchor, or to the longest in `references`.

    `references` is int64[0 or 1, 7], a shard with a suffix array. `longest` int64[3] becomes its
    longest match; ties go to the nearest to the anchor.
    """
    if len(references) == 0 or place[NEXT] >= 0:
        return
    shard, anchor = references[0], place[ANCHOR]
    longest[MATCH_LENGTH] = longest[MATCH_SHARD] = 0
    most, least, first, end = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while most < len(recent) and 0 <= recent[most] < shard[VOCABULARY]:
        most += 1
    while least < most:  # if a suffix matches, so does every shorter one
        length = (least + most + 1) >> 1
        low, high = first_token_interval(shard, np.int64(recent[length - 1]))
        for depth in range(1, length):
            if low < high:
                low, high = narrow_interval(
                    shard, low, high, depth, np.int64(recent[length - 1 - depth])
                )
        if low < high:
            least, first, end = length, low, high
        else:
            most = length - 1
    nearest = shard[SIZE] + 1
    for index in range(first, end if end - first <= MAX_EQUAL else first):
        position = position_at(shard, index) + least
        away = abs(position - anchor) if anchor >= 0 else position
        if away < nearest or (away == nearest and position > longest[MATCH_NEXT]):
            nearest, longest[MATCH_NEXT], longest[MATCH_LENGTH] = away, position, least
    choose_near_or_longest(place, references, longest, recent)


@entry
def follow_references(
    places, references, edits, trust, longest, recent, tokens, scores, size, written
):
    """Follow references for drafters other than blend; `places` and `trust` from REFERENCE on.

    If `written`, learn from `tokens` int32[m], which come after `size` others. Otherwise fill them
    and `scores` float32[m] with the expected tokens and their probabilities; return their number.
    """
    score = 1.0
    for i in range(len(tokens)):
        find_again_in_references(places[0], references, longest, recent)
        choose_edit_to_repeat(places[0], places[1], edits)
        kind, token = offered_token(places[0], edits)
        p = 1 / (1 + np.exp(-trust[0, kind]))
        again, other = offered_token(places[1], edits)
        q = 1 / (1 + np.exp(-trust[1, again])) if other >= 0 else 0.0
        if written:
            if other >= 0:
                learn_copy_trust(trust[1], again, ALTERNATIVE, tokens[i] == other, q)
            elif token >= 0:
                learn_copy_trust(trust[0], kind, REFERENCE, tokens[i] == token, p)
            push_recent(recent, tokens[i])
            step_written(places, recent, np.int64(tokens[i]), edits, size + i + 1)
            continue
        token, p = (other, q) if q > 0.5 else (token, p * (1 - q))
        if token < 0:
            return i
        score *= p
        tokens[i], scores[i] = token, score
        push_recent(recent, tokens[i])
        step_places(places, places, token, edits)
    return len(tokens)
