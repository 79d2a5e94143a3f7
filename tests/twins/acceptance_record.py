"""Plain twins of what chooses a draft's size and what its scores have been worth."""

from __future__ import annotations

import math
from collections import Counter


def judged(draft, run):
    """The acceptance of a draft (token_ids, parents, scores, written), and the run after it.

    Every child of an accepted node is (share of its parent's score, run before it, whether it was
    accepted). A run is how many tokens in a row were drafted right.
    """
    tokens, parents, scores, written = draft
    found, at = [], -1
    for token in written:
        children = [i for i, parent in enumerate(parents) if parent == at]
        found += [(share_of(parents, scores, i), run, tokens[i] == token) for i in children]
        right = [i for i in children if tokens[i] == token]
        if not right:
            return found, 0 if children else run
        at, run = right[0], run + 1
    return found, run


def share_of(parents, scores, node):
    whole = scores[parents[node]] if parents[node] >= 0 else 1.0
    return min(scores[node] / whole, 1.0) if whole else 0.0


def corrected_scores(parents, scores, drafts, trust, run):
    """A node's chance is its parent's times its share times what such shares were worth in `drafts`

    (those before it; token_ids, parents, scores, written): (accepted + 1.5 trust * all) /
    (sum + 1.5), its product with the share at most 0.97, where all = (all accepted + 1.5) /
    (the sum of all shares times trust + 1.5).
    Shares are alike above 0.9, else by power of two; runs are 0, 1, 2, 3-4, 5-8 or more.
    """

    def kind(share, run):
        level = next((k for k in range(1, 7) if share > 0.5**k), 7)
        return 0 if share > 0.9 else level, sum(run > most for most in (0, 1, 2, 4, 8))

    expected, came_true, after = Counter(), Counter(), 0
    for draft in drafts:
        found, after = judged(draft, after)
        for share, before, right in found:
            expected[kind(share, before)] += share
            came_true[kind(share, before)] += right
    shares = math.fsum(share * trust[at[1]] for at, share in expected.items())
    every = (came_true.total() + 1.5) / (shares + 1.5)
    chances, depths = [], []
    for node, parent in enumerate(parents):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        share = share_of(parents, scores, node)
        at = kind(share, run + depths[node])
        worth = (came_true[at] + 1.5 * trust[at[1]] * every) / (expected[at] + 1.5)
        chances.append((chances[parent] if parent >= 0 else 1.0) * min(share * worth, 0.97))
    return chances


def tokens_in_rows(parents, chances, riding):
    """Tokens beside the root of a pass with the 0, 1, ... likeliest nodes (of equal ones, those
    that come first) whose paths are rows of one length, `riding` tokens before each."""
    order = sorted(range(len(parents)), key=lambda node: (-chances[node], node))
    found = []
    for count in range(len(order) + 1):
        kept = set(order[:count])
        leaves = kept - {parents[node] for node in kept}
        paths = [[]]
        for leaf in leaves:
            path = []
            while leaf >= 0:
                path.append(leaf)
                leaf = parents[leaf]
            paths.append(path)
        width = riding + 1 + max(map(len, paths))
        found.append(max(len(leaves), 1) * width - 1)
    return found


def best_chain(chances, length, least, floor):
    """The path worth most, (worth, path): all are tried. `chances(path, p_of_path)` -> {token: p};
    a token costs `least`, and is not looked at where its path's probability is below `floor`."""
    best = (0.0, ())
    open_paths = [((), 1.0, 0.0)]
    for _ in range(length):
        longer = []
        for path, score, worth in open_paths:
            for token, p in chances(path, score).items():
                if score * p >= floor:
                    longer.append(((*path, token), score * p, worth + score * p - least))
        best = max([best, *((worth, path) for path, _, worth in longer)], key=lambda b: b[0])
        open_paths = longer
    return best


def most_worthwhile(parents, chances, costs):
    """The best value, earned minus costs, of any subset closed under parents."""
    n = len(parents)
    best = -math.inf
    for bits in range(2**n):
        nodes = [node for node in range(n) if bits >> node & 1]
        if all(parents[node] < 0 or parents[node] in nodes for node in nodes):
            best = max(best, math.fsum(chances[node] for node in nodes) - costs[len(nodes)])
    return best
