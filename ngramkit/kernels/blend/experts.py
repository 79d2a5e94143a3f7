"""Several datastores and tables: each an expert of its own, weighed while text is written.

An expert's columns are mixed with the live context's by the fitted gates (`blend.mixture`), as if
it were the only one, and the experts' predictions by how much they say and have come true:

    p(t) = sum over experts e of w[e] * p[e](t),   w[e] ~ odds[e] * exp(trust[e])

odds: how much the gates give an expert's columns, against all the rest. trust is 0 at first and
follows the gradient of log p of every token that was written, as PAQ's mixers do (Mahoney 2005):
an expert that is right where the others are not weighs more, one of another language soon nothing.

A draft's likely nodes ask every expert that is trusted, the others only the one that explained most
of the text lately: so one more costs less time than it would. Where text is written all are asked,
so that trust can be won back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.corpus import count_corpus
from ngramkit.kernels.blend.frozen import SIZE, count_frozen
from ngramkit.kernels.blend.intervals import LAST_BIT, is_awake
from ngramkit.kernels.blend.live import count_live
from ngramkit.kernels.blend.mixture import gate_features_of, gates_of, mixed
from ngramkit.kernels.blend.table import COLUMNS, HOPS, N_LEVELS, SAMPLE, SCAN, clear, erase
from ngramkit.kernels.jit import part
from ngramkit.kernels.source import CONTEXT, DATASTORE, FROZEN

RATE = 0.5  # of what is learnt from a token
FARTHEST = 2.0  # behind the most trusted expert, in log weight: who is farther is not asked
LIKELY = np.float32(0.05)  # the least score of nodes that ask more than one expert
LEAST_ODDS = np.float32(1e-3)
UNSEEN = np.float32(1e-6)  # the probability of what an expert does not hold
RECENT = 0.05  # of a share, for the newest token
TRUST, SHARE = range(2)  # columns of Experts.trust
WEIGHT, CAME = range(2)  # columns of Experts.asked


class Experts(NamedTuple):
    """The datastores in their order, then the frozen table; one at least, if it holds nothing."""

    trust: Array  # float64[experts, 2], of this request: TRUST, SHARE of what came lately
    asked: Array  # float32[experts, 2], scratch: weight, and p of what came


def new_experts(count: int) -> Experts:
    return Experts(np.zeros((count, 2)), np.zeros((count, 2), np.float32))


@part
def _leader(experts):
    """The one that explains most of the text, of equals the first."""
    best = np.int64(0)
    for e in range(1, len(experts.trust)):
        if experts.trust[e, SHARE] > experts.trust[best, SHARE]:
            best = np.int64(e)
    return best


@part
def awake_for(experts, score):
    """The bits of those that a node of this score asks: a path's first nodes have the highest, so
    who is asked for a node was asked for its parent."""
    bits, best = 0, _leader(experts)
    for e in range(len(experts.trust)):
        near = experts.trust[e, TRUST] >= experts.trust[best, TRUST] - FARTHEST
        if e == best or (near and score >= LIKELY):
            bits |= 1 << (e if e < LAST_BIT else LAST_BIT)
    return bits


@part
def count_expert(sources, e, intervals, recent):
    """Adds what followed `recent` with one expert."""
    into, limits = sources.into, sources.limits
    if e < len(sources.corpus.ends):
        into.state[2] = DATASTORE
        count_corpus(sources.corpus, e, intervals, recent, into, limits[SCAN], limits[SAMPLE])
    elif sources.frozen.where[SIZE]:
        into.state[2] = FROZEN
        count_frozen(sources.frozen, recent, into, sources.aside)


@part
def count_context(sources, recent, size):
    """Adds what followed `recent` in the live context."""
    sources.into.state[2] = CONTEXT
    count_live(sources.live, size, recent, sources.into, sources.limits[HOPS])


@part
def _odds(sources, size):
    """Fills scratch.gates, each divided by its column's total; returns the expert's odds."""
    into, scratch, gates = sources.into, sources.scratch, sources.scratch.gates
    gate_features_of(into, size, scratch.gate_features)
    gates_of(sources.weights, scratch.gate_features, into, scratch.hidden, gates)
    own = np.float32(0)
    for c in range(N_LEVELS):
        own += gates[c]
    for c in range(COLUMNS):
        if into.totals[c] > 0:
            gates[c] /= into.totals[c]
    return (own + LEAST_ODDS) / (max(np.float32(1) - own, np.float32(0)) + LEAST_ODDS)


@part
def mix_experts(sources, awake, intervals, recent, size, written):
    """Fills scratch.p, the candidates' probabilities as mixed; returns the correction of none.
    `written` is what came there, and is learnt from after; -1: nothing."""
    into, scratch, gates = sources.into, sources.scratch, sources.scratch.gates
    trust, asked, p = sources.experts.trust, sources.experts.asked, scratch.p
    clear(into)
    rows, whole, none = np.int64(-1), np.float32(0), np.float32(0)
    for e in range(len(trust)):
        asked[e, WEIGHT] = 0
        if not is_awake(awake, e):
            continue
        if rows >= 0:
            erase(into)
        count_expert(sources, e, intervals, recent)
        if rows < 0:
            count_context(sources, recent, size)
        weight = _odds(sources, size) * np.exp(np.float32(trust[e, TRUST]))
        for row in range(into.state[0]):
            mine = weight * mixed(gates, into.counts[row])
            p[row] = p[row] + mine if row < rows else mine
        asked[e, WEIGHT], asked[e, CAME] = weight, UNSEEN
        if 0 <= written < len(into.stamp) and into.stamp[written] == into.state[1]:
            asked[e, CAME] += mixed(gates, into.counts[np.int64(into.slot[written])])
        whole += weight
        none += weight * gates[COLUMNS + 1]
        rows = into.state[0]
    for row in range(rows):
        p[row] /= whole
    if written >= 0 and len(trust) > 1:
        _learn(sources.experts, whole)
    return none / whole


@part
def _learn(experts, whole):
    """One step along the gradient of log p of what came."""
    trust, asked = experts.trust, experts.asked
    came = np.float32(0)
    for e in range(len(trust)):
        came += asked[e, WEIGHT] * asked[e, CAME]
    for e in range(len(trust)):
        explained = asked[e, WEIGHT] * asked[e, CAME] / came
        trust[e, TRUST] += RATE * (explained - asked[e, WEIGHT] / whole)
        trust[e, SHARE] += RECENT * (explained - trust[e, SHARE])
