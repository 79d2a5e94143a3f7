"""Naive twins of engines.cut: everything kept, everything summed anew."""

from __future__ import annotations

LEVELS, BELIEF, FADE, LOWEST = 16, 4.0, 0.998, 0.005


def learnt(chains, least):
    """`chains`: (scores, accepted) in order. The lowest score of a fine grid from which on every
    score's tokens come true with probability `least`."""
    foreseen, true = [0.0] * LEVELS, [0.0] * LEVELS
    for age, (scores, accepted) in enumerate(reversed(chains)):
        for i, score in enumerate(scores):
            level = min(int(score * LEVELS), LEVELS - 1)
            foreseen[level] += score * FADE**age
            true[level] += (i < accepted) * FADE**age
    every = (sum(true) + BELIEF) / (sum(foreseen) + BELIEF)
    worth = [(t + BELIEF * every) / (f + BELIEF) for t, f in zip(true, foreseen, strict=True)]
    best = 1.0
    for step in range(9999, -1, -1):
        score = step / 10000
        level = min(int(score * LEVELS), LEVELS - 1)
        if score * worth[level] < least:
            return max(best, LOWEST)
        best = score
    return max(best, LOWEST)
