"""Other opinions of what comes next, mixed with the counts' as far as they have come true.

An *account*, float64[2], is kept for every kind of opinion: how often it was right, of how often
it was asked, in shares of credit. Their ratio is its weight in the mixture, and one step of
expectation maximisation per written token keeps it: what was written is credited to opinion and
counts by how likely each held it. So a good opinion soon weighs much, and a stale one little.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.blend.table import row_of
from ngramkit.kernels.jit import part

RIGHT, ASKED = range(2)
PRIOR = 10.0  # a first trust counts as if learnt from so many tokens
SURENESS = 4  # steps of how sure a prediction is: its highest probability
UNSEEN = np.float32(1e-6)  # the probability of what a prediction does not hold


@part
def sureness(into, p):
    """0..SURENESS - 1, from the highest probability."""
    highest = np.float32(0)
    for row in range(into.state[0]):
        highest = max(highest, p[row])
    return max(min(np.int64(highest * SURENESS), SURENESS - 1), 0)


@part
def mix_in(account, tokens, theirs, into, p):
    """p float32[CANDIDATES] becomes (1 - trust) * p + trust * theirs.

    tokens int32[n], -1 ends them; theirs float32[n], their probabilities.
    """
    trust = np.float32(account[RIGHT] / account[ASKED])
    for row in range(into.state[0]):
        p[row] *= np.float32(1) - trust
    for i in range(len(tokens)):
        if tokens[i] < 0:
            return
        if tokens[i] >= len(into.stamp) - 1:
            continue
        before = into.state[0]
        row = row_of(into, tokens[i])
        if row == before:
            p[row] = 0
        if row >= 0:
            p[row] += trust * theirs[i]


@part
def _judge(account, tokens, theirs, into, p, written):
    """Credits what was written after `p` and `theirs` were predicted."""
    if written >= len(into.stamp) - 1:
        return
    opinion = UNSEEN
    for i in range(len(tokens)):
        if tokens[i] < 0:
            break
        if tokens[i] == written:
            opinion = max(opinion, theirs[i])
    ours = UNSEEN
    if into.stamp[written] == into.state[1]:
        ours = max(ours, p[into.slot[written]])
    trust = account[RIGHT] / account[ASKED]
    account[RIGHT] += trust * opinion / (trust * opinion + (1 - trust) * ours)
    account[ASKED] += 1


@part
def consult(account, tokens, theirs, into, p, written):
    """Mixes an opinion in, after it was credited with `written`, unless that is -1."""
    if written >= 0:
        _judge(account, tokens, theirs, into, p, written)
    mix_in(account, tokens, theirs, into, p)
