"""The naive twin of blend's experts: its datastores and its frozen table, by their trust."""

from __future__ import annotations

import math

RATE, RECENT, FARTHEST, LIKELY, LEAST_ODDS, UNSEEN = 0.5, 0.05, 2.0, 0.05, 1e-3, 1e-6
LEVELS = 6


class Weighing:
    """`trust` and `share` by expert. The attributes are the twin's."""

    def _used(self, score):
        """The experts that a node of this score uses."""
        best = max(range(len(self.share)), key=lambda e: (self.share[e], -e))
        near = [trust >= self.trust[best] - FARTHEST for trust in self.trust]
        return [e for e in range(len(near)) if e == best or (near[e] and score >= LIKELY)]

    def _weight(self, e, gates):
        own = sum(gates[:LEVELS])
        odds = (own + LEAST_ODDS) / (max(1 - own, 0) + LEAST_ODDS)
        return odds * math.exp(self.trust[e])

    def _weigh(self, weights, mixtures, written):
        """Learn from the written token: `weights` [experts], `mixtures` [{token: p}]."""
        if len(weights) == 1:
            return
        came = [w * (UNSEEN + m.get(written, 0.0)) for w, m in zip(weights, mixtures, strict=True)]
        for e, weight in enumerate(weights):
            explained = came[e] / sum(came)
            self.trust[e] += RATE * (explained - weight / sum(weights))
            self.share[e] += RECENT * (explained - self.share[e])
