"""The last word on a prediction, where the model writes what it holds likeliest.

What a model held likely is how often a draw would give each token; a greedy one writes the
likeliest every time. And opinions are mixed in one after another, so that what none of them lists
is counted against all of them again and again. Together that promises too little: the scores of 64
nodes sum up to 0.6 of what is accepted. So every probability is raised to a power, and what is left
for the unlisted is cut:

    p'(t) = p(t)^1.25 / (sum over t of p(t)^1.25 + REST * (1 - sum over t of p(t)))

Both figures were fitted on SmolLM2's records, see docs/drafting.md. 1.25 is two square roots away,
which a processor takes quicker than any power.

Draws are not sharpened: a request that is told nothing, or in which more than one written token in
ten was not the likeliest, stays as it is.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.blend.beside import child
from ngramkit.kernels.blend.mixture import FLOOR, MARGIN
from ngramkit.kernels.compile import part

REST = np.float32(0.22)
LEAST_REST = np.float32(0.01)  # left for the unlisted, before it is cut
WRITTEN, LIKELIEST = range(2)  # columns of `chosen`: tokens, and those the model held likeliest


@part
def watch(chosen, written, tokens, parents, top_ids, top_log_probs):
    """Counts in `chosen`, int64[2], what came of a pass: see opinions.opine."""
    row = np.int64(0)
    for at in range(len(written)):
        if row < 0:  # no node of it was verified
            return
        token = written[at]
        chosen[WRITTEN] += 1
        for i in range(top_ids.shape[1]):
            if top_ids[row, i] == token and top_log_probs[row, i] >= top_log_probs[row, 0]:
                chosen[LIKELIEST] += 1
        row = np.int64(child(row, token, tokens, parents))


@part
def is_likeliest_written(chosen):
    """Whether nearly all that was written was the likeliest; not before anything was told."""
    return 0 < 9 * chosen[WRITTEN] <= 10 * chosen[LIKELIEST]


@part
def sharpen(into, p, least):
    """p float32[CANDIDATES], of the table's rows, becomes p'. Rows well below `least`, which are of
    no use to the caller, or too rare to matter share one factor: most are, and roots take time."""
    floor = max(FLOOR, least * MARGIN)
    factor = np.sqrt(np.sqrt(floor))
    known, total = np.float32(0), np.float32(0)
    for row in range(into.state[0]):
        value = p[row]
        known += value
        value *= np.sqrt(np.sqrt(value)) if value > floor else factor
        total += value
        p[row] = value
    scale = np.float32(1) / (total + REST * max(np.float32(1) - known, LEAST_REST))
    for row in range(into.state[0]):
        p[row] *= scale
