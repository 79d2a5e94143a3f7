"""What followed the last tokens in past requests: one more opinion, of the longest match.

Past requests say much where they are alike and nothing where they are stale, so their counts do not
join those of the corpora: how much they are trusted is learnt (`blend.trust`), by the length of the
match and the number of its occurrences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.corpus import Corpus, count_corpus
from ngramkit.kernels.blend.table import N_LEVELS, clear
from ngramkit.kernels.blend.trust import PRIOR, RIGHT, consult
from ngramkit.kernels.jit import part

OFTEN = 3  # once, two or three times, more often
FIRST_TRUST = (0.02, 0.06, 0.12, 0.25, 0.4, 0.7)  # by what matched, LEVELS
CONTINUATIONS = 32  # successors of a match that are mixed in, at most


class History(NamedTuple):
    """Past requests; a corpus without shards where there are none."""

    corpus: Corpus
    tokens: Array  # int32[CONTINUATIONS], -1 ends them
    p: Array  # float32[CONTINUATIONS]
    trust: Array  # float64[N_LEVELS, OFTEN, 2], see blend.trust


def new_history(corpus: Corpus) -> History:
    trust = np.full((N_LEVELS, OFTEN, 2), PRIOR)
    trust[..., RIGHT] *= np.array(FIRST_TRUST)[:, None]
    return History(
        corpus=corpus,
        tokens=np.empty(CONTINUATIONS, np.int32),
        p=np.empty(CONTINUATIONS, np.float32),
        trust=trust,
    )


@part
def _matched(history, intervals, recent, scan, sample, found):
    """Fills history.tokens and history.p with the continuations of the longest match; returns its
    account, or -1 where nothing matches. `found` is a table to count in."""
    clear(found)
    count_corpus(history.corpus, 0, intervals, recent, found, scan, sample)
    level = N_LEVELS - 1
    while level >= 0 and found.distinct[level] == 0:
        level -= 1
    if level < 0:
        return np.int64(-1)
    total, held = found.totals[level], 0
    least = total / np.float32(CONTINUATIONS)
    for row in range(found.state[0]):
        if found.counts[row, level] >= least and held < CONTINUATIONS:
            history.tokens[held] = found.tokens[row]
            history.p[held] = found.counts[row, level] / total
            held += 1
    if held < CONTINUATIONS:
        history.tokens[held] = -1
    often = 0 if total < 2 else 1 if total < 4 else 2
    return np.int64(level * OFTEN + often)


@part
def mix_in_history(history, intervals, recent, scan, sample, found, into, p, written):
    """Mixes what followed `recent` in past requests into p float32[CANDIDATES]. `written` is what
    came there, with which they are credited first; -1 where nothing has."""
    kind = _matched(history, intervals, recent, scan, sample, found)
    if kind >= 0:
        account = history.trust[kind // OFTEN, kind % OFTEN]
        consult(account, history.tokens, history.p, into, p, written)
