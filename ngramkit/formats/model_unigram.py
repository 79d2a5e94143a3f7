"""Kind `model-unigram`: the tokens that a model's embeddings make likely in any context.

With the output embedding u(x) of token x, their mean m, the covariance C of the input embeddings
(divided by the number of tokens minus one), and <a, b> = a' C b, the rules are

    distance        p(x) proportional to exp(-d(x)),  d(x) = sqrt(<u(x) - m, u(x) - m>)
    inner-product   p(x) proportional to exp(-<u(x), m>)

The first is the formula of N-Grammys (Stewart et al., 2024, arXiv:2411.03786), the second that of
its code.

One file, `table.safetensors`:

    tokens  u16 or u32 [k]   best first, ties by id
    scores  f32 [k]          natural logarithms of p(x)

Ids are u16 up to 65,535 tokens in the vocabulary. Means, covariance and p cover only ids with a
token. `parameters`: model, revision (a Hub model's commit), k, rule, dtype (of the loaded
embeddings). `counts`: rows (k).
"""

from __future__ import annotations

from collections.abc import Mapping
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


class ModelUnigram(TableArtifact):
    kind = "model-unigram"
    layout: ClassVar[Layout] = {"tokens": (IDS, 1), "scores": (("float32",), 1)}
    tokens: Array  # uint16 | uint32 [k], best first
    scores: Array  # float32 [k], log p(x), descending

    def require_lengths(self, arrays: Mapping[str, Array]) -> None:
        path, tokens = self.path / TABLE, arrays["tokens"]
        require(len(tokens) > 0, path, "it holds no token")
        require(len(arrays["scores"]) == len(tokens), path, "wrong number of scores")

    @property
    def k(self) -> int:
        return len(self.tokens)

    def value_checks(self) -> list[ValueCheck]:
        return [self._check_table]

    def _check_table(self) -> list[str]:
        path, tokens = self.path / TABLE, self.tokens.astype(np.int64)
        highest = int(tokens.max())
        inside = highest < self.tokenizer.vocabulary
        require(inside, path, f"id {highest} is outside the vocabulary")
        require(len(np.unique(tokens)) == len(tokens), path, "a token occurs twice")
        scores = self.scores.astype(np.float64)
        require(np.all(np.isfinite(scores)), path, "a score is not finite")
        falls = (scores[1:] < scores[:-1]) | (
            (scores[1:] == scores[:-1]) & (tokens[1:] > tokens[:-1])
        )
        require(np.all(falls), path, "tokens are not best first")
        require(scores[0] <= 1e-3, path, "a probability is above one")
        require(np.exp(scores).sum() <= 1 + 1e-3, path, "probabilities add up to more than one")
        require(len(tokens) == self.parameter("k"), path, f"it holds {len(tokens)} tokens")
        require(self.manifest.counts == {"rows": len(tokens)}, path, "its rows are not as listed")
        return [
            "ids inside the vocabulary",
            "every token once",
            "best first, ties by id",
            "probabilities add up to at most one",
            "counts",
        ]
