"""Heaps, and a sort of few values; numba's own sorts are slow to compile."""

from __future__ import annotations

from ngramkit.kernels.jit import part


@part
def best_first(values, order):
    """Set `order` to the indices of `values`, highest first; stable, fast if nearly sorted."""
    for place in range(len(values)):
        at = place
        while at > 0 and values[order[at - 1]] < values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place


@part
def move_up_heap(heap, at):
    """Move the entry at `at` up a min-heap."""
    entry = heap[at]
    while at > 0 and heap[(at - 1) >> 1] > entry:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = entry


@part
def move_down_heap(heap, size):
    """Move the first of `size` entries down a min-heap."""
    entry, at = heap[0], 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry
