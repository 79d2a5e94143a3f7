"""Token ids of a conversation that grows, whose prompts are views of its beginning."""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import NO_TOKENS, TokenArray


class GrowingIds:
    """An int32 array that grows at its end; views of it keep their ids."""

    def __init__(self, ids: TokenArray = NO_TOKENS) -> None:
        self._ids = ids.copy()  # later with spare room
        self.size = len(ids)

    def append(self, ids: TokenArray) -> None:
        end = self.size + len(ids)
        if end > len(self._ids):
            grown = np.empty(2 * end, np.int32)
            grown[: self.size] = self._ids[: self.size]
            self._ids = grown
        self._ids[self.size : end] = ids
        self.size = end

    def first(self, count: int) -> TokenArray:
        """Return a view of the first `count` ids."""
        return self._ids[:count]
