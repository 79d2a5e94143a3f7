"""What was changed in the references so far, so that it is changed again where they go on alike.

Where text and references part and come together again, some tokens of theirs were replaced by some
of the text's. An identifier is renamed more than once: where the same tokens stand again, with the
same token beside them, the same change is an offer.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import part
from ngramkit.kernels.references.texts import (
    CURSOR,
    EDITS,
    LONGEST_EDIT,
    SINCE,
    agreeing,
    held,
)

FROM, REMOVED, INSERTED, HITS, TRIES = range(5)  # columns of References.edits
# An edit that was never tried again is repeated two times in three.
FIRST_HITS, FIRST_TRIES = 2.0, 3.0


@part
def chance(references, edit):
    """How likely it is that an edit is repeated where it could be."""
    row = references.edits[edit]
    return np.float32((row[HITS] + FIRST_HITS) / (row[TRIES] + FIRST_TRIES))


@part
def edit_at(references, cursor):
    """The edit that could be repeated at a position, -1 where none could: of those the one with the
    most of its three neighbours there too (one before, two after), then the newest."""
    best, most = np.int64(-1), 0
    made = references.made[0]
    for age in range(min(made, EDITS)):
        edit = (made - 1 - age) % EDITS
        row = references.edits[edit]
        beside = _beside(references, row, cursor)
        if beside > most:
            best, most = np.int64(edit), beside
    return best


@part
def _beside(references, row, cursor):
    """How many neighbours of an edit stand at `cursor` too; 0 where it could not be repeated."""
    begin, removed = row[FROM], row[REMOVED]
    if begin == cursor:
        return 0
    for i in range(removed):
        if held(references, begin + i) != held(references, cursor + i):
            return 0
    before = _same(references, begin - 1, cursor - 1)
    after = _same(references, begin + removed, cursor + removed)
    further = after and _same(references, begin + removed + 1, cursor + removed + 1)
    if removed == 0 and not (before and after):
        return 0
    return int(before) + int(after) + int(further)


@part
def _same(references, one, other):
    token = held(references, one)
    return token >= 0 and token == held(references, other)


@part
def first_of(references, edit, cursor):
    """The token that is written first where the edit is repeated."""
    row = references.edits[edit]
    if row[INSERTED] > 0:
        return np.int64(references.inserted[edit, 0])
    return held(references, cursor + row[REMOVED])


@part
def judge(references, edit, cursor, token):
    """`token` was written where the edit could be repeated."""
    row = references.edits[edit]
    if token == first_of(references, edit, cursor):
        row[HITS] += 1
        row[TRIES] += 1
    elif token == held(references, cursor):
        row[TRIES] += 1


@part
def remember(references, state, recent, anchor, written):
    """Text and references have come together again, `written` tokens after they parted at
    `anchor`; those tokens are references.since."""
    if written > SINCE:
        return
    cursor = state[CURSOR]
    match = min(agreeing(references, cursor, recent), written, cursor - anchor)
    inserted, removed = written - match, cursor - match - anchor
    if match < 1 or inserted + removed == 0:
        return
    if inserted > LONGEST_EDIT or removed > LONGEST_EDIT:
        return
    if _known(references, anchor, removed, inserted):
        return
    edit = references.made[0] % EDITS
    references.made[0] += 1
    row = references.edits[edit]
    row[FROM], row[REMOVED], row[INSERTED], row[HITS], row[TRIES] = anchor, removed, inserted, 0, 0
    for i in range(inserted):
        references.inserted[edit, i] = references.since[i]


@part
def _known(references, anchor, removed, inserted):
    """Whether the same change was made before."""
    for edit in range(min(references.made[0], EDITS)):
        row = references.edits[edit]
        same = row[REMOVED] == removed and row[INSERTED] == inserted
        for i in range(removed):
            same = same and held(references, row[FROM] + i) == held(references, anchor + i)
        for i in range(inserted):
            same = same and references.inserted[edit, i] == references.since[i]
        if same:
            return True
    return False
