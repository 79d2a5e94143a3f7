"""Drafters that know the answer, and lie about some of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ngramkit.decode.sampling import GreedyChoice, ProcessedChoice, Sampling, SeededDraw
from ngramkit.drafters.base import DraftTree, TokenArray


def warpers(sampling: Sampling) -> LogitsProcessorList:
    """As transformers prepares them."""
    found = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    return found


def choice_of(sampling: Sampling) -> GreedyChoice | ProcessedChoice:
    """How a model without a generation config chooses."""
    if sampling.greedy:
        return GreedyChoice()
    return ProcessedChoice(
        warpers(sampling), torch.zeros(1, 1).long(), SeededDraw(sampling.seed).draw
    )


def tree_of(pairs: Sequence[tuple[int, int]]) -> DraftTree:
    """From (token, parent) pairs."""
    tokens = np.array([token for token, _ in pairs], np.int32)
    parents = np.array([parent for _, parent in pairs], np.int32)
    return DraftTree(
        tokens, parents, np.zeros(len(pairs), np.float32), np.zeros(len(pairs), np.uint8)
    )


class NoisyOracle:
    """Grows random trees that hold some of `answer`'s next tokens among wrong ones.

    Wrong siblings come before and after right ones, right tokens stand under wrong parents, chains
    run deep into nonsense, and every budget is used up.
    """

    def __init__(self, answer: Sequence[int], vocabulary: int, seed: int = 0) -> None:
        self._answer = [int(token) for token in answer]
        self._vocabulary = vocabulary
        self._random = np.random.default_rng(seed)
        self.accepted: list[int] = []
        self.finished = 0

    def start(self, prompt: TokenArray) -> None:
        self.accepted = []

    def draft(self, budget: int) -> DraftTree:
        random = self._random
        coming = self._answer[len(self.accepted) :]
        pairs: list[tuple[int, int]] = []
        on_path, depth = [-1], 0  # nodes of the true path so far, the root first
        depths = {-1: 0}
        while len(pairs) < budget:
            right = random.random() < 0.5 and depth < len(coming)
            if right:
                pair = (coming[depth], on_path[-1])
            else:
                parent = int(random.integers(-1, len(pairs)))
                known = depths[parent] < len(coming) and random.random() < 0.3
                wild = int(random.integers(self._vocabulary))
                pair = (coming[depths[parent]] if known else wild, parent)
                right = parent == on_path[-1] and depth < len(coming) and pair[0] == coming[depth]
            if pair in pairs:
                if random.random() < 0.1:
                    break
                continue
            pairs.append(pair)
            depths[len(pairs) - 1] = depths[pair[1]] + 1
            if right:
                on_path.append(len(pairs) - 1)
                depth += 1
        tree = tree_of(pairs)
        tree.check()
        return tree

    def accept(self, tokens: TokenArray, evidence: object = None) -> None:
        self.accepted += tokens.tolist()

    def finish(self) -> None:
        self.finished += 1


class WideOracle:
    """The answer's next tokens in a chain under the last of `siblings`; all others are wrong."""

    def __init__(self, answer: Sequence[int], siblings: int = 60) -> None:
        self._answer = [int(token) for token in answer]
        self._siblings = siblings
        self._written = 0

    def start(self, prompt: TokenArray) -> None:
        self._written = 0

    def draft(self, budget: int) -> DraftTree:
        coming = self._answer[self._written :][: max(budget - self._siblings + 1, 0)]
        if not coming:
            return DraftTree.empty()
        others = (token for token in range(1, budget + 2) if token != coming[0])
        pairs = [(next(others), -1) for _ in range(self._siblings - 1)] + [(coming[0], -1)]
        for token in coming[1:]:
            pairs.append((token, len(pairs) - 1))
        tree = tree_of(pairs)
        tree.check()
        return tree

    def accept(self, tokens: TokenArray, evidence: object = None) -> None:
        self._written += len(tokens)

    def finish(self) -> None: ...


class ChainOracle:
    """The answer's next tokens, wrong from some node on, and a lesser wrong path beside them."""

    def __init__(self, answer: Sequence[int], seed: int = 0) -> None:
        self._answer = [int(token) for token in answer]
        self._random = np.random.default_rng(seed)
        self._written = 0

    def start(self, prompt: TokenArray) -> None:
        self._written = 0

    def draft(self, budget: int) -> DraftTree:
        coming = self._answer[self._written :][: max(budget - 2, 0)]
        if not coming:
            return DraftTree.empty()
        right = int(self._random.integers(0, 2 * len(coming)))
        chain = [token ^ (place >= right) for place, token in enumerate(coming)]
        pairs = [(token, place - 1) for place, token in enumerate(chain)]
        pairs += [(coming[0] ^ 2, -1), (5, len(pairs))]
        scores = [*(0.9**place for place in range(1, len(chain) + 1)), 0.05, 0.01]
        tree = tree_of(pairs)
        tree.check()
        return DraftTree(tree.token_ids, tree.parents, np.array(scores, np.float32), tree.source)

    def accept(self, tokens: TokenArray, evidence: object = None) -> None:
        self._written += len(tokens)

    def finish(self) -> None: ...
