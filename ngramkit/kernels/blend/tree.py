"""The tree of the most probable paths, grown best first.

A node's score is the product of the probabilities along its path, so the `budget` best nodes are
those with the highest expected number of accepted tokens. A node is expanded only if a child of
it could still be among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.predict import (
    EOS,
    PAST_SHARDS,
    SCAN,
    copy_intervals,
    descend_all,
    extend,
    learn,
    predict,
)
from ngramkit.kernels.blend.table import DEPTH
from ngramkit.kernels.compile import entry, part

LEAST = np.float32(1e-4)  # nodes less probable are not worth a row of the pass
DRAFT, LEARN, EXTEND = range(3)
REACH = np.float32(0.35)  # a node is not expanded for a child that takes more than this of it


class Tree(NamedTuple):
    """A draft while it grows, n nodes at most. The root's own context stands last."""

    tokens: Array  # int32[n]
    parents: Array  # int32[n]
    scores: Array  # float32[n]
    origins: Array  # uint8[n]
    intervals: Array  # int64[n + 1, DEPTH + 1, shards, 2]
    past: Array  # int64[n + 1, 2, DEPTH + 1, PAST_SHARDS, 2]
    recents: Array  # int32[n + 1, DEPTH]
    queue_p: Array  # float32[n + 1], the best first
    queue: Array  # int32[n + 1, 3], token, parent, source


def new_tree(shards: int, budget: int) -> Tree:
    return Tree(
        tokens=np.empty(budget, np.int32),
        parents=np.empty(budget, np.int32),
        scores=np.empty(budget, np.float32),
        origins=np.empty(budget, np.uint8),
        intervals=np.empty((budget + 1, DEPTH + 1, shards, 2), np.int64),
        past=np.empty((budget + 1, 2, DEPTH + 1, PAST_SHARDS, 2), np.int64),
        recents=np.empty((budget + 1, DEPTH), np.int32),
        queue_p=np.empty(budget + 1, np.float32),
        queue=np.empty((budget + 1, 3), np.int32),
    )


@entry
def act(what, sources, place, tree, begin, end):
    """What Python asks for, in one kernel: compiled apart, each would hold most of the others."""
    if what == DRAFT:
        return grow(sources, place, begin, tree, end)
    if what == LEARN:
        learn(sources, place, begin, end)
    else:
        corpora = (sources.corpus, sources.earlier.corpus, sources.lately.corpus)
        extend(corpora, sources.live, sources.limits[SCAN], place, begin, end)
    return 0


@part
def grow(sources, place, size, tree, budget):
    """Fills `tree`, which has room for `budget` nodes, best first; returns how many there are."""
    copy_intervals(place.root, tree.intervals[budget])
    copy_intervals(place.past[0], tree.past[budget, 0])
    copy_intervals(place.past[1], tree.past[budget, 1])
    for i in range(DEPTH):
        tree.recents[budget, i] = place.recent[i]
    tokens, parents, scores = tree.tokens, tree.parents, tree.scores
    queue_p, queue = tree.queue_p, tree.queue
    corpora = (sources.corpus, sources.earlier.corpus, sources.lately.corpus)
    scan = sources.limits[SCAN]
    nodes, waiting, node, score = 0, 0, budget, np.float32(1)
    while nodes < budget:
        # Only as many may wait as there is room for: the least of them bounds what is of use.
        room = budget - nodes
        floor = queue_p[waiting - 1] if waiting >= room else LEAST
        eos = node < budget and tokens[node] == sources.limits[EOS]
        if score * REACH > floor and not eos:
            if node < budget:
                _step(corpora, tree, node, parents[node] if parents[node] >= 0 else budget, scan)
            predict(
                sources, tree.intervals[node], tree.past[node], tree.recents[node], size,
                floor / score, np.int64(-1),
            )  # fmt: skip
            origin = np.int32(node if node < budget else -1)
            waiting = _enqueue(
                sources.into, sources.scratch.p, score, origin, queue_p, queue, waiting, room
            )
        if waiting == 0:
            break
        tokens[nodes], parents[nodes] = queue[0, 0], queue[0, 1]
        scores[nodes], tree.origins[nodes] = queue_p[0], queue[0, 2]
        node, score = nodes, queue_p[0]
        nodes += 1
        waiting -= 1
        for i in range(waiting):
            _move(queue_p, queue, i + 1, i)
    return nodes


@part
def _step(corpora, tree, node, parent, scan):
    """A node's context: its parent's and its own token."""
    recent = tree.recents[node]
    for i in range(DEPTH - 1):
        recent[i + 1] = tree.recents[parent, i]
    recent[0] = tree.tokens[node]
    descend_all(
        corpora, tree.intervals[parent], tree.intervals[node], tree.past[parent], tree.past[node],
        recent, scan,
    )  # fmt: skip


@part
def _move(queue_p, queue, source, target):
    queue_p[target] = queue_p[source]
    for column in range(3):
        queue[target, column] = queue[source, column]


@part
def _behind(queue_p, queue, at, value, token, origin):
    """Whether what waits at `at` comes after (value, token, origin)."""
    if queue_p[at] != value:
        return queue_p[at] < value
    return queue[at, 1] == origin and queue[at, 0] > token


@part
def _enqueue(into, p, score, origin, queue_p, queue, waiting, room):
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
        queue_p[at] = value
        queue[at, 0], queue[at, 1], queue[at, 2] = token, origin, into.source[row]
    return waiting
