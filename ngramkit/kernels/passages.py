"""The worth of a corpus's passages: the n-grams of other text that they hold.

A passage helps where the context reaches an n-gram that it holds. So the n-grams of other text have
a worth each, in a table, and a passage is worth those of its n-grams that no chosen passage holds
yet. Worth only falls while passages are chosen, and the best one is found by evaluating again those
that were best (lazy greedy, Minoux 1978); their sum comes to at least 1 - 1/e of the optimum
(Nemhauser, Wolsey and Fisher 1978, for passages of one size).

A *text table*, int64[texts, 2], is the address and the item size of each text's tokens; whoever
holds it keeps the arrays alive. A passage is a row (text, begin, end) of int64[n, 3].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.suffix.search import token_at

TEXT, BEGIN, END = range(3)
UNIT = 1 << 16
HASH, WORTH = range(2)  # columns of slots
LATER = np.uint64(0x9E3779B97F4A7C15)
# The hash of no tokens: far from any token, or the first would cancel it.
NONE = np.uint64(0xD6E8FEB86659FD93)


class Wanted(NamedTuple):
    """Wanted n-grams by a hash of their tokens; the number of slots is a power of two."""

    slots: Array  # int64[slots, 2]: a hash, 0 where it is empty; and what the n-gram is worth
    orders: Array  # int64[k], ascending: lengths of n-grams


def text_table(texts: Sequence[Array]) -> Array:
    """Return the text table of token arrays (u16 or u32), int64[texts, 2]."""
    rows = [(tokens.ctypes.data, tokens.itemsize) for tokens in texts]
    return np.array(rows, np.int64).reshape(-1, 2)


def new_wanted(windows: int, orders: Sequence[int]) -> Wanted:
    """Return a table for at most `windows` places where n-grams begin."""
    slots = 1 << max(windows * len(orders) * 3 // 2, 8).bit_length()
    return Wanted(np.zeros((slots, 2), np.int64), np.array(orders, np.int64))


@part
def _longer(key, token):
    """Return the hash of an n-gram and one more token; of none, NONE."""
    key = (key ^ np.uint64(token)) * LATER
    return key ^ (key >> np.uint64(29))


@part
def _slot(slots, key):
    """Return the slot of an n-gram, or the empty one where it would be."""
    last = np.uint64(len(slots) - 1)
    at = (np.uint64(key) * LATER) >> np.uint64(20) & last
    while slots[at, HASH] != 0 and slots[at, HASH] != key:
        at = (at + np.uint64(1)) & last
    return np.int64(at)


@entry
def want(table, texts, passages, worth, adds):
    """Set the worth of every n-gram of the passages to at least `worth`, or, if it `adds`, raise it
    by so much at each occurrence."""
    slots, orders = table.slots, table.orders
    for i in range(len(passages)):
        text, end = texts[passages[i, TEXT]], passages[i, END]
        for first in range(passages[i, BEGIN], end):
            key, length = NONE, 0
            for k in range(len(orders)):
                if first + orders[k] > end:
                    break
                while length < orders[k]:
                    key = _longer(key, token_at(text, first + length))
                    length += 1
                name = np.int64(key | np.uint64(1))
                slot = _slot(slots, name)
                slots[slot, HASH] = name
                slots[slot, WORTH] = (
                    slots[slot, WORTH] + worth if adds else max(slots[slot, WORTH], worth)
                )


@allocating_entry
def wanted_rows(table, grams):
    """Return int64[n]: what each row of grams, u16 | u32 [n, m], is worth; m is the only order."""
    worths = np.zeros(len(grams), np.int64)
    for i in range(len(grams)):
        key = NONE
        for j in range(grams.shape[1]):
            key = _longer(key, np.int64(grams[i, j]))
        worths[i] = table.slots[_slot(table.slots, np.int64(key | np.uint64(1))), WORTH]
    return worths


@part
def _worth(table, texts, passages, i, taken):
    """Return the worth of the n-grams of passage `i` that no chosen one holds; if `taken`, set it
    to 0."""
    text, end = texts[passages[i, TEXT]], passages[i, END]
    total = np.int64(0)
    for first in range(passages[i, BEGIN], end):
        key, length = NONE, 0
        for k in range(len(table.orders)):
            if first + table.orders[k] > end:
                break
            while length < table.orders[k]:
                key = _longer(key, token_at(text, first + length))
                length += 1
            slot = _slot(table.slots, np.int64(key | np.uint64(1)))
            if table.slots[slot, HASH] == 0:  # then no longer one is wanted either
                break
            total += table.slots[slot, WORTH]
            if taken:
                table.slots[slot, WORTH] = 0
    return total


@allocating_entry
def choose(table, texts, passages, joined, budget):
    """Return which passages to keep, bool[n]: those worth most per token, while they fit into
    `budget`.

    `joined`, bool[n]: whether a passage goes on where the one before it ends; kept side by side
    they need no separator between them, any other needs one. Of equals the first is taken; what is
    worth nothing is not.
    """
    count = len(passages)
    chosen = np.zeros(count, np.bool_)
    worths, order = np.empty(count, np.int64), np.empty(count, np.int64)  # a heap
    size = 0
    for i in range(count):
        value = _rate(table, texts, passages, i)
        if value > 0:
            worths[size], order[size] = value, i
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(worths, order, i, size)
    left = budget
    while size > 0:
        i = order[0]
        value = _rate(table, texts, passages, i)
        if 0 < value < worths[0]:  # others were chosen since: compared anew
            worths[0] = value
            _sift(worths, order, 0, size)
            continue
        if value > 0:
            cost = passages[i, END] - passages[i, BEGIN] + 1
            if joined[i] and chosen[i - 1]:
                cost -= 1
            if i + 1 < count and joined[i + 1] and chosen[i + 1]:
                cost -= 1
            if cost > left:
                break
            chosen[i] = True
            left -= cost
            _worth(table, texts, passages, i, True)
        size -= 1
        worths[0], order[0] = worths[size], order[size]
        _sift(worths, order, 0, size)
    return chosen


@part
def _rate(table, texts, passages, i):
    """Return the worth per token, the separator included, in 1/65536."""
    return (
        UNIT
        * _worth(table, texts, passages, i, False)
        // (passages[i, END] - passages[i, BEGIN] + 1)
    )


@part
def _sift(worths, order, at, size):
    """Move an entry down to its place in the heap: most worth first, then the earliest passage."""
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and (
                worths[child] > worths[best]
                or (worths[child] == worths[best] and order[child] < order[best])
            ):
                best = child
        if best == at:
            return
        worths[at], worths[best] = worths[best], worths[at]
        order[at], order[best] = order[best], order[at]
        at = best
