"""How much of a draft pays for its time, and what a drafter's scores have been worth so far.

Arrays in, arrays out. Nodes are alike in two things: in their share of the parent's score (LEVELS),
and in how many tokens in a row were foreseen before them, in this draft and right before it (RUNS):
a draft that came true for ten tokens goes on better than one that has yet to begin. A record is
float32[LEVELS, RUNS, 2]: of such nodes whose parents came true, the sum of their shares (how many
should have come true) and how many did, older ones counting less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.sorting import best_first

LEVELS = 8  # of shares: above 0.9, above 1/2, above 1/4, ...
RUNS = 6  # of tokens foreseen in a row: 0, 1, 2, 3 or 4, 5 to 8, more
COPIED = 0.9  # a share above this stands for "whatever follows there", not for a choice
BELIEF = 1.5  # expected nodes that a drafter's own scores count as, against those on record
SHARES, TRUE = range(2)

Floats = npt.NDArray[np.float32]


@allocating_entry
def chances(
    parents: npt.NDArray[np.int32], scores: Floats, record: Floats, trust: Floats, run: int
) -> Floats:
    """The chance of every node, float32[n]: its parent's times its share, as such shares came true.

    `trust` float32[RUNS] is what shares are worth without a record. Of a kind of node that little
    is known of, as many come true of those expected as of all kinds. `run` tokens in a row were
    foreseen before this draft.
    """
    found, depths = np.empty(len(parents), np.float32), np.empty(len(parents), np.int64)
    _chances(parents, scores, record, trust, run, depths, found)
    return found


@part
def _chances(parents, scores, record, trust, run, depths, found):
    expected, came_true = BELIEF, BELIEF
    for kind in range(RUNS):
        for level in range(LEVELS):
            expected += record[level, kind, SHARES] * trust[kind]
            came_true += record[level, kind, TRUE]
    every = came_true / expected
    for node in range(len(parents)):
        parent = parents[node]
        before, depths[node] = np.float32(1), 0
        if parent >= 0:
            depths[node] = depths[parent] + 1
            before = found[parent]
        share = _share(parents, scores, node)
        kind = _run(run + depths[node])
        cell = record[_level(share), kind]
        worth = (cell[TRUE] + BELIEF * every * trust[kind]) / (cell[SHARES] + BELIEF)
        found[node] = before * min(share * worth, 1.0)


@part
def _count(chance, order, seconds, rate):
    """How many of the likeliest nodes are worthwhile."""
    best, kept, earned = -rate * seconds[0], 0, 0.0
    for count in range(1, len(chance) + 1):
        earned += chance[order[count - 1]]
        value = earned - rate * seconds[count]
        if value > best:
            best, kept = value, count
    return kept


@entry
def recorded(
    token_ids: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    scores: Floats,
    written: npt.NDArray[np.int32],
    record: Floats,
    fade: float,
    run: int,
) -> int:
    """Adds a draft to the record in place; all that was there counts `fade` times. The new run.

    `written` int32[m] is what followed the root. Nodes need not have been verified for that: where
    a node came true, its children are judged by the next token. A run ends where there were
    children and none came true.
    """
    for level in range(LEVELS):
        for kind in range(RUNS):
            record[level, kind, SHARES] *= np.float32(fade)
            record[level, kind, TRUE] *= np.float32(fade)
    at = -1
    for token in written:
        kind, drafted, right = _run(run), False, -1
        for node in range(at + 1, len(parents)):
            if parents[node] != at:
                continue
            drafted = True
            share = _share(parents, scores, node)
            cell = record[_level(share), kind]
            cell[SHARES] += np.float32(share)
            if token_ids[node] == token:
                cell[TRUE] += np.float32(1)
                right = node
        if right < 0:
            return 0 if drafted else run
        at, run = right, run + 1
    return run


def cut(
    parents: npt.NDArray[np.int32],
    scores: Floats,
    record: Floats,
    trust: Floats,
    run: int,
    seconds: npt.NDArray[np.float64],
    rate: float,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """What is worthwhile of a draft: the nodes, ascending, and their parents among themselves,
    int32[k] each; by `chances`, which fall along paths, so a kept node's parent is kept.

    The k likeliest nodes earn the sum of their chances (tokens) and cost seconds[k] (float64, of a
    pass with k nodes, at least n + 1 of them), each worth `rate` tokens: those are kept that earn
    the most above what their time is worth.

    chances [0.5, 0.4], seconds [1, 1.2, 2] at rate 1: one node (0.5 - 0.2), not two (0.9 - 1).
    """
    n = len(parents)
    chance, (place, order) = np.empty(n, np.float32), np.empty((2, n), np.int64)
    kept, among = np.empty((2, n), np.int32)
    drafted = (parents, scores, record, trust, run)
    count = fill_cut(*drafted, seconds, rate, chance, place, order, kept, among)
    return kept[:count], among[:count]


@entry
def fill_cut(parents, scores, record, trust, run, seconds, rate, chance, place, order, kept, among):
    """How many are kept. Python makes the arrays: numba's take longer to compile than this."""
    _chances(parents, scores, record, trust, run, place, chance)
    best_first(chance, order)
    count = _count(chance, order, seconds, rate)
    for node in range(len(parents)):
        place[node] = -1
    for i in range(count):
        place[order[i]] = 0
    i = 0
    for node in range(len(parents)):
        if place[node] == 0:
            place[node], kept[i] = i, node
            among[i] = -1 if parents[node] < 0 else place[parents[node]]
            i += 1
    return count


@allocating_entry
def cells(parents: npt.NDArray[np.int32], chance: Floats, riding: int) -> npt.NDArray[np.int64]:
    """Tokens beside the root of a pass that verifies a draft's paths as rows, with its 0, 1, ... n
    likeliest nodes, int64[n + 1]. Every row is as long as the longest, and repeats `riding` tokens.

    parents [-1, 0, -1], chance [0.9, 0.8, 0.1], nothing riding: 0, 1 and 2 tokens in one row, then
    two rows of three with the root: 5.
    """
    order = np.empty(len(parents), np.int64)
    depths = np.zeros(len(parents) + 1, np.int64)
    inner = np.zeros(len(parents) + 1, np.int64)
    found = np.empty(len(parents) + 1, np.int64)
    best_first(chance, order)
    rows, longest = 1, 0
    found[0] = riding
    for count in range(len(order)):
        node = order[count]
        above = parents[node] + 1
        depths[node + 1] = depths[above] + 1
        longest = max(longest, depths[node + 1])
        rows += inner[above]
        inner[above] = 1
        found[count + 1] = rows * (riding + 1 + longest) - 1
    return found


@part
def _share(parents: Any, scores: Any, node: int) -> Any:
    """Of the parent's score, float64 in [0, 1]; the root's score is 1."""
    whole = 1.0 if parents[node] < 0 else np.float64(scores[parents[node]])
    return min(np.float64(scores[node]) / whole, 1.0) if whole > 0 else 0.0


@part
def _level(share: Any) -> Any:
    if share > COPIED:
        return 0
    level = 1
    while level < LEVELS - 1 and share <= 0.5:
        share *= 2
        level += 1
    return level


@part
def _run(run: Any) -> Any:
    kind, most = 0, 0
    while kind < RUNS - 1 and run > most:
        kind += 1
        most = max(2 * most, 1)
    return kind
