"""Naive twins of every kernel: what each one means, in the plainest Python."""

from __future__ import annotations

import math
from collections import Counter


def suffix_array(tokens):
    """Positions in the order of their suffixes; a list that ends first is the smaller."""
    return sorted(range(len(tokens)), key=lambda i: tokens[i:])


def request_order(tokens, separator):
    """Positions in the order of their suffixes, compared up to a separator; of equals the earlier
    one first."""
    return sorted(range(len(tokens)), key=lambda i: (tokens[i : tokens.index(separator, i) + 1], i))


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


def choose_most_frequent_nodes(counts, budget):
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


def tree_paths(parents):
    """Every path from the root (-1) to a leaf, in the order of the leaves."""
    nodes = range(-1, len(parents))
    leaves = [node for node in nodes if node not in parents]
    found = []
    for leaf in leaves:
        path = [leaf]
        while path[0] >= 0:
            path.insert(0, parents[path[0]])
        found.append(path)
    return found


def best_path(parents, scores, most):
    """Of all paths from the root, cut to `most` nodes, the one with the largest sum of scores."""
    heads = [path[1 : 1 + end] for path in tree_paths(parents) for end in range(most + 1)]
    worth = lambda path: (sum(scores[node] for node in path), len(path), -max(path, default=0))  # noqa: E731
    return max(heads, key=worth)


def tree_layout(parents):
    """Depth of the root and every node, and for each of them the rows on its path to the root."""
    depths, paths = [0], [{0}]
    for i, parent in enumerate(parents):
        depths.append(depths[parent + 1] + 1)
        paths.append(paths[parent + 1] | {i + 1})
    return depths, paths


def most_frequent_rows(tokens, begins, width, most):
    """[(row, count)], the most frequent first, ties to the later one."""
    seen, latest = Counter(), {}
    for begin in begins:
        row = tuple(tokens[begin : begin + width])
        seen[row] += 1
        latest[row] = begin
    ranked = sorted(seen, key=lambda row: (-seen[row], -latest[row]))
    return [(row, seen[row]) for row in ranked[:most]]


def bigram_rows(next_tokens, log_probs, extended, last, most, width, eos):
    """[(row, probabilities up to each of its tokens)], rows of the table cut behind `eos`."""
    rows = []
    for j in range(min(most, len(next_tokens[last]))):
        row, chances, chance, before = [], [], 1.0, last
        for depth in range(min(width, len(extended[last][j]))):
            token = extended[last][j][depth]
            held = list(next_tokens[before])
            rank = held.index(token) if token in held else len(held) - 1
            chance *= math.exp(log_probs[before][j if depth == 0 else rank])
            row.append(token)
            chances.append(chance)
            if token == eos:
                break
            before = token
        rows.append((row, chances))
    return rows


def best_nodes_of_rows(rows, budget):
    """{path: (score, source)} of the best nodes; rows are [(tokens, gains, source)]."""
    scores, sources, order = {}, {}, {}
    for tokens, gains, source in rows:
        for depth, gain in enumerate(gains):
            path = tuple(tokens[: depth + 1])
            scores[path] = scores.get(path, 0.0) + gain
            sources.setdefault(path, source)
            order.setdefault(path, len(order))
    best = sorted(scores, key=lambda path: (-scores[path], order[path]))[:budget]
    return {path: (scores[path], sources[path]) for path in best}


def ngram_cache(words):
    """The records of llama.cpp's n-gram cache: (key, pairs) each; None where one makes no sense."""
    records, at = [], 0
    while at < len(words):
        key, rest = words[at : at + 4], words[at + 4 :]
        used = [token for token in key if token != -1]
        if not used or min(used) < 0 or key != used + [-1] * (4 - len(used)) or not rest:
            return None
        pairs = [rest[i : i + 2] for i in range(1, 1 + 2 * max(rest[0], 0), 2)]
        if not pairs or len(pairs[-1]) < 2 or any(t < 0 or c < 1 for t, c in pairs):
            return None
        records.append((used, pairs))
        at += 5 + 2 * len(pairs)
    return records


def bad_leaders(vocabulary, leaders, leader_counts, offsets, followers, follower_counts):
    """The rows of a frozen table of which something does not hold; arguments as lists."""
    bad = []
    for row, leader in enumerate(leaders):
        span = range(offsets[row], offsets[row + 1])
        own = [tuple(followers[i]) for i in span]
        keys = [(-follower_counts[i], tuple(followers[i])) for i in span]
        whole = (
            all(token < vocabulary for token in (*leader, *(t for f in own for t in f)))
            and (row == 0 or tuple(leaders[row - 1]) < tuple(leader))
            and all(follower_counts[i] > 0 for i in span)
            and sum(follower_counts[i] for i in span) <= leader_counts[row]
            and keys == sorted(keys)
            and len(set(own)) == len(own)
        )
        if not whole:
            bad.append(row)
    return bad


def merged_tables(tables, leaders, followers):
    """{leader: (count, [(follower, count), ...])} in order, of several {leader: (count, {follower:
    count})}: counts added, then the most frequent of both."""
    counts, seen = Counter(), {}
    for table in tables:
        for leader, (count, after) in table.items():
            counts[leader] += count
            seen.setdefault(leader, Counter()).update(after)
    kept = sorted(sorted(counts, key=lambda leader: (-counts[leader], leader))[:leaders])
    return {
        leader: (
            counts[leader],
            sorted(seen[leader].items(), key=lambda pair: (-pair[1], pair[0]))[:followers],
        )
        for leader in kept
    }
