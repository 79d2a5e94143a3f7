"""What the model held likely a moment ago, anywhere in its passes, taken or not.

A pass verifies many nodes, and little of what it held likely there is written next; but what it
held likely at one place it often writes at another soon after: the words are in the air. So each
token has a level, the highest log probability at which a node of late listed it, one less for
every FADES tokens written since.

LogitSpec (arXiv:2507.01449) drafts from the last token's own listed tokens; docs/drafting.md has
both, measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part

LATELY_ROWS = 1 << 12
FADES = np.float32(2)  # tokens
LEAST_LEVEL = np.float32(np.log(1e-3))  # below, a token is as good as never listed
NO_LEVEL = np.float32(-np.inf)


class Lately(NamedTuple):
    """A row for all tokens of the same last bits: the one of the highest level has it."""

    tokens: Array  # int32[LATELY_ROWS]
    levels: Array  # float32[LATELY_ROWS], log probability + when it was listed / FADES
    clock: Array  # int64[1], tokens written


def new_lately() -> Lately:
    levels = np.full(LATELY_ROWS, NO_LEVEL, np.float32)
    return Lately(np.zeros(LATELY_ROWS, np.int32), levels, np.zeros(1, np.int64))


def forget_lately(lately: Lately) -> None:
    """A new request."""
    lately.levels[:] = NO_LEVEL
    lately.clock[:] = 0


@part
def list_lately(lately, written, top_ids, top_log_probs):
    """After a pass, of which `written` tokens came: top_ids int32[n, k], top_log_probs
    float32[n, k] of all of its nodes."""
    now = np.float32(lately.clock[0]) / FADES
    for node in range(len(top_ids)):
        for i in range(top_ids.shape[1]):
            token = top_ids[node, i]
            if token < 0:
                break
            row, level = token & (LATELY_ROWS - 1), top_log_probs[node, i] + now
            if level > lately.levels[row]:
                lately.tokens[row], lately.levels[row] = token, level
    lately.clock[0] += written


@part
def raise_lately(lately, weight, into, raises):
    """Adds weight * (a token's level above the least), in the table's rows of `raises`."""
    least = np.float32(lately.clock[0]) / FADES + LEAST_LEVEL
    for row in range(into.state[0]):
        at = into.tokens[row] & (LATELY_ROWS - 1)
        if lately.tokens[at] == into.tokens[row] and lately.levels[at] > least:
            raises[row] += weight * (lately.levels[at] - least)
