"""Protocols of decoding: the verifier of drafts, the choice of tokens, the sink of written ones.

The loop knows the rest of decoding by these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ngramkit.drafters.base import DraftTree, TokenArray

Sink = Callable[[int, bool], None]  # called with every written token, and whether a draft held it
Stop = Callable[[int], bool]  # called with every written token: does the output end with it?
Choose = Callable[[int], int]  # the token that follows a row of a pass, asked along one path


class Verifier(Protocol):
    """The model's side of a request's passes, see ngramkit.decode.verify_tree.TreeVerifier.

    One that cannot verify every tree has `fit(tree, budget)`, which cuts a draft to a tree that it
    can; one whose passes replay tokens has `replayed`, the number that the next pass will replay.
    Both are in ngramkit.decode.verify_rows.ChainVerifier. One that may have to read tokens again
    has `expect(length)`, for a prompt of that length, see ngramkit.decode.edges.EdgeVerifier.
    """

    @property
    def length(self) -> int:
        """The number of accepted tokens that the model holds."""

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Read what is not held of the prompt, int32[n]; return the logits [1, V] after it."""

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Return logits [n + 1, V]: row 0 follows `root`, the last token, row i + 1 node i."""

    def keep(self, nodes: list[int]) -> None:
        """Make the root and these nodes, a path from the top, part of the context."""


class ResumableVerifier(Verifier, Protocol):
    """A verifier that can serve another request with what it holds, where both begin alike."""

    def rewind(self, length: int) -> None:
        """Hold only the first `length` tokens from now on."""


class Tops(NamedTuple):
    """The likeliest tokens of every row, best first."""

    ids: npt.NDArray[np.int32]  # [n, k]
    log_probs: npt.NDArray[np.float32]  # [n, k]


class Choice(Protocol):
    """The choice of one request's tokens: reads a pass's logits and returns a function that is
    asked row by row along one path."""

    def read(self, logits: torch.Tensor) -> Choose: ...
    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]: ...
