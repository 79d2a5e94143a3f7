"""The seam between drafters and decoding: a tree of guesses.

A drafter never sees text, a model or a torch tensor; a verifier never knows who drafted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.kernels import source
from ngramkit.kernels.arrays import NO_TOKEN

TokenArray = npt.NDArray[np.int32]
NOTHING: TokenArray = np.empty(0, np.int32)
TOPS = 8  # likeliest tokens that a row of Evidence has, at most


def eos_of(tokenizer: TokenizerRecord) -> int:
    """As kernels want it: NO_TOKEN where there is none."""
    return NO_TOKEN if tokenizer.eos is None else tokenizer.eos


def common_beginning(one: TokenArray, other: TokenArray) -> int:
    """How many tokens both begin with.

    >>> common_beginning(np.array([1, 2, 3]), np.array([1, 2, 4, 5]))
    2
    """
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(differs.argmax()) if differs.any() else size


class Source(IntEnum):
    """Where a node came from."""

    DATASTORE = source.DATASTORE
    FROZEN = source.FROZEN
    DYNAMIC = source.DYNAMIC
    CONTEXT = source.CONTEXT
    MODEL = source.MODEL
    HISTORY = source.HISTORY
    REFERENCE = source.REFERENCE


@dataclass(frozen=True)
class DraftTree:
    """Guesses of what follows the last accepted token (the root, which is not a node).

    `parents[i] < i`, siblings are distinct, so a node's ancestors are nodes too. An empty tree is
    a draft as well: the pass then yields one token.

    [7 8] or [9] after the root: token_ids [7, 8, 9], parents [-1, 0, -1].
    """

    token_ids: TokenArray  # int32[n]
    parents: TokenArray  # int32[n], -1 is the root
    scores: npt.NDArray[np.float32]  # float32[n], the probability that the node is accepted
    source: npt.NDArray[np.uint8]  # uint8[n], a Source

    def __len__(self) -> int:
        return len(self.token_ids)

    @staticmethod
    def empty() -> DraftTree:
        return DraftTree(NOTHING, NOTHING, np.empty(0, np.float32), np.empty(0, np.uint8))

    def check(self) -> None:
        """Raises ValueError where the invariants above do not hold."""
        parents = self.parents
        if len({len(self.token_ids), len(parents), len(self.scores), len(self.source)}) != 1:
            raise ValueError("arrays of different lengths")
        if np.any(parents >= np.arange(len(self))) or np.any(parents < -1):
            raise ValueError("a node stands before its parent")
        pairs = set(zip(parents.tolist(), self.token_ids.tolist(), strict=True))
        if len(pairs) != len(self):
            raise ValueError("two siblings hold the same token")


def accepted(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """The path of nodes that are what is written, and its tokens with one more at the end.

    Goes from the root to the child that is the chosen token, as long as there is one. `choose` is
    asked along that path: choose(0) follows the root, choose(i + 1) node i.

    [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are chosen -> [0, 1], [7, 8, 5].
    """
    pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
    children = {pair: node for node, pair in enumerate(pairs)}
    nodes: list[int] = []
    tokens: list[int] = []
    node = -1
    while True:
        token = choose(node + 1)
        tokens.append(token)
        child = children.get((node, token))
        if child is None:
            return nodes, tokens
        nodes.append(child)
        node = child


@dataclass(frozen=True)
class Evidence:
    """What the model held likely after every row of a pass, rejected nodes too.

    Row 0 is the root (the token written last before the pass; after the prefill, the prompt's last
    one), row i + 1 is node i of the draft. A row's own context is its ancestors: the token before
    row r is that of row parents[r].
    """

    token_ids: TokenArray  # int32[n]
    parents: TokenArray  # int32[n], rows; -1 for the root
    top_ids: TokenArray  # int32[n, k], the model's likeliest next tokens, best first
    top_log_probs: npt.NDArray[np.float32]  # float32[n, k], of its whole softmax


class Drafter(Protocol):
    """One request at a time: `start`, then `draft` and `accept` in turn, then `finish`.

    A class with `wants_evidence = True` is given Evidence of every pass, where a model decodes. One
    with `scores_are_shares = True` says that its scores are shares of the matches, no chances. One
    with `takes_references = True` has start(prompt, references=()): see drafters.references.
    """

    def start(self, prompt: TokenArray) -> None:
        """A new request begins; `prompt` is int32[n]."""

    def draft(self, budget: int) -> DraftTree:
        """At most `budget` nodes that may follow what was accepted so far."""

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        """What the model really wrote since the last call, int32[m], m >= 1."""

    def finish(self) -> None:
        """The request is over; drafters that learn do it here."""
