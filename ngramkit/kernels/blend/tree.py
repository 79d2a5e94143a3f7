"""Draft trees and chains, grown best first.

A node's score is the product of the probabilities along its path, so the `budget` best nodes are
those with the highest expected number of accepted tokens. A node is expanded only if a child of
it could still be among them. A node's context is kept as intervals and states that are one token
further than its parent's.

Chains are for engines that verify no trees: the single most valuable path. A draft token costs
`least` of a pass and is accepted with its score; the value of a chain is the sum of (score - least)
over its tokens. The greedy path need not be the best: a less likely token may be followed by surer
ones. So paths are searched in the order of an upper bound of their value (A*): the search ends with
the best path, or with the best so far after `room` predictions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.copying import COLUMNS, PLACES, copy_places, keep_own_text, step_places
from ngramkit.kernels.blend.counts import DEPTH, EOS, RECENT
from ngramkit.kernels.blend.mixture import awake_for
from ngramkit.kernels.blend.prediction import (
    PAST_SHARDS,
    copy_intervals,
    descend_all,
    extend,
    learn,
    predict,
    rewind,
)
from ngramkit.kernels.blend.references import STATE, begin_aligned, copy_state, step_aligned
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.packed import packed_at

# Columns of Tree.jobs: LEARN or EXTEND, addresses of the request's Sources and Place, begin and end
# of the written tokens, the budget of the draft that follows, the number of its nodes.
JOB = 7
WHAT, SOURCES, PLACE, BEGIN, END, BUDGET, NODES = range(JOB)

LEAST = np.float32(1e-4)  # the score below which a node is not worth a row of the pass
DRAFT, LEARN, EXTEND, ALIGN, SEVERAL = range(5)
REACH = np.float32(0.35)  # a node is not expanded for a child that takes more than this of it

RARE = np.float32(1e-4)  # the probability below which a token is ignored, whatever it costs
CHAINS, REWIND = range(2)


class Tree(NamedTuple):
    """A draft while it grows, n nodes at most. The root's own context stands last."""

    tokens: Array  # int32[n]
    parents: Array  # int32[n]
    scores: Array  # float32[n]
    origins: Array  # uint8[n]
    intervals: Array  # int64[n + 1, DEPTH + 1, shards, 2]
    past: Array  # int64[n + 1, 2, DEPTH + 1, PAST_SHARDS, 2]
    recents: Array  # int32[n + 1, RECENT]
    aligned: Array  # int64[n + 1, STATE], see blend.references
    copied: Array  # int64[n + 1, PLACES, COLUMNS], see blend.copying
    queue_p: Array  # float32[n + 1], the best first
    queue: Array  # int32[n + 1, 3], token, parent, source
    # For chains alone: the queue's scores, nodes' values and depths, a token's cost.
    values: Array  # float32[n + 1]
    gains: Array  # float32[n]
    depths: Array  # int32[n]
    least: Array  # float32[1]
    # For several requests, one after another:
    jobs: Array  # int64[jobs, JOB], see below
    found: Array  # int32[jobs, n, 3], token, parent, source of each job's nodes
    found_scores: Array  # float32[jobs, n]


def new_tree(shards: int, budget: int, jobs: int = 0) -> Tree:
    return Tree(
        tokens=np.empty(budget, np.int32),
        parents=np.empty(budget, np.int32),
        scores=np.empty(budget, np.float32),
        origins=np.empty(budget, np.uint8),
        intervals=np.empty((budget + 1, DEPTH + 1, shards, 2), np.int64),
        past=np.empty((budget + 1, 2, DEPTH + 1, PAST_SHARDS, 2), np.int64),
        recents=np.empty((budget + 1, RECENT), np.int32),
        aligned=np.empty((budget + 1, STATE), np.int64),
        copied=np.empty((budget + 1, PLACES, COLUMNS), np.int64),
        queue_p=np.empty(budget + 1, np.float32),
        queue=np.empty((budget + 1, 3), np.int32),
        values=np.empty(budget + 1, np.float32),
        gains=np.empty(budget, np.float32),
        depths=np.empty(budget, np.int32),
        least=np.zeros(1, np.float32),
        jobs=np.zeros((jobs, JOB), np.int64),
        found=np.empty((jobs, budget, 3), np.int32),
        found_scores=np.empty((jobs, budget), np.float32),
    )


@part
def file_node(tree, job, at, token, parent, origin, score):
    """Write down a node of a job's draft."""
    found = tree.found[job, at]
    found[0], found[1], found[2] = token, parent, origin
    tree.found_scores[job, at] = score


@part
def enter(live, place, tree, room):
    """Set the root's context, in the last row, after `room` nodes."""
    copy_intervals(place.root, tree.intervals[room])
    copy_intervals(place.past[0], tree.past[room, 0])
    copy_intervals(place.past[1], tree.past[room, 1])
    for i in range(RECENT):
        tree.recents[room, i] = place.recent[i]
    copy_state(place.aligned, tree.aligned[room])
    keep_own_text(place.copied, live)
    copy_places(place.copied, tree.copied[room])


@part
def predict_after(sources, tree, node, root, size, score, floor):
    """Predict what follows a node of this score, or the root, whose row is `root`; return what its
    children's parent is, -1 for the root. Children scored below `floor` are of no use."""
    awake = awake_for(sources.experts, score)
    if node < root:
        step(sources, tree, node, tree.parents[node] if tree.parents[node] >= 0 else root, awake)
    predict(
        sources, awake, tree.intervals[node], tree.past[node], tree.recents[node],
        tree.aligned[node], tree.copied[node], size, floor / score, np.int64(-1),
    )  # fmt: skip
    return np.int32(node if node < root else -1)


@part
def step(sources, tree, node, parent, awake):
    """Set a node's context, from its parent's and its own token."""
    recent = tree.recents[node]
    for i in range(RECENT - 1):
        recent[i + 1] = tree.recents[parent, i]
    recent[0] = tree.tokens[node]
    descend_all(
        sources, tree.intervals[parent], tree.intervals[node], tree.past[parent], tree.past[node],
        recent, awake,
    )  # fmt: skip
    step_places(tree.copied[parent], tree.copied[node], np.int64(recent[0]))
    step_aligned(sources.references, tree.aligned[parent], tree.aligned[node], recent)


@entry
def act(what, sources, place, tree, begin, end):
    """Run what Python asks for; one kernel, since each of its parts would compile most of the
    others again."""
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
    """Run `count` jobs, one after another: a thread that returned to Python for each would wait for
    the GIL as long as a small draft takes. `sources` and `place` give the types of the jobs' own.
    """
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
    """Fill `tree`, which has room for `budget` nodes, best first; return the number of nodes."""
    enter(sources.live, place, tree, budget)
    tokens, parents, scores = tree.tokens, tree.parents, tree.scores
    queue_p, queue = tree.queue_p, tree.queue
    nodes, end, node, score = 0, 0, budget, np.float32(1)  # candidates wait in queue[nodes:end]
    while nodes < budget:
        # No more may wait than there is room for: the least of them bounds what is of use.
        floor = queue_p[budget - 1] if end == budget else LEAST
        eos = node < budget and tokens[node] == sources.limits[EOS]
        if score * REACH > floor and not eos:
            origin = predict_after(sources, tree, node, budget, size, score, floor)
            end = _enqueue(
                sources.into, sources.scratch.p, score, origin, queue_p, queue, nodes, end, budget
            )
        if nodes == end:
            break
        tokens[nodes], parents[nodes] = queue[nodes, 0], queue[nodes, 1]
        scores[nodes], tree.origins[nodes] = queue_p[nodes], queue[nodes, 2]
        node, score = nodes, queue_p[nodes]
        nodes += 1
    return nodes


@part
def _move(queue_p, queue, source, target):
    queue_p[target] = queue_p[source]
    for column in range(3):
        queue[target, column] = queue[source, column]


@part
def _behind(queue_p, queue, at, value, token, origin):
    """Return whether the entry at `at` comes after (value, token, origin)."""
    if queue_p[at] != value:
        return queue_p[at] < value
    return queue[at, 1] == origin and queue[at, 0] > token


@part
def _enqueue(into, p, score, origin, queue_p, queue, begin, end, budget):
    """Insert the candidates that may still become nodes into queue[begin:end], which is sorted,
    best first; return its new end.

    Ties: the earlier parent, then the lower token.
    """
    for row in range(into.state[0]):
        value = score * p[row]
        if value < LEAST or (end == budget and value < queue_p[budget - 1]):
            continue
        token, at = into.tokens[row], end
        while at > begin and _behind(queue_p, queue, at - 1, value, token, origin):
            _move(queue_p, queue, at - 1, at)  # of a full queue, the last one falls off
            at -= 1
        if at < budget:
            queue_p[at] = value
            queue[at, 0], queue[at, 1], queue[at, 2] = token, origin, into.source[row]
            end = min(end + 1, budget)
    return end


@entry
def serve_chains(what, sources, place, tree, begin, end):
    """Run what engines need beside `act`; decoding does without and does not compile it. CHAINS: a
    chain for each of `end` jobs, whose written tokens `act` has taken in. REWIND: take back the
    tokens from `begin` to `end`."""
    if what == CHAINS:
        _several_chains(sources, place, tree, end)
    else:
        rewind(sources, place, begin, end)


@part
def _several_chains(sources, place, tree, count):
    """Draft a chain for each of `count` jobs, as `_several` does trees."""
    for k in range(count):
        job = tree.jobs[k]
        if job[BUDGET]:
            own, where = packed_at(job[SOURCES], sources), packed_at(job[PLACE], place)
            job[NODES] = best_chain(own, where, job[END], tree, job[BUDGET])
        for i in range(job[NODES]):
            token, origin = tree.queue[i, 0], tree.queue[i, 2]
            file_node(tree, k, i, token, i - 1, origin, tree.queue_p[i])


@part
def best_chain(sources, place, size, tree, length):
    """Find at most `length` tokens; return their number. They stand in tree.queue[:, 0], their
    sources in column 2, their scores in tree.queue_p. A token's cost is tree.least; `room` is the
    length of the arrays."""
    room = len(tree.tokens)
    enter(sources.live, place, tree, room)
    least = tree.least[0]
    floor = max(least, RARE)
    nodes, waiting, node, score, gain, depth = 0, 0, room, np.float32(1), np.float32(0), 0
    best, most = -1, np.float32(0)
    while True:
        eos = node < room and tree.tokens[node] == sources.limits[EOS]
        if depth < length and score > floor and not eos:
            origin = predict_after(sources, tree, node, room, size, score, floor)
            into, p, further = sources.into, sources.scratch.p, length - depth
            for row in range(into.state[0]):
                value = score * p[row]
                bound = gain + (value - least) * np.float32(further)
                if value >= floor and bound > most:
                    waiting = _enqueue_path(tree, waiting, bound, value, into, row, origin)
        if waiting == 0 or nodes == room or tree.queue_p[0] <= most:
            break
        node, score = nodes, tree.values[0]
        parent = np.int64(tree.queue[0, 1])
        tree.tokens[node], tree.parents[node] = tree.queue[0, 0], parent
        tree.scores[node], tree.origins[node] = score, tree.queue[0, 2]
        before = tree.gains[parent] if parent >= 0 else np.float32(0)
        depth = tree.depths[parent] + 1 if parent >= 0 else 1
        gain = before + score - least
        tree.gains[node], tree.depths[node] = gain, depth
        if gain > most:
            best, most = node, gain
        nodes += 1
        waiting -= 1
        for i in range(waiting):
            _move_path(tree, i + 1, i)
    return _write_path(tree, best)


@part
def _write_path(tree, node):
    """Write the path to `node`, from its first token, to the begin of the queue's arrays; return
    its length."""
    if node < 0:
        return 0
    depth = np.int64(tree.depths[node])
    for i in range(depth - 1, -1, -1):
        tree.queue[i, 0], tree.queue[i, 2] = tree.tokens[node], tree.origins[node]
        tree.queue_p[i] = tree.scores[node]
        node = tree.parents[node]
    return depth


@part
def _move_path(tree, source, target):
    _move(tree.queue_p, tree.queue, source, target)
    tree.values[target] = tree.values[source]


@part
def _enqueue_path(tree, waiting, bound, value, into, row, origin):
    """Insert a path into the queue, sorted by bound, the highest first; ties: the earlier parent,
    then the lower token. Without room the least promising is dropped."""
    token, room = into.tokens[row], len(tree.tokens)
    at = waiting
    while at > 0 and _behind(tree.queue_p, tree.queue, at - 1, bound, token, origin):
        _move_path(tree, at - 1, at)
        at -= 1
    if at < room:
        tree.queue_p[at], tree.values[at] = bound, value
        tree.queue[at, 0], tree.queue[at, 1], tree.queue[at, 2] = token, origin, into.source[row]
        waiting = min(waiting + 1, room)
    return waiting
