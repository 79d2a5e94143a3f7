"""Counts into probabilities: p(next | context) as a mixture of all orders of all sources.

    p(t) = sum over columns c of gate[c] * counts[t, c] / totals[c]

The gates are a softmax that depends on how much each column has seen: its total, its number of
distinct successors, and the ratio of the two, as in prediction by partial matching, but fitted (see
research.fit_blend) instead of assumed. One more gate stands for "none of these". Then
each candidate's odds are corrected for what counts alone do not say: how frequent the token is
anywhere, whether and how lately it occurred in the live context.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.table import CANDIDATES, COLUMNS, PAIR
from ngramkit.kernels.jit import part

GATE_FEATURES = 3 * COLUMNS + 1  # inputs of the gates
GATES = COLUMNS + 2  # the columns, none, and none's correction
TOKEN_FEATURES = 7  # inputs of a candidate's correction
FLOOR = np.float32(2e-3)  # candidates below are not corrected: they are too rare to matter
MARGIN = np.float32(0.5)  # a correction hardly ever doubles a probability
LONG_AGO = 4096  # tokens; the age of what never occurred
LOGS = np.log1p(np.arange(LONG_AGO + 1)).astype(np.float32)


class Weights(NamedTuple):
    """All float32. Two layers for the gates, two for the correction."""

    gate_in: Array  # [GATE_FEATURES, H]
    gate_bias: Array  # [H]
    gate_out: Array  # [H, GATES]
    gate_out_bias: Array  # [GATES]
    token_in: Array  # [TOKEN_FEATURES, R]
    token_bias: Array  # [R]
    token_out: Array  # [R + 1], the last scales log p


class Scratch(NamedTuple):
    """What one prediction writes on the way. All float32."""

    gate_features: Array  # [GATE_FEATURES]
    hidden: Array  # [H]
    gates: Array  # [GATES]
    token_features: Array  # [TOKEN_FEATURES]
    units: Array  # [R]
    p: Array  # [CANDIDATES]


def new_scratch(weights: Weights) -> Scratch:
    hidden, units = len(weights.gate_bias), len(weights.token_bias)
    sizes = GATE_FEATURES, hidden, GATES, TOKEN_FEATURES, units, CANDIDATES
    return Scratch(*(np.empty(size, np.float32) for size in sizes))


@part
def log1p(count):
    """log(1 + count) of a whole number, as float32; small ones from a table."""
    whole = np.int64(count)
    if np.uint64(whole) <= np.uint64(LONG_AGO):
        return LOGS[whole]
    return np.log1p(count)


@part
def gate_features_of(into, size, x):
    """The gates' inputs, float32[GATE_FEATURES], of a filled table; `size`: the live context's."""
    for c in range(COLUMNS):
        total, distinct = into.totals[c], into.distinct[c]
        x[c] = log1p(total) * np.float32(0.25)
        x[COLUMNS + c] = log1p(distinct) * np.float32(0.33)
        x[2 * COLUMNS + c] = min(distinct / (total + np.float32(1)), np.float32(1))
    x[3 * COLUMNS] = log1p(np.float32(size)) * np.float32(0.14)


@part
def token_features_of(into, row, live, size, share, log_p, x):
    """A candidate's inputs, float32[TOKEN_FEATURES]; `share` is the log of its share of all tokens,
    see `probabilities`."""
    token = into.tokens[row]
    latest, newest = live.latest[token], into.newest[row]
    seen = live.seen[latest] if latest >= 0 else 0
    age = size - latest if latest >= 0 else LONG_AGO
    since = size - newest if newest >= 0 else LONG_AGO
    x[0] = log_p * np.float32(0.25)
    x[1] = share * np.float32(0.2)
    x[2] = log1p(np.float32(seen)) * np.float32(0.5)
    x[3] = log1p(np.float32(age)) * np.float32(0.12)
    x[4] = log1p(np.float32(since)) * np.float32(0.12)
    x[5] = into.counts[row, COLUMNS // 2] > 0
    x[6] = into.known[row] > 0 or into.counts[row, PAIR] > 0


@part
def gates_of(weights, x, into, hidden, out):
    """out float32[GATES]: a gate per column (0 where it is empty), none's, none's correction."""
    for h in range(len(hidden)):
        hidden[h] = weights.gate_bias[h]
    for i in range(GATE_FEATURES):
        if x[i] != 0:
            for h in range(len(hidden)):
                hidden[h] += x[i] * weights.gate_in[i, h]
    for g in range(GATES):
        out[g] = weights.gate_out_bias[g]
    for h in range(len(hidden)):
        if hidden[h] > 0:
            for g in range(GATES):
                out[g] += hidden[h] * weights.gate_out[h, g]
    top = out[COLUMNS]
    for c in range(COLUMNS):
        if into.totals[c] > 0:
            top = max(top, out[c])
    total = np.float32(0)
    for c in range(COLUMNS + 1):
        if c == COLUMNS or into.totals[c] > 0:
            out[c] = np.exp(out[c] - top)
            total += out[c]
        else:
            out[c] = 0
    for c in range(COLUMNS + 1):
        out[c] /= total


@part
def mixed(gates, counts):
    """The sum over all columns, in halves that the processor adds up side by side."""
    left, right = np.float32(0), np.float32(0)
    for c in range(COLUMNS // 2):
        left += gates[c] * counts[c]
        right += gates[COLUMNS // 2 + c] * counts[COLUMNS // 2 + c]
    return left + right


@part
def corrected(weights, x, log_p, units):
    """The candidate's corrected log p, before it is normalised. `units` float32[R] is scratch."""
    size = len(units)
    for h in range(size):
        units[h] = weights.token_bias[h]
    for i in range(TOKEN_FEATURES):
        for h in range(size):
            units[h] += x[i] * weights.token_in[i, h]
    y = log_p * weights.token_out[size]
    for h in range(size):
        y += max(units[h], np.float32(0)) * weights.token_out[h]
    return y


@part
def correct(weights, into, live, size, shares, least, none, scratch):
    """scratch.p of the table's rows, as mixed, becomes what it is with all that counts do not say.
    With what is left they add up to one; `none` is the correction of what is left.

    Candidates well below `least` are of no use to the caller and are not corrected.

    `shares` float32[V + 1] is log(1 + each token's share of the corpora, in millionths).
    """
    rows = into.state[0]
    token_features, p = scratch.token_features, scratch.p
    known = np.float32(0)
    for row in range(rows):
        known += p[row]
    total = max(np.float32(1) - known, np.float32(1e-6)) * np.exp(none)
    floor = max(FLOOR, least * MARGIN)
    for row in range(rows):
        if p[row] >= floor:
            log_p = np.log(p[row])
            token_features_of(
                into, row, live, size, shares[into.tokens[row]], log_p, token_features
            )
            p[row] = np.exp(corrected(weights, token_features, log_p, scratch.units))
        total += p[row]
    for row in range(rows):
        p[row] /= total
