"""The alignment, one token further: through a draft that is only thought of, or the text itself."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import part
from ngramkit.kernels.references.edits import INSERTED, REMOVED, edit_at, first_of, judge, remember
from ngramkit.kernels.references.texts import (
    ANCHOR,
    BEGUN,
    CURSOR,
    EDIT,
    LOST,
    MATCH,
    SINCE,
    SOLID,
    STATE,
    STEP,
    held,
    locate,
)


@part
def begin(references, state, recent):
    """The prompt has been read: what follows begins at the first reference, unless the prompt ends
    in the middle of one."""
    for i in range(STATE):
        state[i] = 0
    state[CURSOR] = state[ANCHOR] = state[EDIT] = -1
    state[BEGUN] = 1
    locate(references, state, recent)
    if state[MATCH] >= SOLID and held(references, state[CURSOR]) >= 0:
        state[ANCHOR] = state[CURSOR]
    else:
        state[CURSOR], state[MATCH] = -1, 0


@part
def advance(references, state, recent, token):
    """`token`, which is recent[0], follows."""
    state[LOST] += 1
    if not _expected(references, state, token):
        locate(references, state, recent)  # once: it is compiled into every place of a call
    if state[EDIT] < 0 and state[MATCH] >= SOLID:
        state[ANCHOR], state[LOST] = state[CURSOR], 0


@part
def _expected(references, state, token):
    """Whether the alignment goes on with `token`; then it has."""
    if state[EDIT] >= 0:
        return _repeat(references, state, token)
    if state[CURSOR] >= 0 and held(references, state[CURSOR]) == token:
        state[CURSOR] += 1
        state[MATCH] += 1
        return True
    return _repeats(references, state, token)


@part
def _repeats(references, state, token):
    """Whether an earlier edit begins here once more; then the alignment goes on behind it."""
    cursor = state[CURSOR]
    edit = edit_at(references, cursor) if cursor >= 0 else np.int64(-1)
    if edit < 0 or first_of(references, edit, cursor) != token:
        return False
    row = references.edits[edit]
    if row[INSERTED] > 1:
        state[EDIT], state[STEP] = edit, 1
    else:
        state[CURSOR] = cursor + row[REMOVED] + (1 - row[INSERTED])
    return True


@part
def _repeat(references, state, token):
    edit, step = state[EDIT], state[STEP]
    if references.inserted[edit, step] != token:
        state[EDIT] = -1
        return False
    state[STEP] = step + 1
    if step + 1 == references.edits[edit, INSERTED]:
        state[EDIT] = -1
        state[CURSOR] += references.edits[edit, REMOVED]
    return True


@part
def follow(references, state, recent, token):
    """`advance` by a token that was really written: edits are learnt."""
    anchor, lost, cursor = state[ANCHOR], state[LOST], state[CURSOR]
    if state[EDIT] < 0 and cursor >= 0:
        edit = edit_at(references, cursor)
        if edit >= 0:
            judge(references, edit, cursor, token)
    if lost < SINCE:
        references.since[lost] = token
    advance(references, state, recent, token)
    if anchor >= 0 and lost > 0 and state[LOST] == 0:
        remember(references, state, recent, anchor, lost + 1)
