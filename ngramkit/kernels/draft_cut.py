"""Cut drafts where more nodes do not pay, by recorded acceptance.

Nodes are classed by their share of the parent's score (SHARE_CLASSES) and by the number of right
tokens in a row before them (RUN_CLASSES). A record float32[SHARE_CLASSES, RUN_CLASSES, 2] has the
sum of shares of nodes with accepted parents, and how many were accepted, fading with age.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.sorting import best_first

SHARE_CLASSES = 8  # classes of shares: above 0.9, above 1/2, above 1/4, ...
RUN_CLASSES = 6  # classes of right tokens in a row: 0, 1, 2, 3 or 4, 5 to 8, more
COPIED_SHARE = 0.9  # larger shares are of copied tokens, not of a choice
MAX_CHANCE = 0.97  # share of the parent's chance, at most: every copy ends
SCORE_WEIGHT = 1.5  # weight of a drafter's own scores, in expected nodes of the record
SHARES, TRUE = range(2)

Floats = npt.NDArray[np.float32]


@allocating_entry
def chances(
    parents: npt.NDArray[np.int32], scores: Floats, record: Floats, trust: Floats, run: int
) -> Floats:
    """Return the chance of every node to be accepted, float32[n].

    `trust` float32[RUN_CLASSES] is what shares are worth without a record. `run` tokens in a row
    were right before this draft.
    """
    chance, depths = np.empty(len(parents), np.float32), np.empty(len(parents), np.int64)
    _chances(parents, scores, record, trust, run, depths, chance)
    return chance


@part
def _chances(parents, scores, record, trust, run, depths, chance):
    expected, came_true = SCORE_WEIGHT, SCORE_WEIGHT
    for kind in range(RUN_CLASSES):
        for level in range(SHARE_CLASSES):
            expected += record[level, kind, SHARES] * trust[kind]
            came_true += record[level, kind, TRUE]
    every = came_true / expected
    for node in range(len(parents)):
        parent = parents[node]
        before, depths[node] = np.float32(1), 0
        if parent >= 0:
            depths[node] = depths[parent] + 1
            before = chance[parent]
        share = _share_of_parent(parents, scores, node)
        kind = _run_class(run + depths[node])
        cell = record[_share_class(share), kind]
        worth = (cell[TRUE] + SCORE_WEIGHT * every * trust[kind]) / (cell[SHARES] + SCORE_WEIGHT)
        chance[node] = before * min(share * worth, MAX_CHANCE)


@part
def _worthwhile_size(chance, order, seconds, rate):
    best, kept, earned = -rate * seconds[0], 0, 0.0
    for count in range(1, len(chance) + 1):
        earned += chance[order[count - 1]]
        value = earned - rate * seconds[count]
        if value > best:
            best, kept = value, count
    return kept


@entry
def update_record(
    token_ids: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    scores: Floats,
    written: npt.NDArray[np.int32],
    record: Floats,
    fade: float,
    run: int,
) -> int:
    """Decay the record, add a draft to it, and return the new run.

    `written` int32[m] followed the root; nodes need not have been verified.
    """
    for level in range(SHARE_CLASSES):
        for kind in range(RUN_CLASSES):
            record[level, kind, SHARES] *= np.float32(fade)
            record[level, kind, TRUE] *= np.float32(fade)
    at = -1
    for token in written:
        kind, drafted, right = _run_class(run), False, -1
        for node in range(at + 1, len(parents)):
            if parents[node] != at:
                continue
            drafted = True
            share = _share_of_parent(parents, scores, node)
            cell = record[_share_class(share), kind]
            cell[SHARES] += np.float32(share)
            if token_ids[node] == token:
                cell[TRUE] += np.float32(1)
                right = node
        if right < 0:
            return 0 if drafted else run
        at, run = right, run + 1
    return run


def cut_draft(
    parents: npt.NDArray[np.int32],
    scores: Floats,
    record: Floats,
    trust: Floats,
    run: int,
    seconds: npt.NDArray[np.float64],
    rate: float,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the nodes that pay, ascending, and their parents among themselves, int32[k] each.

    The k likeliest nodes earn the sum of their chances, in tokens, and take seconds[k] (float64[at
    least n + 1]), each worth `rate` tokens. Chances fall along paths, so kept nodes have kept
    parents.
    """
    n = len(parents)
    chance, (place, order) = np.empty(n, np.float32), np.empty((2, n), np.int64)
    kept, among = np.empty((2, n), np.int32)
    drafted = (parents, scores, record, trust, run)
    count = keep_worthwhile_nodes(*drafted, seconds, rate, chance, place, order, kept, among)
    return kept[:count], among[:count]


@entry
def keep_worthwhile_nodes(
    parents, scores, record, trust, run, seconds, rate, chance, place, order, kept, among
):
    """Set `kept` and `among`; return the number of kept nodes.

    Python allocates the arrays, because allocation in numba compiles slowly.
    """
    _chances(parents, scores, record, trust, run, place, chance)
    best_first(chance, order)
    count = _worthwhile_size(chance, order, seconds, rate)
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
def expected_tokens(
    parents: npt.NDArray[np.int32], chance: Floats, replayed: int
) -> npt.NDArray[np.int64]:
    """Return tokens per pass, without the root, for the 0, 1, ... n likeliest nodes, int64[n + 1].

    A pass has a row per path; all are as long as the longest and repeat `replayed` tokens.

    parents [-1, 0, -1], chance [0.9, 0.8, 0.1], replayed 0 -> [0, 1, 2, 5]
    """
    order = np.empty(len(parents), np.int64)
    depths = np.zeros(len(parents) + 1, np.int64)
    inner = np.zeros(len(parents) + 1, np.int64)
    sizes = np.empty(len(parents) + 1, np.int64)
    best_first(chance, order)
    rows, longest = 1, 0
    sizes[0] = replayed
    for count in range(len(order)):
        node = order[count]
        above = parents[node] + 1
        depths[node + 1] = depths[above] + 1
        longest = max(longest, depths[node + 1])
        rows += inner[above]
        inner[above] = 1
        sizes[count + 1] = rows * (replayed + 1 + longest) - 1
    return sizes


@part
def _share_of_parent(parents: Any, scores: Any, node: int) -> Any:
    """Return a node's share of its parent's score, float64 in [0, 1]."""
    whole = 1.0 if parents[node] < 0 else np.float64(scores[parents[node]])
    return min(np.float64(scores[node]) / whole, 1.0) if whole > 0 else 0.0


@part
def _share_class(share: Any) -> Any:
    if share > COPIED_SHARE:
        return 0
    level = 1
    while level < SHARE_CLASSES - 1 and share <= 0.5:
        share *= 2
        level += 1
    return level


@part
def _run_class(run: Any) -> Any:
    kind, most = 0, 0
    while kind < RUN_CLASSES - 1 and run > most:
        kind += 1
        most = max(2 * most, 1)
    return kind
