"""Drafters: token ids in, a tree of draft tokens out.

A drafter never sees text, a model or a torch tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import UsageError
from ngramkit.basics.terminal_text import visible
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.kernels import arrays
from ngramkit.kernels.arrays import NO_TOKEN

TokenArray = npt.NDArray[np.int32]
NO_TOKENS: TokenArray = np.empty(0, np.int32)
MAX_EVIDENCE_TOKENS = 8  # maximum tokens in a row of Evidence
COUNTS_IN_LABEL = ("tokens", "leaders", "rows", "k")  # manifest counts that give an artifact's size


class Source(IntEnum):
    """The source of a node."""

    DATASTORE = arrays.DATASTORE
    FROZEN = arrays.FROZEN
    DYNAMIC = arrays.DYNAMIC
    CONTEXT = arrays.CONTEXT
    MODEL = arrays.MODEL
    HISTORY = arrays.HISTORY
    REFERENCE = arrays.REFERENCE


@dataclass(frozen=True)
class DraftTree:
    """Draft tokens that may follow the last accepted token (the root, which is not a node).

    `parents[i] < i`, and siblings are distinct. With an empty tree a pass yields one token.

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
        return DraftTree(NO_TOKENS, NO_TOKENS, np.empty(0, np.float32), np.empty(0, np.uint8))

    def first(self, nodes: int) -> DraftTree:
        """Return the tree of the first `nodes` nodes."""
        if nodes >= len(self):
            return self
        return DraftTree(
            self.token_ids[:nodes], self.parents[:nodes], self.scores[:nodes], self.source[:nodes]
        )

    def below(self, vocabulary: int) -> DraftTree:
        """Return the tree without ids >= `vocabulary` and without their descendants."""
        if not len(self) or int(self.token_ids.max()) < vocabulary:
            return self
        kept = self.token_ids < vocabulary
        for node, parent in enumerate(self.parents.tolist()):
            kept[node] &= parent < 0 or kept[parent]
        return self.subtree(np.flatnonzero(kept))

    def subtree(self, nodes: npt.NDArray[np.integer[Any]]) -> DraftTree:
        """Return the tree of these nodes, ascending; their parents must be among them."""
        place = np.full(len(self) + 1, -1, np.int32)  # the last is the root's
        place[nodes] = np.arange(len(nodes))
        return DraftTree(
            self.token_ids[nodes],
            place[self.parents[nodes]],
            self.scores[nodes],
            self.source[nodes],
        )

    def accepted_nodes(self, written: Iterable[int]) -> list[int]:
        """Return the nodes that are accepted if the model writes these tokens.

        [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are written -> [0, 1].
        """
        nodes: list[int] = []
        at, tokens, parents = -1, self.token_ids.tolist(), self.parents.tolist()
        for token in written if tokens else ():  # most drafts of a large batch are empty
            for node in range(at + 1, len(tokens)):
                if parents[node] == at and tokens[node] == token:
                    nodes.append(at := node)
                    break
            else:
                break
        return nodes

    def check(self) -> None:
        """Raise ValueError if the invariants above do not hold."""
        tokens, parents = np.asarray(self.token_ids), np.asarray(self.parents)
        if len({len(self.token_ids), len(parents), len(self.scores), len(self.source)}) != 1:
            raise ValueError("arrays must have the same length")
        if np.any(parents >= np.arange(len(self))) or np.any(parents < -1):
            raise ValueError("a node must come after its parent")
        pairs = set(zip(parents.tolist(), tokens.tolist(), strict=True))
        if len(pairs) != len(self):
            raise ValueError("siblings must have different tokens")


@dataclass(frozen=True)
class Evidence:
    """The model's top-k at every verified row of a pass, including rejected nodes.

    Row 0 is the root (the last token before the pass), row i + 1 is node i of the draft.
    """

    token_ids: TokenArray  # int32[n]
    parents: TokenArray  # int32[n], rows; -1 for the root
    top_ids: TokenArray  # int32[n, k], the model's likeliest next tokens, best first
    top_log_probs: npt.NDArray[np.float32]  # float32[n, k], of the full softmax


class Drafter(Protocol):
    """One request at a time: `start`, then `draft` and `accept` in turn, then `finish`.

    Optional class attributes, False by default: `wants_evidence` (`accept` gets the Evidence of
    every pass of a model), `scores_are_shares` (scores are shares of the matches, not
    probabilities), `takes_references` (`start` has a parameter `references=()`, see
    drafters.references).
    """

    def start(self, prompt: TokenArray) -> None:
        """Begin a new request; `prompt` is int32[n]."""

    def draft(self, budget: int) -> DraftTree:
        """Return at most `budget` nodes that may follow the accepted tokens."""

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        """Append the tokens written since the last call, int32[m], m >= 1."""

    def finish(self) -> None:
        """End the request; drafters may learn from the whole request here."""


class BaseDrafter:
    over = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.over and ' '}{self.over}>"

    def finish(self) -> None:
        """Do nothing."""


def describe_artifacts(
    artifacts: Sequence[Artifact], tokenizer: TokenizerRecord | None = None
) -> str:
    """Return the artifacts' number and size by kind, and the tokenizer's name."""
    parts = []
    for kind in dict.fromkeys(artifact.kind for artifact in artifacts):
        alike = [artifact for artifact in artifacts if artifact.kind == kind]
        counts = alike[0].manifest.counts
        unit = next((name for name in COUNTS_IN_LABEL if name in counts), None)
        parts.append(f"{len(alike)} {kind}s" if len(alike) > 1 else kind)
        if unit is not None:
            size = sum(each.manifest.counts[unit] for each in alike)
            parts.append(f"{_short_count(size)} {unit}")
    record = tokenizer or (artifacts[0].tokenizer if artifacts else None)
    if record is not None:
        parts.append(record.id.rstrip("/").rpartition("/")[2])
    return ", ".join(parts)


def _short_count(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def token_ids_of(name: str, value: Any) -> TokenArray:
    """Return token ids as int32[n]. Raises UsageError, which calls them `name`."""
    try:
        ids = np.asarray(value)
    except ValueError:  # lists of unequal length
        ids = np.empty((0, 0))
    fits = ids.ndim == 1 and (not ids.size or ids.dtype.kind in "iu")
    if not fits or (ids.size and (ids.min() < 0 or ids.max() > np.iinfo(np.int32).max)):
        raise UsageError(f"{name} must be token ids, got {visible(repr(value), 60)}", option=name)
    return ids.astype(np.int32, copy=False)


def eos_of(tokenizer: TokenizerRecord) -> int:
    """Return the end-of-sequence id, or NO_TOKEN."""
    return NO_TOKEN if tokenizer.eos is None else tokenizer.eos


def common_beginning(one: TokenArray, other: TokenArray) -> int:
    """Return the length of the longest common prefix.

    >>> common_beginning(np.array([1, 2, 3]), np.array([1, 2, 4, 5]))
    2
    """
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(differs.argmax()) if differs.any() else size


def occurrences(tokens: TokenArray, some: TokenArray) -> npt.NDArray[np.int64]:
    """Return where `some`, int32[m >= 1], begins in `tokens`, ascending, int64[n].

    >>> occurrences(np.array([1, 2, 1, 2, 1]), np.array([1, 2]))
    array([0, 2])
    """
    begins = np.flatnonzero(tokens[: max(len(tokens) - len(some) + 1, 0)] == some[0])
    for offset in range(1, len(some)):
        begins = begins[tokens[begins + offset] == some[offset]]
    return begins.astype(np.int64, copy=False)


class LiveContext:
    """Prompt and accepted tokens in one growing array.

    `tokens` is a view: it keeps its ids, and does not grow with `append`.
    """

    def __init__(self, prompt: TokenArray) -> None:
        self._tokens = np.empty(2 * len(prompt), np.int32)
        self._tokens[: len(prompt)] = prompt
        self.length = len(prompt)

    @property
    def tokens(self) -> TokenArray:
        return self._tokens[: self.length]

    def append(self, tokens: TokenArray) -> None:
        end = self.length + len(tokens)
        if end > len(self._tokens):
            self._tokens = np.concatenate([self.tokens, np.empty(end, np.int32)])
        self._tokens[self.length : end] = tokens
        self.length = end

    def continuations(self, most: int) -> npt.NDArray[np.int64]:
        """Return the ends of earlier occurrences of the last `most` tokens, ascending, int64[m].

        A new suffix is shortened, down to one token.
        """
        tokens = self.tokens
        for size in range(min(most, self.length - 1), 0, -1):
            begins = occurrences(tokens[:-1], tokens[-size:])
            if len(begins):
                return begins + size
        return np.empty(0, np.int64)


def tree_of_chains(
    chains: Iterable[tuple[Sequence[int], float]], budget: int, source: Source
) -> DraftTree:
    """Merge chains (tokens, score) into a tree of at most `budget` nodes, first chain first.

    A node's score is the sum over its chains.
    """
    nodes: dict[tuple[int, int], int] = {}
    scores: list[float] = []
    for chain, score in chains:
        at = -1
        for token in chain:
            key = (at, int(token))
            if key not in nodes:
                if len(nodes) >= budget:
                    break
                nodes[key] = len(nodes)
                scores.append(0.0)
            at = nodes[key]
            scores[at] += score
    return tree_of_nodes(nodes, scores, [source] * len(nodes))


def tree_of_nodes(
    nodes: Iterable[tuple[int, int]], scores: Sequence[float], source: Sequence[int]
) -> DraftTree:
    """Return the tree of nodes (parent, token), each after its parent."""
    parents, tokens = np.array(list(nodes), np.int32).reshape(-1, 2).T
    return DraftTree(
        np.ascontiguousarray(tokens),
        np.ascontiguousarray(parents),
        np.array(scores, np.float32),
        np.array(source, np.uint8),
    )
