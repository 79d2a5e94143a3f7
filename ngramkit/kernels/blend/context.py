"""Contexts of the nodes of a draft while it grows: the root's, and a node's from its parent's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.predict import PAST_SHARDS, copy_intervals, descend_all
from ngramkit.kernels.blend.reference import copy_state, step_aligned
from ngramkit.kernels.blend.table import DEPTH
from ngramkit.kernels.jit import part
from ngramkit.kernels.references.texts import STATE


class Tree(NamedTuple):
    """A draft while it grows, n nodes at most. The root's own context stands last."""

    tokens: Array  # int32[n]
    parents: Array  # int32[n]
    scores: Array  # float32[n]
    origins: Array  # uint8[n]
    intervals: Array  # int64[n + 1, DEPTH + 1, shards, 2]
    past: Array  # int64[n + 1, 2, DEPTH + 1, PAST_SHARDS, 2]
    recents: Array  # int32[n + 1, DEPTH]
    aligned: Array  # int64[n + 1, STATE], see references.texts
    queue_p: Array  # float32[n + 1], the best first
    queue: Array  # int32[n + 1, 3], token, parent, source
    # Of chains alone (blend.chain): the queue's scores, nodes' worths and depths, a token's cost.
    values: Array  # float32[n + 1]
    gains: Array  # float32[n]
    depths: Array  # int32[n]
    least: Array  # float32[1]
    # Of several requests, one after another:
    jobs: Array  # int64[jobs, JOB], see below
    found: Array  # int32[jobs, n, 3], token, parent, source of each job's nodes
    found_scores: Array  # float32[jobs, n]


# Columns of Tree.jobs: LEARN or EXTEND, addresses of the request's Sources and Place, the tokens
# that were written, how many nodes to draft then, how many there are.
JOB = 7
WHAT, SOURCES, PLACE, BEGIN, END, BUDGET, NODES = range(JOB)


def new_tree(shards: int, budget: int, jobs: int = 0) -> Tree:
    return Tree(
        tokens=np.empty(budget, np.int32),
        parents=np.empty(budget, np.int32),
        scores=np.empty(budget, np.float32),
        origins=np.empty(budget, np.uint8),
        intervals=np.empty((budget + 1, DEPTH + 1, shards, 2), np.int64),
        past=np.empty((budget + 1, 2, DEPTH + 1, PAST_SHARDS, 2), np.int64),
        recents=np.empty((budget + 1, DEPTH), np.int32),
        aligned=np.empty((budget + 1, STATE), np.int64),
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
    """A node of that job's draft is found."""
    found = tree.found[job, at]
    found[0], found[1], found[2] = token, parent, origin
    tree.found_scores[job, at] = score


@part
def enter(place, tree, room):
    """The root's context, behind the last of `room` nodes."""
    copy_intervals(place.root, tree.intervals[room])
    copy_intervals(place.past[0], tree.past[room, 0])
    copy_intervals(place.past[1], tree.past[room, 1])
    for i in range(DEPTH):
        tree.recents[room, i] = place.recent[i]
    copy_state(place.aligned, tree.aligned[room])


@part
def step(sources, tree, node, parent, awake):
    """A node's context: its parent's and its own token."""
    recent = tree.recents[node]
    for i in range(DEPTH - 1):
        recent[i + 1] = tree.recents[parent, i]
    recent[0] = tree.tokens[node]
    descend_all(
        sources, tree.intervals[parent], tree.intervals[node], tree.past[parent], tree.past[node],
        recent, awake,
    )  # fmt: skip
    step_aligned(sources.references, tree.aligned[parent], tree.aligned[node], recent)
