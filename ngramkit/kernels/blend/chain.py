"""The best chain: the one path that is worth most, for engines that verify no trees.

A token of a draft costs `least` of a pass and is accepted with its score, the product of the
probabilities along its path; a chain is worth the sum of (score - least) over its tokens. The
greedy path need not be the best: a token that is less likely may go on more surely. So paths are
searched by what they may at most become worth (A*): the first of which nothing open can be worth
more is the best. Past `room` looks into the sources it is the best that was found.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.blend.context import (
    BUDGET,
    END,
    NODES,
    PLACE,
    SOURCES,
    enter,
    file_node,
    step,
)
from ngramkit.kernels.blend.experts import awake_for
from ngramkit.kernels.blend.predict import predict, rewind
from ngramkit.kernels.blend.table import EOS
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.packed import packed_at

RARE = np.float32(1e-4)  # tokens less probable are not looked at, whatever they cost
CHAINS, REWIND = range(2)


@entry
def serve(what, sources, place, tree, begin, end):
    """What engines ask for beside `tree.act`, which decoding does without and does not compile: a
    chain of at most `end` tokens after begin tokens, one for each of `end` jobs that `tree.act` has
    told what was written; or all from token `begin` to `end` back."""
    if what == CHAINS:
        _several(sources, place, tree, end)
    else:
        rewind(sources, place, begin, end)


@part
def _several(sources, place, tree, count):
    """A chain for each of as many jobs, one after another, as `tree.act` draws trees."""
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
    """Finds at most `length` tokens; returns how many. They stand in tree.queue[:, 0], with their
    sources in column 2 and scores in tree.queue_p. Cost and room are tree.least and its arrays'."""
    room = len(tree.tokens)
    enter(place, tree, room)
    least = tree.least[0]
    floor = max(least, RARE)
    nodes, waiting, node, score, gain, depth = 0, 0, room, np.float32(1), np.float32(0), 0
    best, most = -1, np.float32(0)
    while True:
        eos = node < room and tree.tokens[node] == sources.limits[EOS]
        if depth < length and score > floor and not eos:
            awake = awake_for(sources.experts, score)
            if node < room:
                parent = tree.parents[node] if tree.parents[node] >= 0 else room
                step(sources, tree, node, parent, awake)
            predict(
                sources, awake, tree.intervals[node], tree.past[node], tree.recents[node],
                tree.aligned[node], size, floor / score, np.int64(-1),
            )  # fmt: skip
            origin = np.int32(node if node < room else -1)
            into, p, further = sources.into, sources.scratch.p, length - depth
            for row in range(into.state[0]):
                value = score * p[row]
                bound = gain + (value - least) * np.float32(further)
                if value >= floor and bound > most:
                    waiting = _enqueue(tree, waiting, bound, value, into, row, origin)
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
            _move(tree, i + 1, i)
    return _written(tree, best)


@part
def _written(tree, node):
    """The path to `node`, from its first token, at the begin of the queue's arrays."""
    if node < 0:
        return 0
    found = np.int64(tree.depths[node])
    for i in range(found - 1, -1, -1):
        tree.queue[i, 0], tree.queue[i, 2] = tree.tokens[node], tree.origins[node]
        tree.queue_p[i] = tree.scores[node]
        node = tree.parents[node]
    return found


@part
def _move(tree, source, target):
    tree.queue_p[target] = tree.queue_p[source]
    tree.values[target] = tree.values[source]
    for column in range(3):
        tree.queue[target, column] = tree.queue[source, column]


@part
def _enqueue(tree, waiting, bound, value, into, row, origin):
    """Sorted by bound, the highest first; ties: the earlier parent, then the lower token. Of more
    than there is room for, the least promising are dropped."""
    token, room = into.tokens[row], len(tree.tokens)
    at = waiting
    while at > 0 and _behind(tree, at - 1, bound, token, origin):
        at -= 1
    if at >= room:
        return waiting
    waiting = min(waiting + 1, room)
    for i in range(waiting - 1, at, -1):
        _move(tree, i - 1, i)
    tree.queue_p[at], tree.values[at] = bound, value
    tree.queue[at, 0], tree.queue[at, 1], tree.queue[at, 2] = token, origin, into.source[row]
    return waiting


@part
def _behind(tree, at, bound, token, origin):
    if tree.queue_p[at] != bound:
        return tree.queue_p[at] < bound
    return tree.queue[at, 1] == origin and tree.queue[at, 0] > token
