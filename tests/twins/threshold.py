"""A naive twin of engines.score_threshold.ScoreThreshold: everything is kept and summed anew."""

from __future__ import annotations

LEVELS, BELIEF, FADE, LOWEST = 16, 4.0, 0.998, 0.005


def learnt(steps, cost):
    """Return the lowest score of a fine grid from which on every score's tokens are accepted with
    probability `cost`. `steps`: lists of (scores, accepted), in order; all chains of a step are as
    old as those of later steps are many."""
    expected, right = [0.0] * LEVELS, [0.0] * LEVELS
    age = 0
    for step in reversed(steps):
        for scores, accepted in step:
            for i, score in enumerate(scores):
                level = min(int(score * LEVELS), LEVELS - 1)
                expected[level] += score * FADE**age
                right[level] += (i < accepted) * FADE**age
        age += len(step)
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
