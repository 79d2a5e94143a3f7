"""N-Grammys' rows of tokens, from the context and a bigram table, merged into one tree.

`gains` are what a row adds to its nodes' scores, never rising along the row.
"""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, part
from ngramkit.kernels.sorting import best_first

# The number of matches in the context that weigh as much as the bigrams, and the factor of a copied
# row's score per further token. They decide which nodes a small budget keeps. Chosen on recorded
# answers to MT-Bench; half or twice the values cost less than 1 % of tokens/step.
ESCAPE = 4.0
DECAY_PER_RANK = 0.8


def probabilities_by_bits() -> Array:
    """Return exp of every 16-bit float, float32[65536]."""
    logs = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        probabilities: Array = np.exp(logs.astype(np.float32))
    return probabilities


@allocating_entry
def most_frequent_rows(
    tokens: Array, begins: Array, width: int, most: int
) -> tuple[Array, Array, Array]:
    """Return the `most` most frequent rows tokens[begin : begin + width], ties to the later one.

    tokens int32[n], begins int64[m] ascending -> rows int32[r, width], lengths int64[r], counts
    int64[r]. Rows are shorter at the context's end.
    """
    size = 16
    while size < 2 * len(begins):
        size *= 2
    slots = np.full(size, -1, np.int64)  # the group of each hash
    latest = np.empty(len(begins), np.int64)  # each group's last begin
    seen = np.zeros(len(begins), np.int64)
    groups = 0
    for begin in begins:
        slot = _hash_tokens(tokens, begin, width) & (size - 1)
        while slots[slot] >= 0 and not _same_tokens(tokens, latest[slots[slot]], begin, width):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = groups
            groups += 1
        latest[slots[slot]] = begin
        seen[slots[slot]] += 1

    distinct = min(groups, most)
    rows = np.zeros((distinct, width), np.int32)
    lengths = np.empty(distinct, np.int64)
    counts = np.empty(distinct, np.int64)
    for r in range(distinct):
        best = 0
        for group in range(1, groups):
            if (seen[group], latest[group]) > (seen[best], latest[best]):
                best = group
        begin = latest[best]
        lengths[r] = min(width, len(tokens) - begin)
        for i in range(lengths[r]):
            rows[r, i] = tokens[begin + i]
        counts[r] = seen[best]
        seen[best] = 0
    return rows, lengths, counts


@part
def _hash_tokens(tokens, begin, width):
    value = np.uint64(14695981039346656037)
    for i in range(begin, min(begin + width, len(tokens))):
        value = (value ^ np.uint64(tokens[i])) * np.uint64(1099511628211)
    return int(value >> np.uint64(32))


@part
def _same_tokens(tokens, left, right, width):
    for offset in range(width):
        if left + offset >= len(tokens) or right + offset >= len(tokens):
            return left == right
        if tokens[left + offset] != tokens[right + offset]:
            return False
    return True


@allocating_entry
def bigram_rows(
    next_tokens: Array,
    log_probs: Array,
    extended: Array,
    probabilities: Array,
    last: int,
    most: int,
    width: int,
    eos: int,
) -> tuple[Array, Array, Array]:
    """Return the first `most` drafts after `last`, cut after `eos`, with their probabilities.

    Arrays are those of formats.model_bigram, log_probs as uint16 bits -> rows int32[r, w], lengths
    int64[r], gains float64[r, w]. A pair missing from the table counts as its least likely one.
    """
    listed = 0 <= last < len(next_tokens)  # a model may write ids that its tokenizer lacks
    drafts = min(most, next_tokens.shape[1]) if listed else 0
    width = min(width, extended.shape[2])
    rows = np.zeros((drafts, width), np.int32)
    lengths = np.zeros(drafts, np.int64)
    gains = np.zeros((drafts, width), np.float64)
    for r in range(drafts):
        probability = 1.0
        before = last
        for depth in range(width):
            token = int(extended[last, r, depth])
            if token >= len(next_tokens):  # a damaged file must not lead outside the table
                break
            rank = r if depth == 0 else _rank_of(next_tokens, before, token)
            probability *= probabilities[log_probs[before, rank]]
            rows[r, depth], gains[r, depth] = token, probability
            lengths[r] = depth + 1
            if token == eos:
                break
            before = token
    return rows, lengths, gains


@part
def _rank_of(next_tokens, before, token):
    for rank in range(next_tokens.shape[1]):
        if next_tokens[before, rank] == token:
            return rank
    return int(next_tokens.shape[1] - 1)


@allocating_entry
def best_nodes_of_rows(
    rows: Array, lengths: Array, gains: Array, sources: Array, budget: int
) -> tuple[Array, Array, Array, Array]:
    """Return ids, parents, scores and sources of the `budget` nodes of highest score.

    rows int32[r, w], lengths int64[r], gains float64[r, w], sources uint8[r]. A score is the sum of
    gains of all rows through the node. Ties go to the earlier row.
    """
    most = 0
    for length in lengths:
        most += length
    tokens = np.empty(most, np.int32)
    parents = np.empty(most, np.int32)
    scores = np.zeros(most, np.float64)
    owners = np.empty(most, np.uint8)
    size = 0
    for r in range(len(rows)):
        at = -1
        for depth in range(lengths[r]):
            token = rows[r, depth]
            node = at + 1
            while node < size and (parents[node] != at or tokens[node] != token):
                node += 1
            if node == size:
                tokens[node], parents[node], owners[node] = token, at, sources[r]
                size += 1
            scores[node] += gains[r, depth]
            at = node
    # Parents come before their children and score no less, so a stable order keeps them too.
    order = np.empty(size, np.int64)
    best_first(scores[:size], order)
    place = np.full(size, -1, np.int32)
    for i in range(min(budget, size)):
        place[order[i]] = 0
    kept = 0
    for node in range(size):  # move kept nodes to the front
        if place[node] == 0:
            place[node] = kept
            tokens[kept], owners[kept], scores[kept] = tokens[node], owners[node], scores[node]
            parents[kept] = -1 if parents[node] < 0 else place[parents[node]]
            kept += 1
    rounded = np.empty(kept, np.float32)
    for node in range(kept):
        rounded[node] = scores[node]
    return tokens[:kept], parents[:kept], rounded, owners[:kept]


@allocating_entry
def context_then_bigram_tree(
    tokens: Array,
    begins: Array,
    next_tokens: Array,
    log_probs: Array,
    extended: Array,
    probabilities: Array,
    most: int,
    width: int,
    eos: int,
    sources: Array,
    budget: int,
) -> tuple[Array, Array, Array, Array]:
    """Return N-Grammys' tree of up to `most` rows: those of the context, then the table's.

    `sources` uint8[2] are the sources of both.
    """
    copied, ends, counts = most_frequent_rows(tokens, begins, width, most)
    last = np.int64(tokens[-1])  # as in Python: `bigram_rows` is compiled once
    drafted, stops, chances = bigram_rows(
        next_tokens, log_probs, extended, probabilities, last, most - len(copied), width, eos
    )
    total = len(copied) + len(drafted)
    rows = np.zeros((total, width), np.int32)
    lengths = np.empty(total, np.int64)
    gains = np.zeros((total, width), np.float64)
    owners = np.empty(total, np.uint8)
    mass = len(begins) + ESCAPE
    for r in range(len(copied)):
        lengths[r], owners[r] = ends[r], sources[0]
        for depth in range(ends[r]):
            rows[r, depth] = copied[r, depth]
            gains[r, depth] = counts[r] / mass * DECAY_PER_RANK**depth
            if copied[r, depth] == eos:
                lengths[r] = depth + 1
                break
    for i in range(len(drafted)):
        r = len(copied) + i
        lengths[r], owners[r] = stops[i], sources[1]
        for depth in range(stops[i]):
            rows[r, depth] = drafted[i, depth]
            gains[r, depth] = chances[i, depth] * ESCAPE / mass
    return best_nodes_of_rows(rows, lengths, gains, owners, budget)
