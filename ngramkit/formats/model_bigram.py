"""Kind `model-bigram`: what a language model holds likely after every single token.

N-Grammys (Stewart et al., 2024, arXiv:2411.03786) drafts from p(next | x), the model's own
distribution after the one token x, and extends each pair to a row of w tokens. Made from the
weights alone: no corpus.

One file, `table.safetensors`; V is the tokenizer's vocabulary:

    next_tokens  u16 or u32 [V, k]     after token x: the k likeliest, best first, ties by id
    log_probs    f16 [V, k]            natural logarithms of p(next | x), at least -65504
    extended     u16 or u32 [V, k, w]  drafts of w tokens: extended[x, j, 0] is next_tokens[x, j],
                                       the rest is what follows x and it

Ids are u16 up to 65,535 tokens in the vocabulary. p is normalised over the tokenizer's ids; ids
that no token has (padding of the model's vocabulary, holes in the tokenizer's) never appear.
f16 keeps 11 bits, so the relative error of p is at most 0.05 % of |log p|.

`parameters`: model, revision (a Hub model's commit), k, width (w), dtype (of the passes), and

    prefix  none: the model read x alone; bos: BOS and x
    extend  bigram: each further token is the likeliest in the row of the one before it,
            extended[x, j, i + 1] = next_tokens[extended[x, j, i], 0]; model: the model's own
            greedy continuation of prefix, x and the row so far

`counts`: rows (V), drafts (V * k).

    a b -> next_tokens [[b, a], [a, b]], w = 3: extended[a] = [[b, a, b], [a, b, a]]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact, Layout, require, token_dtype
from ngramkit.formats.container import Array

TABLE = "table.safetensors"
LAYOUT: Layout = {
    "next_tokens": (("uint16", "uint32"), 2),
    "log_probs": (("float16",), 2),
    "extended": (("uint16", "uint32"), 3),
}
LOWEST = np.float16(-65504)  # the least finite f16
BLOCK = 1 << 12  # rows checked at a time


class ModelBigram(Artifact):
    kind = "model-bigram"

    @cached_property
    def table(self) -> dict[str, Array]:
        """The three arrays. Raises ArtifactError where their shapes do not fit V, k and w."""
        arrays = self.arrays(TABLE, LAYOUT)
        path, vocabulary = self.path / TABLE, self.tokenizer.vocabulary
        for name, shape in (
            ("next_tokens", (vocabulary, self.k)),
            ("log_probs", (vocabulary, self.k)),
            ("extended", (vocabulary, self.k, self.width)),
        ):
            found = arrays[name].shape
            require(found == shape, path, f"{name} is {found}, not {shape}")
        dtypes = {arrays["next_tokens"].dtype, arrays["extended"].dtype}
        require(dtypes == {token_dtype(vocabulary)}, path, "wrong token width")
        return arrays

    @property
    def k(self) -> int:
        """Drafts after each token."""
        return self._positive("k")

    @property
    def width(self) -> int:
        """Tokens in a draft."""
        return self._positive("width")

    @property
    def next_tokens(self) -> Array:
        """uint16 | uint32 [V, k], best first."""
        return self.table["next_tokens"]

    @property
    def log_probs(self) -> Array:
        """float16 [V, k], descending."""
        return self.table["log_probs"]

    @property
    def extended(self) -> Array:
        """uint16 | uint32 [V, k, width]."""
        return self.table["extended"]

    def check(self) -> Iterator[str]:
        path, vocabulary = self.path / TABLE, self.tokenizer.vocabulary
        for name in ("next_tokens", "extended"):
            highest = int(self.table[name].max(initial=0))
            require(highest < vocabulary, path, f"id {highest} is outside the vocabulary")
        yield "ids inside the vocabulary"
        for begin in range(0, vocabulary, BLOCK):
            self._check_rows(slice(begin, min(begin + BLOCK, vocabulary)))
        yield "every row distinct tokens, best first"
        yield "probabilities add up to at most one"
        yield "drafts begin with the next tokens"
        if self.manifest.parameters.get("extend") == "bigram":
            self._check_look_up()
            yield "drafts follow the likeliest tokens"

    def _check_rows(self, rows: slice) -> None:
        path = self.path / TABLE
        tokens = self.next_tokens[rows].astype(np.int64)
        log_probs = self.log_probs[rows].astype(np.float64)
        require(np.all(np.isfinite(log_probs)), path, "a log-probability is not finite")
        require(np.all(log_probs <= 0), path, "a probability is above one")
        require(np.all(log_probs[:, 1:] <= log_probs[:, :-1]), path, "a row is not best first")
        # Rounding to f16 moves a probability p by at most p * |log p| / 2048.
        sums = np.sum(np.exp(log_probs) * (1 + log_probs / 1024), axis=1)
        require(np.all(sums <= 1 + 1e-3), path, "probabilities of a row add up to more than one")
        ascending = np.sort(tokens, axis=1)
        require(np.all(ascending[:, 1:] != ascending[:, :-1]), path, "a row names a token twice")
        same = np.array_equal(self.extended[rows, :, 0], self.next_tokens[rows])
        require(same, path, "a draft does not begin with its next token")

    def _check_look_up(self) -> None:
        likeliest = self.next_tokens[:, 0]
        for depth in range(1, self.width):
            before, here = self.extended[:, :, depth - 1], self.extended[:, :, depth]
            same = np.array_equal(likeliest[before], here)
            require(same, self.path / TABLE, "a draft leaves the likeliest tokens")

    def _positive(self, name: str) -> int:
        value = self.manifest.parameters.get(name)
        if not isinstance(value, int) or value < 1:
            raise ArtifactError(f"{self.path} has no valid {name}", "build or pull it again")
        return value
