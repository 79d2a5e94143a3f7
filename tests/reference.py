"""Naive twins of every kernel: what each one means, in the plainest Python."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque


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


def judged(draft, run):
    """What a text says of a draft (token_ids, parents, scores, written), and the run after it.

    Every child of a node that came true is (share of its parent's score, run before it, whether it
    came true). A run is how many tokens in a row were foreseen.
    """
    tokens, parents, scores, written = draft
    found, at = [], -1
    for token in written:
        children = [i for i, parent in enumerate(parents) if parent == at]
        found += [(share_of(parents, scores, i), run, tokens[i] == token) for i in children]
        right = [i for i in children if tokens[i] == token]
        if not right:
            return found, 0 if children else run
        at, run = right[0], run + 1
    return found, run


def share_of(parents, scores, node):
    whole = scores[parents[node]] if parents[node] >= 0 else 1.0
    return min(scores[node] / whole, 1.0) if whole else 0.0


def corrected_scores(parents, scores, drafts, trust, run):
    """A node's chance is its parent's times its share times what such shares were worth in `drafts`

    (those before it; token_ids, parents, scores, written): (came true + 1.5 trust) / (sum + 1.5).
    Shares are alike above 0.9, else by power of two; runs are 0, 1, 2, 3-4, 5-8 or more.
    """

    def kind(share, run):
        level = next((k for k in range(1, 7) if share > 0.5**k), 7)
        return 0 if share > 0.9 else level, sum(run > most for most in (0, 1, 2, 4, 8))

    expected, came_true, after = Counter(), Counter(), 0
    for draft in drafts:
        found, after = judged(draft, after)
        for share, before, right in found:
            expected[kind(share, before)] += share
            came_true[kind(share, before)] += right
    chances, depths = [], []
    for node, parent in enumerate(parents):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        share = share_of(parents, scores, node)
        at = kind(share, run + depths[node])
        worth = (came_true[at] + 1.5 * trust[at[1]]) / (expected[at] + 1.5)
        chances.append((chances[parent] if parent >= 0 else 1.0) * min(share * worth, 1.0))
    return chances


def most_worthwhile(parents, chances, seconds, rate):
    """The best value, earned minus the time's worth, of any subset closed under parents."""
    n = len(parents)
    best = -math.inf
    for bits in range(2**n):
        nodes = [node for node in range(n) if bits >> node & 1]
        if all(parents[node] < 0 or parents[node] in nodes for node in nodes):
            earned = math.fsum(chances[node] for node in nodes)
            best = max(best, earned - rate * seconds[len(nodes)])
    return best


def tree_layout(parents):
    """Depth of the root and every node, and for each of them the rows on its path to the root."""
    depths, paths = [0], [{0}]
    for i, parent in enumerate(parents):
        depths.append(depths[parent + 1] + 1)
        paths.append(paths[parent + 1] | {i + 1})
    return depths, paths


def frozen_table(documents, leader_len, leaders, follower_len, followers):
    """{leader: (count, [(follower, count), ...])}, leaders in order, followers best first.

    What is counted: windows of leader and follower together, inside one document.
    """
    length = leader_len + follower_len
    windows = Counter(
        tuple(document[i : i + length])
        for document in documents
        for i in range(len(document) - length + 1)
    )
    totals, found = Counter(), {}
    for window, count in windows.items():
        totals[window[:leader_len]] += count
        found.setdefault(window[:leader_len], []).append((window[leader_len:], count))
    kept = sorted(sorted(totals, key=lambda leader: (-totals[leader], leader))[:leaders])
    best = {leader: sorted(found[leader], key=lambda f: (-f[1], f[0])) for leader in kept}
    return {leader: (totals[leader], best[leader][:followers]) for leader in kept}


class Cacheback:
    """The dual tables with OrderedDicts, the most recent entry last."""

    def __init__(self, frozen, leader_len, follower_len, leaders, followers, deeper):
        self.frozen = frozen  # as `frozen_table` gives it
        self.leader_len, self.follower_len = leader_len, follower_len
        self.leaders, self.followers, self.deeper = leaders, followers, deeper
        self.start([])

    def start(self, prompt):
        self.table, self.context, self.learnt = OrderedDict(), [], 0
        self.accept(prompt)

    def accept(self, tokens):
        self.context += tokens
        while self.learnt + self.leader_len + self.follower_len <= len(self.context):
            middle = self.learnt + self.leader_len
            leader = tuple(self.context[self.learnt : middle])
            self._insert(leader, tuple(self.context[middle : middle + self.follower_len]))
            self.learnt += 1

    def _insert(self, leader, follower):
        if leader not in self.table and len(self.table) == self.leaders:
            self.table.popitem(last=False)
        row = self.table.setdefault(leader, OrderedDict())
        self.table.move_to_end(leader)
        if follower not in row and len(row) == self.followers:
            row.popitem(last=False)
        row[follower] = True
        row.move_to_end(follower)

    def draft(self, budget):
        """[(token, parent, "dynamic" or "frozen"), ...]"""
        nodes, queue = [], deque([-1])
        done = {-1}
        if len(self.context) < self.leader_len or budget < 1:
            return nodes
        first_level = budget - min(self.deeper, (budget + 1) // 6)
        while queue and len(nodes) < budget:
            end = queue.popleft()
            limit = first_level if end == -1 else budget
            for follower, source in self._query(self._path(nodes, end)):
                if len(nodes) >= limit:
                    break
                last = self._add(nodes, limit, end, follower, source)
                if last not in done:
                    done.add(last)
                    queue.append(last)
        return nodes

    def _path(self, nodes, end):
        path = []
        while end >= 0:
            path.insert(0, nodes[end][0])
            end = nodes[end][1]
        return tuple((self.context + path)[-self.leader_len :])

    def _query(self, leader):
        found = []
        if leader in self.table:
            self.table.move_to_end(leader)
            found += [(follower, "dynamic") for follower in reversed(self.table[leader])]
        frozen = self.frozen.get(leader, (0, []))[1]
        return found + [(follower, "frozen") for follower, _ in frozen]

    def _add(self, nodes, limit, parent, follower, source):
        for token in follower:
            known = [i for i, node in enumerate(nodes) if node[:2] == (token, parent)]
            if not known:
                if len(nodes) == limit:
                    return parent
                nodes.append((token, parent, source))
                known = [len(nodes) - 1]
            parent = known[0]
        return parent


def frequent_rows(tokens, begins, width, most):
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


def tree_of_rows(rows, budget):
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


def best_chain(chances, length, least, floor):
    """The path worth most, (worth, path): all are tried. `chances(path, p_of_path)` -> {token: p};
    a token costs `least`, and is not looked at where its path's probability is below `floor`."""
    best = (0.0, ())
    open_paths = [((), 1.0, 0.0)]
    for _ in range(length):
        longer = []
        for path, score, worth in open_paths:
            for token, p in chances(path, score).items():
                if score * p >= floor:
                    longer.append(((*path, token), score * p, worth + score * p - least))
        best = max([best, *((worth, path) for path, _, worth in longer)], key=lambda b: b[0])
        open_paths = longer
    return best
