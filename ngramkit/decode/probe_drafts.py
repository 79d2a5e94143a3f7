"""Made-up drafts to try a model with: siblings, and a chain under the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ngramkit.drafters.base import DraftTree


def spread_tokens(model: Any) -> Iterator[int]:
    """Spread over the vocabulary; no two alike soon."""
    vocabulary = model.config.get_text_config().vocab_size
    step = max(1, vocabulary * 5 // 8) | 1
    at = 1
    while True:
        at = (at + step) % vocabulary
        yield at


def tree_of(tokens: Iterator[int], siblings: int, chain: int) -> DraftTree:
    """The chain hangs under the last sibling: its columns are far from its depths."""
    parents = [-1] * siblings + [siblings - 1 + node for node in range(chain)]
    ids = np.array([next(tokens) for _ in parents], np.int32)
    count = len(parents)
    return DraftTree(
        ids, np.array(parents, np.int32), np.zeros(count, np.float32), np.zeros(count, np.uint8)
    )


def path_of(siblings: int, chain: int) -> list[int]:
    """The chain's nodes, from the top."""
    return list(range(max(siblings - 1, 0), siblings + chain))
