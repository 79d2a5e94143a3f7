"""The tree of the most probable paths, grown best first.

A node's score is the product of the probabilities along its path, so the `budget` best nodes are
those with the highest expected number of accepted tokens. A node is expanded only if a child of
it could still be among them.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.blend.context import (
    BEGIN,
    BUDGET,
    END,
    NODES,
    PLACE,
    SOURCES,
    WHAT,
    enter,
    file_node,
    step,
)
from ngramkit.kernels.blend.experts import awake_for
from ngramkit.kernels.blend.predict import extend, learn, predict
from ngramkit.kernels.blend.reference import begin_aligned
from ngramkit.kernels.blend.table import EOS
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.packed import packed_at

LEAST = np.float32(1e-4)  # nodes less probable are not worth a row of the pass
DRAFT, LEARN, EXTEND, ALIGN, SEVERAL = range(5)
REACH = np.float32(0.35)  # a node is not expanded for a child that takes more than this of it


@entry
def act(what, sources, place, tree, begin, end):
    """What Python asks for, in one kernel: compiled apart, each would hold most of the others."""
    if what == DRAFT:
        return grow(sources, place, begin, tree, end)
    if what == SEVERAL:
        _several(sources, place, tree, end)
    elif what == ALIGN:
        begin_aligned(sources.references, place.aligned, place.recent)
    else:
        _write(what, sources, place, begin, end)
    return 0


@part
def _write(what, sources, place, begin, end):
    if what == LEARN:
        learn(sources, place, begin, end)
    else:
        extend(sources, place, begin, end)


@part
def _several(sources, place, tree, count):
    """As many jobs, one after another: a thread that comes back to Python for each waits for its
    lock as long as a small draft takes. `sources` and `place` say of which types theirs are."""
    for k in range(count):
        job = tree.jobs[k]
        own, where = packed_at(job[SOURCES], sources), packed_at(job[PLACE], place)
        _write(job[WHAT], own, where, job[BEGIN], job[END])
        job[NODES] = grow(own, where, job[END], tree, job[BUDGET]) if job[BUDGET] else 0
        for i in range(job[NODES]):
            origin, score = tree.origins[i], tree.scores[i]
            file_node(tree, k, i, tree.tokens[i], tree.parents[i], origin, score)


@part
def grow(sources, place, size, tree, budget):
    """Fills `tree`, which has room for `budget` nodes, best first; returns how many there are."""
    enter(place, tree, budget)
    tokens, parents, scores = tree.tokens, tree.parents, tree.scores
    queue_p, queue = tree.queue_p, tree.queue
    nodes, waiting, node, score = 0, 0, budget, np.float32(1)
    while nodes < budget:
        # Only as many may wait as there is room for: the least of them bounds what is of use.
        room = budget - nodes
        floor = queue_p[waiting - 1] if waiting >= room else LEAST
        eos = node < budget and tokens[node] == sources.limits[EOS]
        if score * REACH > floor and not eos:
            awake = awake_for(sources.experts, score)
            if node < budget:
                parent = parents[node] if parents[node] >= 0 else budget
                step(sources, tree, node, parent, awake)
            predict(
                sources, awake, tree.intervals[node], tree.past[node], tree.recents[node],
                tree.aligned[node], size, floor / score, np.int64(-1),
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
