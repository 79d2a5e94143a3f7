"""Protocols of decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ngramkit.drafters.base import DraftTree, TokenArray

Sink = Callable[[int, bool], None]  # called with every written token and whether it was drafted
Stop = Callable[[int], bool]  # called with every written token; returns whether the output ends
Choose = Callable[[int], int]  # returns the token after a row of a pass, along one path


class Verifier(Protocol):
    """The model's side of a request's passes.

    Optional: `fit(tree, budget)` cuts a draft, `replayed` counts the tokens that the next pass
    replays (`ChainVerifier`), `expect(length)` prepares for a prompt of that length
    (`LengthLimitVerifier`).
    """

    @property
    def length(self) -> int:
        """The number of accepted tokens held."""

    def prefill(self, prompt: TokenArray) -> torch.Tensor:
        """Read the rest of the prompt, int32[n]; return the logits [1, V] after it."""

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        """Return logits [n + 1, V]: row 0 follows `root`, the last token, row i + 1 node i."""

    def keep(self, nodes: list[int]) -> None:
        """Add the root and these nodes, a path from it, to the context."""


class ResumableVerifier(Verifier, Protocol):
    """A verifier that can keep its tokens for another request."""

    def rewind(self, length: int) -> None:
        """Hold only the first `length` tokens."""


class Tops(NamedTuple):
    """The likeliest tokens of every row, best first."""

    ids: npt.NDArray[np.int32]  # [n, k]
    log_probs: npt.NDArray[np.float32]  # [n, k]


class Choice(Protocol):
    """A choice of tokens; `read` returns a function to call along one path."""

    def read(self, logits: torch.Tensor) -> Choose: ...
    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]: ...
