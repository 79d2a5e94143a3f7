"""The model's word beside the text: what it held likely where a draft said another token.

A pass ends where the model disagrees with the draft, so of the last token written nothing is known:
no node held it. But the nodes that stood in its place were verified too, and what is likely after
"the big" is likely after "the large". So what the model held likely after each of them is summed,
each weighed by how likely the model held the node itself; that holds for the next draft's root.
For the same reason opinions are also found by contexts whose last token but one is another.

Near to the thought is LogitSpec (arXiv:2507.01449), which takes the likely tokens of that place
themselves, not what follows them: docs/drafting.md has both, measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import NO_TOKEN, Array
from ngramkit.kernels.blend.sharpen import beyond, child
from ngramkit.kernels.jit import part

AFTER = 3  # of the newest tokens tell the root from other nodes
NODES = 8  # in the place of the last token, the likeliest first, that are asked
MOST = 64  # tokens held likely after them
LEAST_WEIGHT = np.float32(1e-3)  # of a node that is not among the likely ones
SALT = np.uint64(0x51ED270B76A3C9F1)
WITHOUT = 4  # tokens back that `hashed_without` reaches


class Beside(NamedTuple):
    """What is likely after the newest token; it holds until the next pass."""

    after: Array  # int32[AFTER], the newest tokens, newest first
    tokens: Array  # int32[MOST + 1], -1 ends them
    p: Array  # float32[MOST + 1]
    beyond: Array  # float32[MOST + 1], see blend.sharpen


def new_beside() -> Beside:
    return Beside(
        after=np.full(AFTER, NO_TOKEN, np.int32),
        tokens=np.full(MOST + 1, -1, np.int32),
        p=np.zeros(MOST + 1, np.float32),
        beyond=np.zeros(MOST + 1, np.float32),
    )


@part
def stands_after(beside, recent):
    """Whether it says something of what comes after `recent`."""
    for i in range(AFTER):
        if recent[i] != beside.after[i]:
            return False
    return beside.tokens[0] >= 0


@part
def gather(beside, now, written, tokens, parents, top_ids, top_log_probs):
    """After a pass, see opinions.opine: `written` int32[k] came of it, so that the text now ends
    with `now`."""
    beside.tokens[0] = -1
    if len(written) == 0:
        return
    for i in range(AFTER):
        beside.after[i] = now[i]
    row, last, nodes, count, whole = 0, written[-1], 0, 0, np.float32(0)
    for i in range(len(written) - 1):
        row = child(row, written[i], tokens, parents)
    for node in range(row + 1, len(tokens) if row >= 0 else 0):
        if parents[node] != row or tokens[node] == last or nodes == NODES:
            continue
        weight = LEAST_WEIGHT + _p_of(tokens[node], top_ids[row], top_log_probs[row])
        count = _add(beside, count, weight, top_ids[node], top_log_probs[node])
        whole += weight
        nodes += 1
    beside.tokens[count] = -1
    for i in range(count):
        beside.p[i] /= whole
        beside.beyond[i] = beyond(np.log(beside.p[i]))


@part
def _p_of(token, ids, log_probs):
    for i in range(len(ids)):
        if ids[i] == token:
            return np.exp(log_probs[i])
    return np.float32(0)


@part
def _add(beside, count, weight, ids, log_probs):
    """Adds one node's likely tokens to `count` of them, as far as there is room; how many then."""
    for i in range(len(ids)):
        if ids[i] < 0:
            break
        at = 0
        while at < count and beside.tokens[at] != ids[i]:
            at += 1
        if at == MOST:
            continue
        if at == count:
            beside.tokens[at], beside.p[at] = ids[i], 0
            count += 1
        beside.p[at] += weight * np.exp(log_probs[i])
    return count


@part
def hashed_without(recent):
    """Of the newest WITHOUT tokens but the last but one."""
    key = SALT
    for i in range(WITHOUT):
        if i != 1:
            key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    return key | np.uint64(1)
