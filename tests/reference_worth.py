"""Naive twins of kernels.worth: n-grams as tuples in counters, every worth summed anew."""

from __future__ import annotations

from collections import Counter


def grams(tokens, orders):
    """Every n-gram of these lengths, each as often as it stands there."""
    return Counter(tuple(tokens[i : i + n]) for n in orders for i in range(len(tokens) - n + 1))


def choose(wanted, passages, joined, orders, shares, budget):
    """Which passages to keep; `wanted` and the n-grams held so far are counters."""
    held = Counter()
    chosen = [False] * len(passages)

    def rate(tokens):
        worth = sum(
            times
            * wanted[gram]
            * shares[orders.index(len(gram))][min(held[gram], len(shares[0]) - 1)]
            for gram, times in grams(tokens, orders).items()
        )
        return worth // (len(tokens) + 1)

    def cost(i):
        beside = joined[i] and chosen[i - 1]
        before = i + 1 < len(passages) and joined[i + 1] and chosen[i + 1]
        return len(passages[i]) + 1 - beside - before

    left = budget
    while not all(chosen):
        rates = [0 if chosen[i] else rate(tokens) for i, tokens in enumerate(passages)]
        best = rates.index(max(rates))
        if rates[best] <= 0 or cost(best) > left:
            break
        left -= cost(best)
        chosen[best] = True
        held += Counter({g: n for g, n in grams(passages[best], orders).items() if wanted[g]})
    return chosen
