"""A plain twin of Cacheback's tables and of the frozen table it begins with."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque


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
