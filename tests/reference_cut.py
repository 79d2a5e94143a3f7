"""Naive twins of engines.cut: everything kept, everything summed anew."""

from __future__ import annotations

LEVELS, BELIEF, FADE, LOWEST = 16, 4.0, 0.998, 0.005
MEMORY, ENOUGH, OUTLIER, CHEAPEST, DEAREST = 0.98, 24.0, 4.0, 0.01, 0.95


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


def line(passes):
    """(at no tokens, for each token) of weighted least squares over (tokens, seconds), by normal
    equations around the mean; None where that is not known."""
    weights = [MEMORY**age for age in range(len(passes))][::-1]
    total = sum(weights)
    if total < ENOUGH or len({tokens for tokens, _ in passes}) < 2:
        return None
    mean = sum(w * x for w, (x, _) in zip(weights, passes, strict=True)) / total
    height = sum(w * y for w, (_, y) in zip(weights, passes, strict=True)) / total
    pairs = list(zip(weights, passes, strict=True))
    slope = sum(w * (x - mean) * (y - height) for w, (x, y) in pairs) / sum(
        w * (x - mean) ** 2 for w, (x, _) in pairs
    )
    return height - slope * mean, slope


def least(passes, rows, otherwise):
    """`passes`: (tokens, seconds) of so many rows each, in order."""
    kept = []
    for tokens, seconds in passes:
        known = line(kept)
        if known is None or seconds <= OUTLIER * max(known[0] + known[1] * tokens, 0.0):
            kept.append((tokens, seconds))
    known = line(kept)
    if known is None or known[0] <= 0:
        return otherwise
    return min(max(rows * known[1] / known[0], CHEAPEST), DEAREST)
