"""The naive twin of blend, with dictionaries and lists."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from twins.copied_text import Copies
from twins.counts import LEVELS, Counting
from twins.evidence import SURENESS, EvidenceTwin, first_trust

COLUMNS = 2 * len(LEVELS)
REACH, LEAST, FLOOR, MARGIN, LONG_AGO = 0.35, 1e-4, 2e-3, 0.5, 4096
CONTINUATIONS, PRIOR, UNSEEN = 32, 10.0, 1e-6
FIRST_PAST_TRUST = (0.02, 0.06, 0.12, 0.25, 0.4, 0.7)


class Twin(Counting, Copies, EvidenceTwin):
    """`stores`: of each datastore, its shards: token lists with separators. `weights`: the
    seven arrays.

    `frozen`: {leader: (count, {follower: count})}. `bigram`: {token: {next: p}}. `past`: token
    lists with separators of the past requests, those at start and those since.
    """

    def __init__(
        self, stores, vocabulary, weights, scan, sample, hops, eos, frozen=None, bigram=None,
        past=((), ()),
    ):  # fmt: skip
        self.stores, self.vocabulary = stores, vocabulary
        self.weights = [each.astype(float) for each in weights]
        self.scan, self.sample, self.hops, self.eos = scan, sample, hops, eos
        self.frozen, self.bigram, self.past = frozen or {}, bigram or {}, past
        self.forget_evidence()
        self.forget_copies()
        self.accounts = {}  # kind of evidence -> [times right, times used]
        self.predictions = {}  # of the last draft, by path
        everything = Counter(t for shards in stores for shard in shards for t in shard)
        for leader, (count, _) in self.frozen.items():
            everything[leader[-1]] += count
        total = sum(everything.values())
        self.shares = {t: math.log1p(n / total * 1e6) for t, n in everything.items()}

    def begin(self, prompt, answer=None, references=()):
        """Begin a request: half of the trust in past requests is kept."""
        first = {
            kind: PRIOR * FIRST_PAST_TRUST[kind[1]] for kind in self.accounts if kind[0] in (0, 1)
        }
        self.accounts = {
            kind: [(self.accounts[kind][0] + right) / 2, (self.accounts[kind][1] + PRIOR) / 2]
            for kind, right in first.items()
        }
        self.reference_text = [t for text in references for t in (*text, None)]
        self.begin_copies(prompt, answer)

    def draft(self, live, budget):
        """{path: score}, grown best first."""
        waiting, tree, node, score = [], {}, (), 1.0
        self.predictions, self.copied_at = {}, {}
        while len(tree) < budget:
            room = budget - len(tree)
            floor = waiting[-1][0] if len(waiting) >= room else LEAST
            if score * REACH > floor and (not node or node[-1] != self.eos):
                self.predictions[node] = self.predict(live, node, floor / score)
                for token, p in sorted(self.predictions[node].items()):
                    if score * p >= LEAST:
                        waiting.append((score * p, (*node, token)))
                waiting = sorted(waiting, key=lambda w: -w[0])[:room]
            if not waiting:
                break
            score, node = waiting.pop(0)
            tree[node] = score
        return tree

    def predict(self, live, path, least):
        """{token: p}"""
        context = [*live, *path]
        p = self._by_counts(live, context, least)
        for origin in (0, 1):
            p = self._mixed(p, *self._past(origin, context))
        for number, theirs in self.evidence(context):
            p = self._mixed(p, _kind(number, p), theirs)
        if 0 < 9 * self.written <= 10 * self.likeliest:
            p = self.sharpened(context, p)
        return self.mix_copies(p, self.copies_of(live, path))

    def judge(self, live, written):
        """Credit past requests, evidence and copies with the token after `live`."""
        p = self._by_counts(live, live, 0.0)
        for origin in (0, 1):
            kind, theirs = self._past(origin, live)
            self._credit(kind, p, theirs, written)
            p = self._mixed(p, kind, theirs)
        for number, theirs in self.evidence(live):
            kind = _kind(number, p)
            self._credit(kind, p, theirs, written)
            p = self._mixed(p, kind, theirs)
        if 0 < 9 * self.written <= 10 * self.likeliest:
            p = self.sharpened(live, p)
        self.copied_at = {}
        self.copied = self.copies_of(live, ())
        self.mix_copies(p, self.copied, written)

    def _mixed(self, p, kind, theirs):
        if kind is None:
            return p
        right, used = self._account(kind)
        trust = right / used
        both = p.keys() | theirs.keys()
        return {t: (1 - trust) * p.get(t, 0.0) + trust * theirs.get(t, 0.0) for t in both}

    def _credit(self, kind, p, theirs, written):
        if kind is None or written >= self.vocabulary:
            return
        account = self._account(kind)
        trust = account[0] / account[1]
        theirs_p, ours = (max(each.get(written, 0.0), UNSEEN) for each in (theirs, p))
        account[0] += trust * theirs_p / (trust * theirs_p + (1 - trust) * ours)
        account[1] += 1

    def _account(self, kind):
        first = first_trust(*kind[1:]) if kind[0] == "evidence" else FIRST_PAST_TRUST[kind[1]]
        return self.accounts.setdefault(kind, [PRIOR * first, PRIOR])

    def _past(self, origin, context):
        """Successors of the longest past match; the kind is its length and frequency."""
        columns = [Counter() for _ in LEVELS]
        totals, distinct = [0.0] * len(LEVELS), [0.0] * len(LEVELS)
        first = self._longest_order(self.past[origin], context)
        self._datastores(self.past[origin], context, columns, totals, distinct, first)
        levels = [level for level, n in enumerate(distinct) if n]
        if not levels:
            return None, {}
        level = levels[-1]
        total = totals[level]
        found = {t: n / total for t, n in columns[level].items() if n >= total / CONTINUATIONS}
        return (origin, level, 0 if total < 2 else 1 if total < 4 else 2), found

    def _by_counts(self, live, context, least):
        columns = [Counter() for _ in range(COLUMNS)]
        totals, distinct = [0.0] * COLUMNS, [0.0] * COLUMNS
        shards = [shard for store in self.stores for shard in store]
        self._datastores(shards, context, columns, totals, distinct)
        self._frozen(context, columns, totals, distinct)
        newest = self._live(live, context, columns, totals, distinct)
        gates, none = self._gates(totals, distinct, len(live))
        used = [c for c in range(COLUMNS) if totals[c]]
        tokens = set().union(*columns)
        mixed = {t: sum(gates[c] * columns[c][t] / totals[c] for c in used) for t in tokens}
        seen_live, pairs = columns[COLUMNS // 2], columns[1]
        p = {}
        for t, value in mixed.items():
            p[t] = value
            if value >= max(FLOOR, least * MARGIN):
                p[t] = self._corrected(t, value, live, newest, seen_live[t] > 0, pairs[t] > 0)
        whole = max(1 - sum(mixed.values()), 1e-6) * math.exp(none) + sum(p.values())
        return {t: value / whole for t, value in p.items()}

    def _gates(self, totals, distinct, size):
        gate_in, gate_bias, gate_out, gate_out_bias = self.weights[:4]
        x = [math.log1p(t) * 0.25 for t in totals]
        x += [math.log1p(d) * 0.33 for d in distinct]
        x += [min(d / (t + 1), 1) for d, t in zip(distinct, totals, strict=True)]
        x.append(math.log1p(size) * 0.14)
        hidden = np.maximum(gate_bias + np.array(x) @ gate_in, 0)
        out = (gate_out_bias + hidden @ gate_out).tolist()
        powers = [math.exp(o) if t else 0.0 for o, t in zip(out, [*totals, 1], strict=False)]
        return [power / sum(powers) for power in powers], out[COLUMNS + 1]

    def _corrected(self, token, p, live, newest, seen_live, seen_pair):
        token_in, token_bias, token_out = self.weights[4:]
        size, seen = len(live), live.count(token)
        age = size - max(i for i, t in enumerate(live) if t == token) if seen else LONG_AGO
        since = size - newest[token] if token in newest else LONG_AGO
        x = [
            math.log(p) * 0.25,
            self.shares.get(token, 0.0) * 0.2,
            math.log1p(seen) * 0.5,
            math.log1p(age) * 0.12,
            math.log1p(since) * 0.12,
            float(seen_live),
            float(seen_pair),
        ]
        hidden = np.maximum(token_bias + np.array(x) @ token_in, 0)
        return math.exp(hidden @ token_out[:-1] + math.log(p) * token_out[-1])


def _kind(number, p):
    """The account of a kind of evidence: its number, and how sure the prediction before it is."""
    sure = min(int(max(p.values(), default=0.0) * SURENESS), SURENESS - 1)
    return "evidence", number, sure
