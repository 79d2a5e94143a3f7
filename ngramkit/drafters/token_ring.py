"""The newest tokens of an endless stream, in a buffer of fixed size."""

from __future__ import annotations

import numpy as np

from ngramkit.formats.container import Array


class TokenRing:
    """The last `capacity` tokens of an endless stream. `end` counts all that were ever added.

    Capacity 4, after [1, 2, 3] and [4, 5]: since(0) is [2, 3, 4, 5], since(3) is [4, 5].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.uint16] | np.dtype[np.uint32]) -> None:
        self.end = 0
        self._tokens = np.empty(capacity, dtype)

    def add(self, tokens: Array) -> None:
        capacity = len(self._tokens)
        kept = tokens[-capacity:]
        begin = (self.end + len(tokens) - len(kept)) % capacity
        first = min(len(kept), capacity - begin)
        self._tokens[begin : begin + first] = kept[:first]
        self._tokens[: len(kept) - first] = kept[first:]
        self.end += len(tokens)

    def since(self, begin: int) -> Array:
        """A copy of the stream from `begin`, or from the oldest token that is still there."""
        capacity = len(self._tokens)
        begin = max(begin, self.end - capacity, 0)
        at, count = begin % capacity, self.end - begin
        first = min(count, capacity - at)
        return np.concatenate([self._tokens[at : at + first], self._tokens[: count - first]])
