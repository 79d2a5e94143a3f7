"""Naive twins of every kernel: what each one means, in the plainest Python."""

from __future__ import annotations

from collections import Counter


def suffix_array(tokens):
    """Positions in the order of their suffixes; a list that ends first is the smaller."""
    return sorted(range(len(tokens)), key=lambda i: tokens[i:])


def matches(shards, pattern):
    """(shard, position) of every place where `pattern` stands."""
    size = len(pattern)
    return [
        (s, i)
        for s, tokens in enumerate(shards)
        for i in range(len(tokens) - size + 1)
        if tokens[i : i + size] == pattern
    ]


def longest_match(shards, context, longest):
    """The length of the longest suffix of `context` that stands in a shard, up to `longest`."""
    lengths = range(min(longest, len(context)), 0, -1)
    return next((m for m in lengths if matches(shards, context[-m:])), 0)


def continuations(shards, pattern, deepest, separator, eos):
    """{prefix: count} of what follows `pattern`, up to separators and not beyond `eos`."""
    counts = Counter()
    for s, i in matches(shards, pattern):
        begin = i + len(pattern)
        for end in range(begin + 1, min(begin + deepest, len(shards[s])) + 1):
            if shards[s][end - 1] == separator or eos in shards[s][begin : end - 1]:
                break
            counts[tuple(shards[s][begin:end])] += 1
    return counts


def top_prefixes(counts, budget):
    """(token, parent, depth, count) rows: the most frequent prefix left, then the shallower one,
    then that of the earlier parent, then that of the lower token."""
    rank = {(): -1}
    rows = []

    def order(prefix):
        return -counts[prefix], len(prefix), rank[prefix[:-1]], prefix[-1]

    while len(rows) < budget:
        open_ones = [p for p in counts if p not in rank and p[:-1] in rank]
        if not open_ones:
            break
        best = min(open_ones, key=order)
        rows.append((best[-1], rank[best[:-1]], len(best), counts[best]))
        rank[best] = len(rows) - 1
    return rows
