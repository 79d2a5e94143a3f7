"""References (`kernels.references`) as one more opinion of blend's, trusted by how long text and
reference have agreed."""

from __future__ import annotations

from ngramkit.kernels.blend.trust import mix_in
from ngramkit.kernels.compile import part
from ngramkit.kernels.references.align import begin, follow
from ngramkit.kernels.references.offers import credit, offer
from ngramkit.kernels.references.texts import BEGUN, STATE


@part
def mix_in_reference(references, state, into, p, written):
    """Mixes what is expected at `state` into p float32[CANDIDATES]. `written` is what came there,
    with which it is credited first; -1 where nothing has."""
    if len(references.table) == 0:
        return
    kind = offer(references, state)
    if kind >= 0:
        if written >= 0:
            credit(references, kind, written)
        mix_in(references.trust[kind], references.tokens, references.p, into, p)


@part
def keep_aligned(references, state, recent, token):
    """`token`, which is recent[0], was written."""
    if len(references.table) and state[BEGUN]:
        follow(references, state, recent, token)


@part
def begin_aligned(references, state, recent):
    """The prompt has been read."""
    if len(references.table):
        begin(references, state, recent)


@part
def copy_state(source, target):
    for i in range(STATE):
        target[i] = source[i]
