"""References (`kernels.references`) as one more opinion of blend's, trusted by how long text and
reference have agreed.

Most requests have none (`packed.Absent`): kernels are compiled without these parts, of a third less
code, until references come."""

from __future__ import annotations

from ngramkit.kernels.blend.trust import mix_in
from ngramkit.kernels.jit import optional_part, part
from ngramkit.kernels.references.align import advance, begin, follow
from ngramkit.kernels.references.offers import credit, offer
from ngramkit.kernels.references.texts import BEGUN, STATE


@optional_part
def mix_in_reference(references, state, into, p, written):
    """Mixes what is expected at `state` into p float32[CANDIDATES]. `written` is what came there,
    with which it is credited first; -1 where nothing has."""
    kind = offer(references, state)
    if kind >= 0:
        if written >= 0:
            credit(references, kind, written)
        mix_in(references.trust[kind], references.tokens, references.p, into, p)


@optional_part
def keep_aligned(references, state, recent, token):
    """`token`, which is recent[0], was written."""
    if state[BEGUN]:
        follow(references, state, recent, token)


@optional_part
def begin_aligned(references, state, recent):
    """The prompt has been read."""
    begin(references, state, recent)


@optional_part
def step_aligned(references, parent, state, recent):
    """A node's state from its parent's: its token, recent[0], is thought of after that."""
    copy_state(parent, state)
    advance(references, state, recent, recent[0])


@part
def copy_state(source, target):
    for i in range(STATE):
        target[i] = source[i]
