"""Naive twins of kernels.prune_passages: n-grams as tuples, every worth summed anew."""

from __future__ import annotations


def grams(tokens, orders):
    """Every n-gram of these lengths, each as often as it stands there."""
    return [tuple(tokens[i : i + n]) for n in orders for i in range(len(tokens) - n + 1)]


def wanted(texts, orders, worth, adds):
    """{n-gram: what it is worth}"""
    found = {}
    for text in texts:
        for gram in grams(text, orders):
            found[gram] = found.get(gram, 0) + worth if adds else worth
    return found


def choose(worths, passages, joined, orders, budget):
    """Which passages to keep."""
    left = dict(worths)
    chosen = [False] * len(passages)

    def rate(tokens):
        return 65536 * sum(left.get(gram, 0) for gram in grams(tokens, orders)) // (len(tokens) + 1)

    def cost(i):
        beside = joined[i] and chosen[i - 1]
        before = i + 1 < len(passages) and joined[i + 1] and chosen[i + 1]
        return len(passages[i]) + 1 - beside - before

    while not all(chosen):
        rates = [0 if chosen[i] else rate(tokens) for i, tokens in enumerate(passages)]
        best = rates.index(max(rates))
        if rates[best] <= 0 or cost(best) > budget:
            break
        budget -= cost(best)
        chosen[best] = True
        for gram in grams(passages[best], orders):
            left[gram] = 0
    return chosen
