"""Naive twins of kernels.recycling and kernels.automaton."""

from __future__ import annotations

import itertools
from math import prod


def likeliest_shape(chances, nodes):
    """Every path of ranks with its chance, best first; of equal ones, any order."""
    deepest = range(1, nodes + 1)
    every = (itertools.product(range(len(chances)), repeat=depth) for depth in deepest)
    paths = [path for several in every for path in several]
    return sorted((prod(chances[r] for r in path) for path in paths), reverse=True)[:nodes]


def recycle(matrix, tokens, top_ids):
    """{token: candidates}, the later row's where a token comes twice."""
    return {**matrix, **{t: list(ids) for t, ids in zip(tokens, top_ids, strict=True)}}


def fill_tree(matrix, last, parents, ranks, budget):
    """The paths of tokens that the shape's first nodes stand for."""
    paths = {-1: (last,)}
    for node, (parent, rank) in enumerate(zip(parents, ranks, strict=True)):
        above = paths.get(parent)
        candidates = matrix.get(above[-1], []) if above else []
        if node < budget and rank < len(candidates):
            paths[node] = (*above, candidates[rank])
    return {path[1:] for path in paths.values() if len(path) > 1}


def longest_repeat(tokens, width):
    """The longest end of `tokens` that ends earlier too, and what follows where it does first."""
    size = len(tokens)
    for matched in range(size - 1, 0, -1):
        for end in range(matched, size):
            if tokens[end - matched : end] == tokens[size - matched :]:
                return matched, tokens[end : end + width]
    return 0, []


def first_match_in_corpus(shards, context, longest, width, separator, eos):
    """The same in the first shard that holds the match."""
    for matched in range(min(longest, len(context)), 0, -1):
        for tokens in shards:
            for end in range(matched, len(tokens) + 1):
                if tokens[end - matched : end] == context[len(context) - matched :]:
                    return matched, _line(tokens[end : end + width], separator, eos)
    return 0, []


def _line(tokens, separator, eos):
    found = list(itertools.takewhile(lambda token: token != separator, tokens))
    return found[: found.index(eos) + 1] if eos in found else found
