"""SAM-Decoding: what followed the longest match of the text, in itself or in a corpus; where that
is short, Token Recycling (arXiv:2411.10666).

The text's own match is found by a suffix automaton, a corpus's by its suffix arrays, which give the
same. A draft is one line, what followed the match's first place; or Token Recycling's tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ngramkit.drafters.base import (
    NOTHING,
    Described,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    described,
    eos_of,
)
from ngramkit.drafters.options import Limits, within_limits
from ngramkit.drafters.recycling import Matrix
from ngramkit.formats.artifact import require_one_tokenizer
from ngramkit.formats.datastore import Datastore, search_table
from ngramkit.kernels.automaton import extend, in_corpus, new_automaton, repeated

# How likely each further token of a copied line is right: the score of a line falls by it.
AGREEMENT = 0.8
ROOM = 1 << 11  # tokens that an automaton has room for at first


class Automaton(Described):
    """A match of the corpus counts as `bias` tokens shorter than one of the text; one of less than
    `threshold` tokens is left to the matrix. With `keep` that outlives a request, as published.

    Raises ArtifactError for datastores of different tokenizers.
    """

    wants_evidence = True

    @within_limits
    def __init__(
        self,
        datastores: Sequence[Datastore] = (),
        *,
        threshold: Annotated[int, Limits("the shortest match that is copied from", 1)] = 5,
        bias: Annotated[int, Limits("tokens that a match in a corpus is worth less", 0)] = 5,
        width: Annotated[int, Limits("tokens copied at most", 1, 4096)] = 40,
        max_match: Annotated[int, Limits("the longest match in a corpus, in tokens", 1)] = 64,
        keep: Annotated[bool, Limits("remember the matrix for the next request")] = True,
    ) -> None:
        require_one_tokenizer(datastores)
        self.over = described(datastores)
        self.threshold, self.bias, self.width = threshold, bias, width
        self.max_match, self.keep = max_match, keep
        # Keeps the arrays behind the table's addresses alive.
        self._shards = [shard for datastore in datastores for shard in datastore.shards]
        self._table = search_table(self._shards)
        self._eos = eos_of(datastores[0].tokenizer) if datastores else -1
        self._matrix = Matrix()
        self._live = LiveContext(NOTHING)
        self._automaton = new_automaton(ROOM)
        self._bound = 0  # no end of the text longer than this can match in the corpus

    def start(self, prompt: TokenArray) -> None:
        if not self.keep:
            self._matrix.clear()
        self._live = LiveContext(NOTHING)
        self._automaton = new_automaton(max(ROOM, 2 * len(prompt)))
        self._bound = 0
        self._append(prompt)

    def draft(self, budget: int) -> DraftTree:
        if budget < 1 or not self._live.length:
            return DraftTree.empty()
        matched, line = repeated(self._automaton, min(self.width, budget))
        source = Source.CONTEXT
        if len(self._table):
            longest = min(self._bound, self.max_match)
            there, copied = in_corpus(
                self._table, self._live.tokens, longest, min(self.width, budget), self._eos
            )
            self._bound = there if there < self.max_match else self._live.length
            if there - self.bias > matched:
                matched, line, source = there - self.bias, copied, Source.DATASTORE
        if matched < self.threshold or not len(line):
            return self._matrix.draft(int(self._live.tokens[-1]), budget)
        places = np.arange(len(line), dtype=np.int32)
        scores = (AGREEMENT ** (places + 1)).astype(np.float32)
        return DraftTree(line, places - np.int32(1), scores, np.full(len(line), source, np.uint8))

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._append(tokens)
        if evidence is not None:
            self._matrix.learn(evidence)

    def _append(self, tokens: TokenArray) -> None:
        size = self._live.length
        self._live.append(tokens)
        self._bound += len(tokens)
        if self._live.length > len(self._automaton.tokens):
            self._automaton = new_automaton(2 * self._live.length)
            extend(self._automaton, self._live.tokens)
        else:
            extend(self._automaton, self._live.tokens[size:])

    def finish(self) -> None:
        """Nothing is kept beyond what `keep` says."""
