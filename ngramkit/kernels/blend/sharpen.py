"""The last word on a prediction, where the model writes what it holds likeliest.

What a model held likely is how often a draw would give each token; a greedy one writes the
likeliest every time. And opinions are mixed in one after another, so that what none of them lists
is counted against all of them again and again, and what several list is never more than the surest
of them says. Together that promises too little: the scores of 64 nodes sum up to 0.6 of what is
accepted. So what an opinion lists is raised, by how likely it held it (q), the more so the more of
them list it, and what is left for the unlisted is cut:

    p'(t) = raised(t) / (sum over t of raised(t) + REST * (1 - sum over t of p(t)))
    raised(t) = p(t) * product over opinions of max(q(t) / HELD, 1) ^ weight

and likewise what was held likely lately anywhere (`blend.lately`). The weights (`opinions.RAISES`)
and REST were fitted on SmolLM2's records, see docs/drafting.md.

Draws are not sharpened: a request that is told nothing, or in which more than one written token in
ten was not the likeliest, stays as it is.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.jit import part

REST = np.float32(0.33)
LEAST_REST = np.float32(0.01)  # left for the unlisted, before it is cut
HELD = 1e-4
LOG_HELD = np.float32(np.log(HELD))
WRITTEN, LIKELIEST = range(2)  # columns of `chosen`: tokens, and those the model held likeliest


@part
def beyond(log_p):
    """log(max(q / HELD, 1)) of a token's log probability."""
    return max(np.float32(log_p) - LOG_HELD, np.float32(0))


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
def child(row, token, tokens, parents):
    """The node of `token` below `row`; -1 where there is none."""
    for node in range(row + 1, len(tokens) if row >= 0 else 0):
        if parents[node] == row and tokens[node] == token:
            return node
    return -1


@part
def is_likeliest_written(chosen):
    """Whether nearly all that was written was the likeliest; not before anything was told."""
    return 0 < 9 * chosen[WRITTEN] <= 10 * chosen[LIKELIEST]


@part
def raise_listed(tokens, beyond, weight, into, raises):
    """Adds weight * beyond, float32[n], in the rows of int32[n] `tokens`; -1 ends them."""
    for i in range(len(tokens)):
        token = tokens[i]
        if token < 0:
            return
        if token < len(into.stamp) and into.stamp[token] == into.state[1]:
            raises[into.slot[token]] += weight * beyond[i]


@part
def raised(into, p, raises):
    """p float32[CANDIDATES], of the table's rows, becomes p'; `raises`, in logs, becomes 0."""
    known, total = np.float32(0), np.float32(0)
    for row in range(into.state[0]):
        value = p[row]
        known += value
        if raises[row] > 0:
            value *= np.exp(raises[row])
            raises[row] = 0
        p[row] = value
        total += value
    scale = np.float32(1) / (total + REST * max(np.float32(1) - known, LEAST_REST))
    for row in range(into.state[0]):
        p[row] *= scale
