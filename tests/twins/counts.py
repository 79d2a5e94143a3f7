"""How blend's naive twin counts what followed in its sources."""

from __future__ import annotations

from collections import Counter

LEVELS, DEPTH, KEPT = (1, 2, 3, 4, 6, 8), 8, 32
SPARSER = (1, 1, 1, 2, 4, 4, 4, 4, 4)


class Counting:
    """What followed the last tokens, by column: of frozen tables, datastores and the live context.

    `columns` are Counters of successors, `totals` and `distinct` what they sum up; `found` holds
    positions by shard. The attributes are the twin's.
    """

    def _frozen(self, context, columns, totals, distinct):
        for level, order in enumerate(LEVELS):
            for leader, (count, followers) in self.frozen.items():
                more = order - len(leader)
                if more < 0 or tuple(context[-order:][: len(leader)]) != leader:
                    continue
                rest, found = tuple(context[-order:][len(leader) :]), Counter()
                for follower, times in followers.items():
                    if len(follower) > more and follower[:more] == rest:
                        found[follower[more]] += times
                if found:
                    totals[level] += count if more == 0 else sum(found.values())
                    distinct[level] += len(found)
                    columns[level] += found

    def _datastores(self, shards, context, columns, totals, distinct, first=1):
        """`first`: the order to begin with."""
        level = sum(reached <= first for reached in LEVELS) - 1
        for order in range(first, min(DEPTH, len(context)) + 1):
            found = [self._suffixes(shard, context[-order:]) for shard in shards]
            width = sum(map(len, found))
            if width == 0:
                return
            if width <= self.scan:
                self._read(shards, found, order, context, level, columns, totals, distinct)
                return
            if order in LEVELS:
                runs = self._sampled(shards, found, order, width)
                estimates = Counter()
                for token, estimate in runs:
                    estimates[token] += estimate
                totals[level] += width
                distinct[level] += len(estimates)
                for token, estimate in estimates.most_common(KEPT):
                    columns[level][token] += estimate
                level += 1

    def _longest_order(self, shards, context):
        """The order of the longest match that is counted; 1 if there is none."""
        longest = 1
        for order in range(1, min(DEPTH, len(context)) + 1):
            width = sum(len(self._suffixes(shard, context[-order:])) for shard in shards)
            if 0 < width <= self.scan:
                return order
            if width > 0 and order in LEVELS:
                longest = order
        return longest

    @staticmethod
    def _suffixes(shard, pattern):
        n = len(pattern)
        hits = [i for i in range(len(shard) - n) if shard[i : i + n] == pattern]
        return sorted(hits, key=lambda i: shard[i:])

    def _read(self, shards, found, order, context, level, columns, totals, distinct):
        recent = context[::-1][:DEPTH]
        for shard, positions in zip(shards, found, strict=True):
            for position in positions:
                match, before = order, position - 1
                while match < len(recent) and before >= 0 and shard[before] == recent[match]:
                    match, before = match + 1, before - 1
                token = shard[position + order]
                for c in range(level, sum(reached <= match for reached in LEVELS)):
                    self._count(token, c, columns, totals, distinct)

    def _count(self, token, c, columns, totals, distinct):
        totals[c] += 1
        if token < self.vocabulary:
            distinct[c] += columns[c][token] == 0
            columns[c][token] += 1

    def _sampled(self, shards, found, order, width):
        """[(token, estimated count)], run by run, shard by shard."""
        flat = [(s, position) for s, positions in enumerate(found) for position in positions]
        runs, last, taken = [], None, self.sample // SPARSER[order]
        for i in range(taken):
            s, position = flat[i * width // taken]
            token = shards[s][position + order]
            if (s, token) != last:
                runs.append([token, 0.0])
            last = (s, token)
            runs[-1][1] += width / taken
        return [run for run in runs if run[0] < self.vocabulary]

    def _live(self, live, context, columns, totals, distinct):
        newest, left = {}, self.hops
        recent = context[::-1][:DEPTH]
        for position in range(len(live) - 2, -1, -1):
            if live[position] != context[-1] or not left:
                continue
            left -= 1
            match, before = 1, position - 1
            while match < len(recent) and before >= 0 and live[before] == recent[match]:
                match, before = match + 1, before - 1
            token = live[position + 1]
            newest.setdefault(token, position)
            for c in range(sum(reached <= match for reached in LEVELS)):
                self._count(token, len(LEVELS) + c, columns, totals, distinct)
        return newest
