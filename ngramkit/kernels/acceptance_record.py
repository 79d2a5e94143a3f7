"""A record of which scores were accepted, and what it makes of the scores of a draft.

Nodes are classed by their share of the parent's score (SHARE_CLASSES) and by the number of right
tokens in a row before them (RUN_CLASSES). A record float32[SHARE_CLASSES, RUN_CLASSES, 2] has the
sum of shares of nodes with accepted parents, and how many were accepted, fading with age.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ngramkit.kernels.jit import allocating_entry, entry, part

SHARE_CLASSES = 8  # classes of shares: above 0.9, above 1/2, above 1/4, ...
RUN_CLASSES = 6  # classes of right tokens in a row: 0, 1, 2, 3 or 4, 5 to 8, more
COPIED_SHARE = 0.9  # larger shares are of copied tokens, not of a choice
MAX_CHANCE = 0.97  # share of the parent's chance, at most: every copy ends
SCORE_WEIGHT = 1.5  # weight of a drafter's own scores, in expected nodes of the record
SHARES, TRUE = range(2)

Floats = npt.NDArray[np.float32]


def chances(
    parents: npt.NDArray[np.int32], scores: Floats, record: Floats, trust: Floats, run: int
) -> Floats:
    """Return the chance of every node to be accepted, float32[n].

    `trust` float32[RUN_CLASSES] is what shares are worth without a record. `run` tokens in a row
    were right before this draft.
    """
    chance, depths = np.empty(len(parents), np.float32), np.empty(len(parents), np.int64)
    weigh_by_record(parents, scores, record, trust, run, depths, chance)
    return chance


@entry
def weigh_by_record(parents, scores, record, trust, run, depths, chance):
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


@allocating_entry
def expected_tokens(
    parents: npt.NDArray[np.int32], order: npt.NDArray[np.int64], replayed: int
) -> npt.NDArray[np.int64]:
    """Return tokens per pass, without the root, for the first 0, 1, ... n of `order`, int64[n + 1].

    A pass has a row per path; all are as long as the longest and repeat `replayed` tokens.

    parents [-1, 0, -1], order [0, 1, 2], replayed 0 -> [0, 1, 2, 5]
    """
    depths = np.zeros(len(parents) + 1, np.int64)
    inner = np.zeros(len(parents) + 1, np.int64)
    sizes = np.empty(len(parents) + 1, np.int64)
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
def _share_of_parent(parents, scores, node):
    """Return a node's share of its parent's score, float64 in [0, 1]."""
    whole = 1.0 if parents[node] < 0 else np.float64(scores[parents[node]])
    return min(np.float64(scores[node]) / whole, 1.0) if whole > 0 else 0.0


@part
def _share_class(share):
    if share > COPIED_SHARE:
        return 0
    level = 1
    while level < SHARE_CLASSES - 1 and share <= 0.5:
        share *= 2
        level += 1
    return level


@part
def _run_class(run):
    kind, most = 0, 0
    while kind < RUN_CLASSES - 1 and run > most:
        kind += 1
        most = max(2 * most, 1)
    return kind
