"""A naive twin of engines.threshold: everything is kept and summed anew."""

from __future__ import annotations

LEVELS, BELIEF, FADE, LOWEST = 16, 4.0, 0.998, 0.005


def learnt(chains, cost):
    """Return the lowest score of a fine grid from which on every score's tokens are accepted with
    probability `cost`. `chains`: (scores, accepted) in order."""
    expected, right = [0.0] * LEVELS, [0.0] * LEVELS
    for age, (scores, accepted) in enumerate(reversed(chains)):
        for i, score in enumerate(scores):
            level = min(int(score * LEVELS), LEVELS - 1)
            expected[level] += score * FADE**age
            right[level] += (i < accepted) * FADE**age
    every = (sum(right) + BELIEF) / (sum(expected) + BELIEF)
    pairs = zip(right, expected, strict=True)
    worth = [(r + BELIEF * every) / (e + BELIEF) for r, e in pairs]
    best = 1.0
    for step in range(9999, -1, -1):
        score = step / 10000
        level = min(int(score * LEVELS), LEVELS - 1)
        if score * worth[level] < cost:
            return max(best, LOWEST)
        best = score
    return max(best, LOWEST)
