"""Kind `model-bigram`: a language model's likeliest tokens after every single token.

p(next | x) is the model's distribution after the single token x (N-Grammys, Stewart et al., 2024,
arXiv:2411.03786).

One file, `table.safetensors`; V is the tokenizer's vocabulary:

    next_tokens  u16 or u32 [V, k]     after token x: the k likeliest, best first, ties by id
    log_probs    f16 [V, k]            natural logarithms of p(next | x), at least -65504
    extended     u16 or u32 [V, k, w]  drafts: extended[x, j, 0] is next_tokens[x, j], and the rest
                                       continues it

Ids are u16 up to 65,535 tokens in the vocabulary. p is normalised over the tokenizer's ids; ids
without a token (padding of the model's vocabulary, gaps in the tokenizer's) never occur.

`parameters`: model, revision (a Hub model's commit), k, width (w), dtype (of the passes), and

    prefix  none: the model reads only x; bos: BOS and x
    extend  bigram: each further token is the likeliest in the row of the one before it,
            extended[x, j, i + 1] = next_tokens[extended[x, j, i], 0]; model: the model's own
            greedy continuation of prefix, x and the row so far

`counts`: rows (V), drafts (V * k).

    a b -> next_tokens [[b, a], [a, b]], w = 3: extended[a] = [[b, a, b], [a, b, a]]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from ngramkit.formats.artifact import (
    IDS,
    TABLE as TABLE,
    Layout,
    TableArtifact,
    ValueCheck,
    require,
)
from ngramkit.formats.safetensors import Array

MIN_LOG_PROBABILITY = np.float16(-65504)  # the least finite f16
CHECKED_ROWS = 1 << 12  # rows per block of a check


class ModelBigram(TableArtifact):
    kind = "model-bigram"
    layout: ClassVar[Layout] = {
        "next_tokens": (IDS, 2),
        "log_probs": (("float16",), 2),
        "extended": (IDS, 3),
    }
    next_tokens: Array  # uint16 | uint32 [V, k], best first
    log_probs: Array  # float16 [V, k], descending
    extended: Array  # uint16 | uint32 [V, k, width]

    def require_lengths(self, arrays: Mapping[str, Array]) -> None:
        rows = self.tokenizer.vocabulary, self.k
        shapes = {"next_tokens": rows, "log_probs": rows, "extended": (*rows, self.width)}
        for name, shape in shapes.items():
            actual = arrays[name].shape
            require(actual == shape, self.path / TABLE, f"{name} is {actual}, not {shape}")

    @property
    def k(self) -> int:
        """The number of drafts after each token."""
        return self.parameter("k")

    @property
    def width(self) -> int:
        """The number of tokens in a draft."""
        return self.parameter("width")

    def value_checks(self) -> list[ValueCheck]:
        vocabulary = self.tokenizer.vocabulary
        blocks = [
            partial(self._check_rows, slice(begin, min(begin + CHECKED_ROWS, vocabulary)))
            for begin in range(0, vocabulary, CHECKED_ROWS)
        ]
        return [self._check_shape, *blocks, self._checked]

    def _check_shape(self) -> list[str]:
        counts = {"rows": self.tokenizer.vocabulary, "drafts": self.tokenizer.vocabulary * self.k}
        require(self.manifest.counts == counts, self.path, f"it holds {counts}, not as listed")
        return ["counts"]

    def _checked(self) -> list[str]:
        lines = [
            "ids inside the vocabulary",
            "every row distinct tokens, best first",
            "probabilities add up to at most one",
            "drafts begin with the next tokens",
        ]
        return [*lines, "drafts follow the likeliest tokens"] if self._by_look_up else lines

    @property
    def _by_look_up(self) -> bool:
        return self.manifest.parameters.get("extend") == "bigram"

    def _check_rows(self, rows: slice) -> list[str]:
        path, vocabulary = self.path / TABLE, self.tokenizer.vocabulary
        for name in ("next_tokens", "extended"):
            highest = int(self.table[name][rows].max(initial=0))
            require(highest < vocabulary, path, f"id {highest} is outside the vocabulary")
        tokens = self.next_tokens[rows]
        log_probs = self.log_probs[rows].astype(np.float32)
        require(np.all(np.isfinite(log_probs)), path, "a log-probability is not finite")
        require(np.all(log_probs[:, 0] <= 0), path, "a probability is above one")
        require(np.all(log_probs[:, 1:] <= log_probs[:, :-1]), path, "a row is not best first")
        # Rounding to f16 moves a probability p by at most p * |log p| / 2048.
        sums = np.sum(np.exp(log_probs) * (1 + log_probs / 1024), axis=1)
        require(np.all(sums <= 1 + 1e-3), path, "probabilities of a row add up to more than one")
        ascending = np.sort(tokens, axis=1)
        require(np.all(ascending[:, 1:] != ascending[:, :-1]), path, "a row holds a token twice")
        extended = self.extended[rows]
        same = np.array_equal(extended[:, :, 0], tokens)
        require(same, path, "a draft does not begin with its next token")
        if self._by_look_up:
            follows = np.array_equal(
                self.next_tokens[:, 0][extended[:, :, :-1]], extended[:, :, 1:]
            )
            require(follows, path, "a draft does not follow the likeliest tokens")
        return []
