"""The best candidates so far, and the nodes whose children are still to be found: sorted rows."""

from __future__ import annotations

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import part

DEPTHS = 32  # one more than the deepest node
KEY, ORDER, SLOT = range(3)  # columns of `ready`: what it is sorted by, then by, and where it is
_, RANK, BOUND = range(3)  # columns of `waiting`, after its KEY: a node, and how wide children are


@part
def may_enter(ready: Array, size: int, key: int) -> bool:
    """Whether a candidate of this key can still be among the best."""
    return bool(size < len(ready) or key <= ready[size - 1, KEY])


@part
def wait(waiting: Array, waits: int, key: int, rank: int, bound: int) -> int:
    """Files a node whose children of at most `bound` suffixes are still to be found; best last."""
    i = waits
    while i > 0 and waiting[i - 1, KEY] < key:
        _move(waiting, i - 1, i)
        i -= 1
    waiting[i, KEY], waiting[i, RANK], waiting[i, BOUND] = key, rank, bound
    return waits + 1


@part
def offer(ready: Array, size: int, depth: int, count: int, order: int) -> int:
    """Makes room for a candidate among the best: its index in `ready`, or -1 if it is none.

    A full list gives up its last entry, and that entry's slot.
    """
    key = depth - count * DEPTHS
    i, slot = size, size
    if size == len(ready):
        i = size - 1
        if not _before(key, order, ready[i, KEY], ready[i, ORDER]):
            return -1
        slot = ready[i, SLOT]
    while i > 0 and _before(key, order, ready[i - 1, KEY], ready[i - 1, ORDER]):
        _move(ready, i - 1, i)
        i -= 1
    ready[i, KEY], ready[i, ORDER], ready[i, SLOT] = key, order, slot
    return i


@part
def _move(rows: Array, source: int, target: int) -> None:
    for column in range(3):
        rows[target, column] = rows[source, column]


@part
def _before(key: int, order: int, other_key: int, other_order: int) -> bool:
    return key < other_key or (key == other_key and order < other_order)
