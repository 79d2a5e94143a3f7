"""The naive twin of ngramkit.kernels.blend.evidence."""

from __future__ import annotations

import math
from collections import Counter

ROWS, ORDERS, NODES, MOST = 1 << 14, 3, 8, 64
SURENESS = 4
FIRST_TRUST = (0.1, 0.3, 0.5, 0.7, 0.4, 0.4)  # bigrams, by order, siblings, skip-gram
SIBLINGS, SKIP_GRAM = 4, 5
MIN_PROBABILITY, RAISES, REST = 1e-4, (0.07, 0.04, 0.06, 0.03), 0.33
RECENT_TOP_K, FADES, TOP_K_ROWS, LEAST_RECENT_P = 0.06, 2, 4096, 1e-3
WORD = (1 << 64) - 1
SALT, BY_ORDER = 0x51ED270B76A3C9F1, 0xD6E8FEB86659FD93


def hashed(tokens, begin):
    """64 bits of tokens, newest first: two contexts may share a row, and the later has it then."""
    key = begin & WORD
    for token in tokens:
        key = (key ^ token) * 0x9E3779B97F4A7C15 & WORD
        key ^= key >> 29
    return key | 1


def of_order(context, order):
    return hashed(context[: -order - 1 : -1], order * BY_ORDER)


def skip_gram_of(context):
    return hashed([context[-1], context[-3], context[-4]], SALT)


class EvidenceTwin:
    """`bigram`: {token: {next: p}}."""

    def forget_evidence(self):
        self.rows, self.siblings, self.written, self.likeliest = {}, ((), {}), 0, 0
        self.recent_top_k, self.clock = {}, 0

    def learn_evidence(self, before, written, nodes, parents, tops):
        """Learn from a pass over `nodes`, the text's last token first, with the model's top-k of
        each, {token: p}. The text was `before` and goes on with `written`."""
        contexts = [before]
        for node in range(1, len(nodes)):
            contexts.append([*contexts[parents[node]], nodes[node]])
        for context, top in reversed(list(zip(contexts, tops, strict=True))):
            if len(context) >= 4:
                self._keep(skip_gram_of(context), top)
        for context, top in zip(contexts, tops, strict=True):
            for order in range(1, ORDERS + 1):
                if len(context) >= order:
                    self._keep(of_order(context, order), top)
        for token, p in ((t, p) for top in tops for t, p in top.items() if p > 0):
            level, row = math.log(p) + self.clock / FADES, token % TOP_K_ROWS
            if level > self.recent_top_k.get(row, (-math.inf, None))[0]:
                self.recent_top_k[row] = level, token
        self.clock += len(written)
        text = [*before, *written]
        self._count_likeliest(len(before), text, dict(zip(map(tuple, contexts), tops, strict=True)))
        end = contexts.index(text[:-1])
        others = [n for n in range(1, len(nodes)) if parents[n] == end and nodes[n] != text[-1]]
        weights = [1e-3 + tops[end].get(nodes[n], 0.0) for n in others[:NODES]]
        sums = Counter()
        for node, weight in zip(others[:NODES], weights, strict=True):
            for token, p in tops[node].items():
                if token in sums or len(sums) < MOST:
                    sums[token] += weight * p
        self.siblings = tuple(text[-3:]), {t: p / math.fsum(weights) for t, p in sums.items()}

    def _count_likeliest(self, begin, text, tops):
        """Count the written tokens that were verified, and those that were the likeliest."""
        for size in range(begin, len(text)):
            top = tops.get(tuple(text[:size]))
            if top is None:
                return
            self.written += 1
            self.likeliest += text[size] in top and top[text[size]] == max(top.values())

    def _keep(self, key, top):
        self.rows[(key >> 1) % ROWS] = key, top

    def _top_k(self, key):
        row_key, top = self.rows.get((key >> 1) % ROWS, (None, {}))
        return top if row_key == key else None

    def evidence(self, context):
        """(number of FIRST_TRUST, {token: p}) of each kind of evidence, in the order mixed in."""
        if self.siblings[1] and tuple(context[-3:]) == self.siblings[0]:
            yield SIBLINGS, self.siblings[1]
        orders = range(min(ORDERS, len(context)), 0, -1)
        known = [(order, self._top_k(of_order(context, order))) for order in orders]
        order, top = next(((o, t) for o, t in known if t is not None), (-1, {}))
        if order < ORDERS and len(context) >= 4:
            skip_gram = self._top_k(skip_gram_of(context))
            if skip_gram is not None:
                yield SKIP_GRAM, skip_gram
        if order < 0 and context[-1] in self.bigram:
            order, top = 0, self.bigram[context[-1]]
        if order >= 0:
            yield order, top

    def sharpened(self, context, p):
        """See kernels.blend.evidence.sharpen; the caller decides when."""
        one, two = (
            self._top_k(of_order(context, order)) if len(context) >= order else None
            for order in (1, 2)
        )
        skip_gram = self._top_k(skip_gram_of(context)) if len(context) >= 4 else None
        siblings = self.siblings[1] if tuple(context[-3:]) == self.siblings[0] else None
        raised = dict(p)
        for weight, top in zip(RAISES, (one, two, skip_gram, siblings), strict=True):
            for token in (top or {}).keys() & p.keys():
                raised[token] *= max(top[token] / MIN_PROBABILITY, 1.0) ** weight
        for level, token in self.recent_top_k.values():
            if token in p:
                recent_p = math.exp(level - self.clock / FADES)
                raised[token] *= max(recent_p / LEAST_RECENT_P, 1.0) ** RECENT_TOP_K
        whole = sum(raised.values()) + REST * max(1 - sum(p.values()), 0.01)
        return {t: v / whole for t, v in raised.items()}


def first_trust(number, sure):
    return FIRST_TRUST[number] * (1 - (sure + 0.5) / SURENESS)
