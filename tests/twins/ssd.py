"""Naive twins of the ssd drafter's kernels, and of its part for one origin of requests."""

from __future__ import annotations

from math import prod

import numpy as np
from twins.kernels import choose_most_frequent_nodes, continuations, longest_match, matches


def draft(shards, context, query, deepest, separator, eos, budget, trusted=bool):
    """The match's length and its most frequent continuations; one that nothing follows is
    shortened."""
    match = longest_match(shards, context, query)
    while match and trusted(match):
        counts = continuations(shards, context[-match:], deepest, separator, eos)
        if counts:
            return match, choose_most_frequent_nodes(counts, budget)
        match -= 1
    return match, []


def trust(record, length, lengths, prior):
    """`record` is {length: (hits, predicted)}."""
    at = min(length, lengths - 1)
    hits, predicted = record.get(at, (0.0, 0.0))
    return min((hits + prior * (at / (at + 3))) / (predicted + prior), 1.0)


def learn(tree, match, written, record, lengths, forget):
    """`tree` is [(token, parent, share)]; counts what was predicted and what came, by length."""
    at, whole = -1, 1.0
    for depth, token in enumerate(written):
        children = [(i, t, s) for i, (t, p, s) in enumerate(tree) if p == at]
        if not children:
            return
        key = min(match + depth, lengths - 1)
        hits, predicted = record.get(key, (0.0, 0.0))
        predicted = predicted * forget + sum(s / whole for _, _, s in children)
        came = [(i, s) for i, t, s in children if t == token]
        record[key] = (hits * forget + len(came), predicted)
        if not came:
            return
        at, whole = came[0]


def merge(first, second, budget):
    """Trees are [(token, parent, score)]: the best paths of both, each with its best score."""
    scores = {}
    for tree in (first, second):
        paths = []
        for token, parent, score in tree:
            paths.append((*(paths[parent] if parent >= 0 else ()), token))
            scores[paths[-1]] = max(scores.get(paths[-1], 0.0), score)
    best = sorted(scores, key=lambda path: -scores[path])[:budget]
    place = {(): -1, **{path: i for i, path in enumerate(best)}}
    return [(path[-1], place[path[:-1]], scores[path]) for path in best]


class Origin:
    """Drafts from one stream of requests; `record` holds their acceptance."""

    def __init__(self, rules, least, constants):
        self.query, self.deepest, self.separator, self.eos = rules
        self.least = least
        self.lengths, self.prior, self.forget, self.relent = constants
        self.record, self.drafted = {}, None

    def draft(self, stream, context, budget):
        """[(token, parent, score)]; nothing where there are no requests."""
        if not stream:
            return []
        bounds = self.deepest, self.separator, self.eos, budget
        match, rows = draft([stream], context, self.query, *bounds, self._trusted)
        total = len(matches([stream], context[-match:])) if match else 1
        place, tree, shares = {-1: -1}, [], []
        for i, (token, parent, depth, count) in enumerate(rows):
            score = count / total * prod(self._trust(match + d) for d in range(depth))
            if score >= self.least:
                place[i] = len(tree)
                tree.append((token, place[parent], float(np.float32(score))))
                shares.append((token, place[parent], float(np.float32(count / total))))
        self.drafted = shares, match
        return tree

    def learn(self, written):
        if self.drafted is not None:
            learn(*self.drafted, written, self.record, self.lengths, self.forget)
            self.drafted = None

    def _trust(self, length):
        return trust(self.record, length, self.lengths, self.prior)

    def _trusted(self, match):
        if self._trust(match) >= self.least:
            return True
        at = min(match, self.lengths - 1)
        hits, predicted = self.record.get(at, (0.0, 0.0))
        self.record[at] = hits * self.relent, predicted * self.relent
        return False
