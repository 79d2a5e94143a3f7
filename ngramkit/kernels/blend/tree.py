"""Grow draft trees and chains, best first, for one request or many.

A node's score is the product of the probabilities along its path, so the `budget` best nodes have
the highest expected number of accepted tokens.

A chain's value is the sum of (score - cost), with `cost` in passes per token. The greedy path need
not be the best, so the search follows an upper bound (A*) until the best is found or the tree is
full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.copied_text import (
    COLUMNS,
    PLACES,
    copy_places,
    point_to_live,
    step_places,
)
from ngramkit.kernels.blend.counts import EOS, MAX_COUNTED_CONTEXT, MAX_MEASURED_MATCH
from ngramkit.kernels.blend.sources import (
    PAST_SHARDS,
    copy_intervals,
    descend_all,
    extend,
    learn,
    mix_sources_in_order,
    rewind,
)
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.packed_arguments import packed_at

# Columns of Tree.jobs: the action on the tokens from BEGIN to END, the addresses of the request's
# Sources and Place, the most nodes to draft, and the number of drafted ones.
JOB = 7
WHAT, SOURCES, PLACE, BEGIN, END, BUDGET, NODES = range(JOB)
EXTEND, LEARN, REWIND = range(3)  # append; append and learn; remove

MIN_SCORE = np.float32(1e-4)  # score of a node or of a chain's token, at least
MAX_SHARE_OF_PARENT = np.float32(
    0.35
)  # largest share that a child is assumed to have of its parent's score


class Tree(NamedTuple):
    """A growing draft of at most n nodes, and the drafts of all jobs.

    The root's context is in the last row that is used.
    """

    tokens: Array  # int32[n]
    parents: Array  # int32[n], -1 is the root
    scores: Array  # float32[n]
    origins: Array  # uint8[n]
    intervals: Array  # int64[n + 1, MAX_COUNTED_CONTEXT + 1, shards, 2]
    past: Array  # int64[n + 1, 2, MAX_COUNTED_CONTEXT + 1, PAST_SHARDS, 2]
    recents: Array  # int32[n + 1, MAX_MEASURED_MATCH]
    copied: Array  # int64[n + 1, PLACES, COLUMNS], see blend.copied_text
    # Waiting candidates, the highest rank first:
    ranks: Array  # float32[n], scores, or bounds of a chain's value
    waiting: Array  # int32[n, 3]: token, parent, source
    values: Array  # float32[n], their scores
    # For chains: the values of nodes, and their depths.
    gains: Array  # float32[n]
    depths: Array  # int32[n]
    cost: Array  # float32[1], passes per drafted token; below 0: draft trees
    jobs: Array  # int64[jobs, JOB], see WHAT
    found: Array  # int32[jobs, n, 3]: token, parent, source of each job's nodes
    found_scores: Array  # float32[jobs, n]


def new_tree(shards: int, nodes: int, jobs: int) -> Tree:
    return Tree(
        tokens=np.empty(nodes, np.int32),
        parents=np.empty(nodes, np.int32),
        scores=np.empty(nodes, np.float32),
        origins=np.empty(nodes, np.uint8),
        intervals=np.empty((nodes + 1, MAX_COUNTED_CONTEXT + 1, shards, 2), np.int64),
        past=np.empty((nodes + 1, 2, MAX_COUNTED_CONTEXT + 1, PAST_SHARDS, 2), np.int64),
        recents=np.empty((nodes + 1, MAX_MEASURED_MATCH), np.int32),
        copied=np.empty((nodes + 1, PLACES, COLUMNS), np.int64),
        ranks=np.empty(nodes, np.float32),
        waiting=np.empty((nodes, 3), np.int32),
        values=np.empty(nodes, np.float32),
        gains=np.empty(nodes, np.float32),
        depths=np.empty(nodes, np.int32),
        cost=np.full(1, -1, np.float32),
        jobs=np.zeros((jobs, JOB), np.int64),
        found=np.empty((jobs, nodes, 3), np.int32),
        found_scores=np.empty((jobs, nodes), np.float32),
    )


@entry
def run_jobs(sources, place, tree, count):
    """Run the first `count` jobs without returning to Python, which would wait for the GIL.

    `sources` and `place` give the types of the jobs' own.
    """
    for k in range(count):
        job = tree.jobs[k]
        own, where = packed_at(job[SOURCES], sources), packed_at(job[PLACE], place)
        if job[WHAT] == LEARN:
            learn(own, where, job[BEGIN], job[END])
        elif job[WHAT] == EXTEND:
            extend(own, where, job[BEGIN], job[END])
        else:
            rewind(own, where, job[BEGIN], job[END])
        job[NODES] = (
            _grow_best_first(own, where, job[END], tree, k, job[BUDGET]) if job[BUDGET] > 0 else 0
        )


@part
def _grow_best_first(sources, place, size, tree, job, budget):
    """Draft a tree or a chain after `size` tokens; return its number of nodes."""
    cost, most = tree.cost[0], np.float32(0)
    chain = cost >= 0
    room = np.int64(len(tree.tokens)) if chain else budget
    _enter_root(sources.live, place, tree, room)
    nodes, end, node, best = np.int64(0), np.int64(0), room, np.int64(-1)
    score, gain, depth = np.float32(1), np.float32(0), np.int64(0)
    while nodes < room:
        # Candidates wait in waiting[nodes:end].
        floor = max(cost, MIN_SCORE)
        if end == room and not chain:
            floor = tree.ranks[room - 1]
        grows = score > floor and depth < budget if chain else score * MAX_SHARE_OF_PARENT > floor
        if grows and not (node < room and tree.tokens[node] == sources.limits[EOS]):
            origin = _predict_after(sources, tree, node, room, size, score, floor)
            into, p, further = sources.into, sources.scratch.p, np.float32(budget - depth)
            for row in range(into.state[0]):
                value = score * p[row]
                rank = gain + (value - cost) * further if chain else value
                if value >= floor and rank > most:
                    end = _insert_if_among_best(
                        tree, nodes, end, room, rank, value, into.tokens[row], origin,
                        into.source[row],
                    )  # fmt: skip
        if nodes == end or (chain and tree.ranks[nodes] <= most):
            break
        parent = np.int64(tree.waiting[nodes, 1])
        node, score = nodes, tree.values[nodes]
        tree.tokens[node], tree.parents[node] = tree.waiting[node, 0], parent
        tree.scores[node], tree.origins[node] = score, tree.waiting[node, 2]
        nodes += 1
        if chain:
            gain = score - cost + (tree.gains[parent] if parent >= 0 else np.float32(0))
            depth = np.int64(tree.depths[parent]) + 1 if parent >= 0 else np.int64(1)
            tree.gains[node], tree.depths[node] = gain, depth
            if gain > most:
                best, most = node, gain
    return _write_chain(tree, job, best) if chain else _write_tree(tree, job, nodes)


@part
def _enter_root(live, place, tree, room):
    copy_intervals(place.root, tree.intervals[room])
    copy_intervals(place.past[0], tree.past[room, 0])
    copy_intervals(place.past[1], tree.past[room, 1])
    for i in range(MAX_MEASURED_MATCH):
        tree.recents[room, i] = place.recent[i]
    point_to_live(place.copied, live)
    copy_places(place.copied, tree.copied[room])


@part
def _predict_after(sources, tree, node, root, size, score, floor):
    if node < root:
        _step_to_node(sources, tree, node, tree.parents[node] if tree.parents[node] >= 0 else root)
    mix_sources_in_order(
        sources, tree.intervals[node], tree.past[node], tree.recents[node], tree.copied[node],
        size, floor / score, np.int64(-1),
    )  # fmt: skip
    return np.int32(node if node < root else -1)


@part
def _step_to_node(sources, tree, node, parent):
    recent = tree.recents[node]
    for i in range(MAX_MEASURED_MATCH - 1):
        recent[i + 1] = tree.recents[parent, i]
    recent[0] = tree.tokens[node]
    descend_all(
        sources, tree.intervals[parent], tree.intervals[node], tree.past[parent], tree.past[node],
        recent,
    )  # fmt: skip
    step_places(tree.copied[parent], tree.copied[node], np.int64(recent[0]), sources.edits)


@part
def _insert_if_among_best(tree, begin, end, room, rank, value, token, parent, source):
    """Insert a candidate into waiting[begin:end], the highest rank first; return the new end.

    Ties go to the earlier parent, then to the lower token.
    """
    ranks, waiting, at = tree.ranks, tree.waiting, end
    while at > begin and (
        ranks[at - 1] < rank
        or (ranks[at - 1] == rank and waiting[at - 1, 1] == parent and waiting[at - 1, 0] > token)
    ):
        at -= 1
        if at + 1 < room:
            ranks[at + 1], tree.values[at + 1] = ranks[at], tree.values[at]
            for column in range(3):
                waiting[at + 1, column] = waiting[at, column]
    if at < room:
        ranks[at], tree.values[at] = rank, value
        waiting[at, 0], waiting[at, 1], waiting[at, 2] = token, parent, source
    return min(end + 1, room)


@part
def _write_tree(tree, job, nodes):
    for node in range(nodes):
        _write_node(tree, job, node, tree.parents[node], node)
    return nodes


@part
def _write_chain(tree, job, node):
    length = np.int64(tree.depths[node]) if node >= 0 else np.int64(0)
    for at in range(length - 1, -1, -1):
        _write_node(tree, job, at, at - 1, node)
        node = np.int64(tree.parents[node])
    return length


@part
def _write_node(tree, job, at, parent, node):
    found = tree.found[job, at]
    found[0], found[1], found[2] = tree.tokens[node], parent, tree.origins[node]
    tree.found_scores[job, at] = tree.scores[node]
