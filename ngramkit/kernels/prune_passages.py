"""Choose passages of a corpus by the n-grams of other text that they contain.

A passage is worth its n-grams that no chosen passage contains. Lazy greedy selection (Minoux 1978)
reaches at least 1 - 1/e of the optimum for passages of one size (Nemhauser, Wolsey and Fisher
1978).

A *text table* int64[texts, 2] has the address and item size of each text's tokens; its holder keeps
the arrays alive. A passage is a row (text, begin, end) of int64[n, 3].
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
# The hash of no tokens, larger than any token so that the first cannot cancel it.
NONE = np.uint64(0xD6E8FEB86659FD93)


class Wanted(NamedTuple):
    slots: Array  # int64[slots, 2]: the hash (0 if empty) and the n-gram's worth
    orders: Array  # int64[k], ascending lengths of n-grams


def text_table(texts: Sequence[Array]) -> Array:
    rows = [(tokens.ctypes.data, tokens.itemsize) for tokens in texts]
    return np.array(rows, np.int64).reshape(-1, 2)


def new_wanted(windows: int, orders: Sequence[int]) -> Wanted:
    slots = 1 << max(windows * len(orders) * 3 // 2, 8).bit_length()
    return Wanted(np.zeros((slots, 2), np.int64), np.array(orders, np.int64))


@part
def _hash_longer(key, token):
    key = (key ^ np.uint64(token)) * LATER
    return key ^ (key >> np.uint64(29))


@part
def _find_slot(slots, key):
    last = np.uint64(len(slots) - 1)
    at = (np.uint64(key) * LATER) >> np.uint64(20) & last
    while slots[at, HASH] != 0 and slots[at, HASH] != key:
        at = (at + np.uint64(1)) & last
    return np.int64(at)


@entry
def raise_worth(table, texts, passages, worth, adds):
    """Raise n-grams' worth to at least `worth`, or by `worth` per occurrence if `adds`."""
    slots, orders = table.slots, table.orders
    for i in range(len(passages)):
        text, end = texts[passages[i, TEXT]], passages[i, END]
        for first in range(passages[i, BEGIN], end):
            key, length = NONE, 0
            for k in range(len(orders)):
                if first + orders[k] > end:
                    break
                while length < orders[k]:
                    key = _hash_longer(key, token_at(text, first + length))
                    length += 1
                name = np.int64(key | np.uint64(1))
                slot = _find_slot(slots, name)
                slots[slot, HASH] = name
                slots[slot, WORTH] = (
                    slots[slot, WORTH] + worth if adds else max(slots[slot, WORTH], worth)
                )


@allocating_entry
def wanted_rows(table, grams):
    """Return each row's worth, int64[n]; m of grams [n, m] is the table's only order."""
    worths = np.zeros(len(grams), np.int64)
    for i in range(len(grams)):
        key = NONE
        for j in range(grams.shape[1]):
            key = _hash_longer(key, np.int64(grams[i, j]))
        worths[i] = table.slots[_find_slot(table.slots, np.int64(key | np.uint64(1))), WORTH]
    return worths


@part
def _worth_of_passage(table, texts, passages, i, taken):
    """Return the worth of a passage's n-grams; if `taken`, also set their worths to 0."""
    text, end = texts[passages[i, TEXT]], passages[i, END]
    total = np.int64(0)
    for first in range(passages[i, BEGIN], end):
        key, length = NONE, 0
        for k in range(len(table.orders)):
            if first + table.orders[k] > end:
                break
            while length < table.orders[k]:
                key = _hash_longer(key, token_at(text, first + length))
                length += 1
            slot = _find_slot(table.slots, np.int64(key | np.uint64(1)))
            if table.slots[slot, HASH] == 0:  # then no longer n-gram is wanted
                break
            total += table.slots[slot, WORTH]
            if taken:
                table.slots[slot, WORTH] = 0
    return total


@allocating_entry
def choose_best_per_token(table, texts, passages, joined, budget):
    """Return which passages to keep, bool[n]: the best per token, until one exceeds `budget`.

    `budget` is in tokens, with a separator per passage, except between kept neighbours if the later
    one is `joined`, bool[n]. Ties go to the first.
    """
    count = len(passages)
    chosen = np.zeros(count, np.bool_)
    worths, order = np.empty(count, np.int64), np.empty(count, np.int64)  # a heap
    size = 0
    for i in range(count):
        value = _worth_per_token(table, texts, passages, i)
        if value > 0:
            worths[size], order[size] = value, i
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift_down(worths, order, i, size)
    left = budget
    while size > 0:
        i = order[0]
        value = _worth_per_token(table, texts, passages, i)
        if 0 < value < worths[0]:  # outdated, since others were chosen
            worths[0] = value
            _sift_down(worths, order, 0, size)
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
            _worth_of_passage(table, texts, passages, i, True)
        size -= 1
        worths[0], order[0] = worths[size], order[size]
        _sift_down(worths, order, 0, size)
    return chosen


@part
def _worth_per_token(table, texts, passages, i):
    return (
        UNIT
        * _worth_of_passage(table, texts, passages, i, False)
        // (passages[i, END] - passages[i, BEGIN] + 1)
    )


@part
def _sift_down(worths, order, at, size):
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
