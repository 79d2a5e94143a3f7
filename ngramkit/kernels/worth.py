"""How much of a draft pays for its time, and what a drafter's scores have been worth so far.

Arrays in, arrays out. Records are float32[LEVELS, DEPTHS, 2]: of the verified nodes with scores of
a level at a depth, the sum of their scores (how many should have been accepted) and how many were,
older ones counting less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

LEVELS = 8  # of scores: above 1/2, above 1/4, ...
DEPTHS = 4  # below the root; deeper nodes count as the deepest

Floats = npt.NDArray[np.float32]


@njit(cache=True, nogil=True)
def chances(
    parents: npt.NDArray[np.int32], scores: Floats, record: Floats, belief: np.float32
) -> Floats:
    """The scores times what came of such scores before; float32[n], never above the parent's or 1.

    Without a record they are the drafter's own. `belief` is how many accepted nodes that counts as:
    at 1.5, where 3 of such nodes were to be accepted and none was, a third of the scores is left.
    """
    found = np.empty(len(parents), np.float32)
    depths = np.zeros(len(parents), np.int64)
    for node in range(len(parents)):
        parent = parents[node]
        if parent >= 0:
            depths[node] = min(depths[parent] + 1, DEPTHS - 1)
        cell = record[_level(scores[node]), depths[node]]
        chance = scores[node] * (cell[1] + belief) / (cell[0] + belief)
        found[node] = min(chance, np.float32(1) if parent < 0 else found[parent])
    return found


@njit(cache=True, nogil=True)
def worthwhile(
    parents: npt.NDArray[np.int32], chance: Floats, seconds: npt.NDArray[np.float64], rate: float
) -> npt.NDArray[np.int32]:
    """The nodes, ascending int32[k], that earn the most above what their time is worth.

    The k likeliest nodes earn the sum of their chances (tokens) and cost seconds[k] (float64, of a
    pass with k nodes, at least n + 1 of them), each worth `rate` tokens. chance falls along paths.

    chance [0.5, 0.4], seconds [1, 1.2, 2] at rate 1: one node (0.5 - 0.2), not two (0.9 - 1).
    """
    order = np.argsort(-chance, kind="mergesort")
    best, kept, earned = -rate * seconds[0], 0, 0.0
    for count in range(1, len(chance) + 1):
        earned += chance[order[count - 1]]
        value = earned - rate * seconds[count]
        if value > best:
            best, kept = value, count
    return np.sort(order[:kept]).astype(np.int32)


@njit(cache=True, nogil=True)
def recorded(
    parents: npt.NDArray[np.int32],
    scores: Floats,
    accepted: npt.NDArray[np.int64],
    record: Floats,
    fade: np.float32,
) -> None:
    """Adds a verified draft to the record in place; all that was there counts `fade` times."""
    record *= fade
    depths = np.zeros(len(parents), np.int64)
    for node in range(len(parents)):
        if parents[node] >= 0:
            depths[node] = min(depths[parents[node]] + 1, DEPTHS - 1)
        record[_level(scores[node]), depths[node], 0] += scores[node]
    for node in accepted:
        record[_level(scores[node]), depths[node], 1] += np.float32(1)


@njit(cache=True, nogil=True)
def subtree(parents: npt.NDArray[np.int32], kept: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The parents int32[k] of the kept nodes among themselves; a kept node's parent is kept."""
    place = np.full(len(parents), -1, np.int32)
    found = np.empty(len(kept), np.int32)
    for i, node in enumerate(kept):
        place[node] = i
        found[i] = -1 if parents[node] < 0 else place[parents[node]]
    return found


@njit(cache=True, nogil=True)
def _level(score: Any) -> Any:
    level = 0
    while level < LEVELS - 1 and score <= 0.5:
        score *= 2
        level += 1
    return level
