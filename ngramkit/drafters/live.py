"""The live context: prompt and accepted tokens in one growing array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import TokenArray


class LiveContext:
    """`append` is O(1) per token on average; `tokens` is a view, valid until the next `append`."""

    def __init__(self, prompt: TokenArray) -> None:
        self._tokens = np.empty(max(1024, 2 * len(prompt)), np.int32)
        self.length = 0
        self.append(prompt)

    @property
    def tokens(self) -> TokenArray:
        return self._tokens[: self.length]

    def append(self, tokens: TokenArray) -> None:
        end = self.length + len(tokens)
        if end > len(self._tokens):
            self._tokens = np.concatenate([self.tokens, np.empty(end, np.int32)])
        self._tokens[self.length : end] = tokens
        self.length = end

    def occurrences(self, size: int) -> npt.NDArray[np.intp]:
        """Where the last `size` tokens stood before, ascending: the matches' begins."""
        tokens, begin = self.tokens, self.length - size
        if begin <= 0:
            return np.empty(0, np.intp)
        hits = np.flatnonzero(tokens[:begin] == tokens[begin])
        for offset in range(1, size):
            hits = hits[tokens[hits + offset] == tokens[begin + offset]]
        return hits
