"""The tree of the most probable paths, grown best first.

A node's score is the product of the probabilities along its path, so the `budget` best nodes are
those with the highest expected number of accepted tokens. A node is expanded only if a child of
it could still be among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from ngramkit.kernels.blend_counts import (
    CANDIDATES,
    DEPTH,
    clear,
    count_datastores,
    count_live,
    descend,
    remember,
)
from ngramkit.kernels.blend_evidence import ORDERS, judge, mix_in, opine
from ngramkit.kernels.blend_mix import (
    EVIDENCE,
    TRAITS,
    evidence_of,
    probabilities,
    traits_of,
)
from ngramkit.kernels.leaf import leaf

Array = npt.NDArray[Any]

LEAST = np.float32(1e-4)  # nodes less probable are not worth a row of the pass
REACH = np.float32(0.4)  # a node is not expanded for a child that takes more than this of it
SCAN, SAMPLE, HOPS, EOS = range(4)  # columns of `limits`
DATASTORE, CONTEXT = np.uint8(0), np.uint8(3)  # drafters.base.Source


@njit(cache=True, nogil=True)
def extend(table, root, recent, live, begin, end, memo, limits):  # type: ignore[no-untyped-def]
    """live.tokens[begin:end] were written: chains, the root's intervals and `recent` follow.

    `root` int64[DEPTH + 1, shards, 2], `recent` int32[DEPTH], both updated in place.
    """
    remember(live, begin, end)
    after = np.empty_like(root)
    for position in range(begin, end):
        push_recent(recent, live.tokens[position])
        if position >= end - DEPTH:  # older ones have no part in any order
            descend(table, root, after, recent, limits[SCAN], memo)
            root[:] = after


@leaf
def push_recent(recent, token):  # type: ignore[no-untyped-def]
    for i in range(DEPTH - 1, 0, -1):
        recent[i] = recent[i - 1]
    recent[0] = token


@njit(cache=True, nogil=True)
def predict(  # type: ignore[no-untyped-def]
    table, intervals, recent, live, size, memo, into, weights, shares, limits, p
):
    """Fills `into`, and `p` float32[CANDIDATES], for one context, from counts alone."""
    clear(into)
    count_datastores(table, intervals, recent, memo, into, limits[SCAN], limits[SAMPLE])
    count_live(live, size, recent, into, limits[HOPS])
    probabilities(weights, into, live, size, shares, p)


@njit(cache=True, nogil=True)
def learn(  # type: ignore[no-untyped-def]
    table, root, recent, live, size, memo, into, weights, shares, limits, opinions,
    tokens, parents, top_ids, top_log_probs, written,
):  # fmt: skip
    """Keeps a pass's evidence, see `opine`; `written` is what came after the root."""
    p = np.empty(CANDIDATES, np.float32)
    predict(table, root, recent, live, size, memo, into, weights, shares, limits, p)
    judge(opinions, recent, into, p, written)
    opine(opinions, recent, tokens, parents, top_ids, top_log_probs, np.empty(ORDERS, np.int32))


@njit(cache=True, nogil=True)
def look(table, intervals, recent, live, size, memo, into, shares, limits):  # type: ignore[no-untyped-def]
    """One context's candidates as the mixture sees them, for fitting its weights: tokens,
    counts, totals, evidence, traits (log p left at 0)."""
    clear(into)
    count_datastores(table, intervals, recent, memo, into, limits[SCAN], limits[SAMPLE])
    count_live(live, size, recent, into, limits[HOPS])
    rows = into.state[0]
    evidence = np.empty(EVIDENCE, np.float32)
    evidence_of(into, size, evidence)
    traits = np.empty((rows, TRAITS), np.float32)
    for row in range(rows):
        share = shares[into.tokens[row]]
        traits_of(into, row, live, size, share, np.float32(0), traits[row])
    return (
        into.tokens[:rows].copy(),
        into.counts[:rows].copy(),
        into.totals.copy(),
        evidence,
        traits,
    )


@njit(cache=True, nogil=True)
def grow(  # type: ignore[no-untyped-def]
    table, root, recent, live, size, memo, into, weights, shares, limits, opinions, budget
):
    """At most `budget` nodes: token_ids, parents, scores, source, best first."""
    intervals = np.empty((budget + 1, DEPTH + 1, len(table), 2), np.int64)
    recents = np.empty((budget + 1, DEPTH), np.int32)
    intervals[budget] = root  # the root's own stand last
    recents[budget] = recent
    tokens, parents = np.empty(budget, np.int32), np.empty(budget, np.int32)
    scores, sources = np.empty(budget, np.float32), np.empty(budget, np.uint8)
    queue_p = np.empty(budget + 1, np.float32)
    queue = np.empty((budget + 1, 3), np.int32)  # token, parent, source
    p = np.empty(CANDIDATES, np.float32)
    nodes, waiting, node, score = 0, 0, budget, np.float32(1)
    while nodes < budget:
        # Only as many may wait as there is room for: the least of them bounds what is of use.
        room = budget - nodes
        floor = queue_p[waiting - 1] if waiting >= room else LEAST
        if score * REACH > floor and (node == budget or tokens[node] != limits[EOS]):
            if node < budget:
                parent = parents[node] if parents[node] >= 0 else budget
                recents[node] = recents[parent]
                push_recent(recents[node], tokens[node])
                descend(
                    table, intervals[parent], intervals[node], recents[node], limits[SCAN], memo
                )
            predict(
                table, intervals[node], recents[node], live, size,
                memo, into, weights, shares, limits, p,
            )  # fmt: skip
            mix_in(opinions, recents[node], into, p)
            origin = np.int32(node if node < budget else -1)
            waiting = _enqueue(into, p, score, origin, queue_p, queue, waiting, room)
        if waiting == 0:
            break
        tokens[nodes], parents[nodes] = queue[0, 0], queue[0, 1]
        scores[nodes], sources[nodes] = queue_p[0], queue[0, 2]
        node, score = nodes, queue_p[0]
        nodes += 1
        waiting -= 1
        for i in range(waiting):
            _move(queue_p, queue, i + 1, i)
    return tokens[:nodes], parents[:nodes], scores[:nodes], sources[:nodes]


@leaf
def _move(queue_p, queue, source, target):  # type: ignore[no-untyped-def]
    queue_p[target] = queue_p[source]
    for column in range(3):
        queue[target, column] = queue[source, column]


@leaf
def _behind(queue_p, queue, at, value, token, origin):  # type: ignore[no-untyped-def]
    """Whether what waits at `at` comes after (value, token, origin)."""
    if queue_p[at] != value:
        return queue_p[at] < value
    return queue[at, 1] == origin and queue[at, 0] > token


@leaf
def _enqueue(into, p, score, origin, queue_p, queue, waiting, room):  # type: ignore[no-untyped-def]
    """Inserts the candidates that may still become nodes; the queue is sorted, best first.

    Ties: the earlier parent, then the lower token.
    """
    for row in range(into.state[0]):
        value = score * p[row]
        if value < LEAST or (waiting >= room and value < queue_p[room - 1]):
            continue
        token = into.tokens[row]
        at = waiting
        while at > 0 and _behind(queue_p, queue, at - 1, value, token, origin):
            at -= 1
        if at >= room:
            continue
        waiting = min(waiting + 1, room)
        for i in range(waiting - 1, at, -1):
            _move(queue_p, queue, i - 1, i)
        live_only = into.counts[row, 0] == 0 and into.counts[row, 1] == 0
        queue_p[at] = value
        queue[at, 0], queue[at, 1] = token, origin
        queue[at, 2] = CONTEXT if live_only else DATASTORE
    return waiting
