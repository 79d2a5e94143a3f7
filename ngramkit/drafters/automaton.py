"""SAM-Decoding: the continuation of the longest suffix match (arXiv:2411.10666).

A draft is one chain or, after short matches, Token Recycling's tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngramkit.drafters.base import (
    NO_TOKENS,
    BaseDrafter,
    DraftTree,
    Evidence,
    LiveContext,
    Source,
    TokenArray,
    describe_artifacts,
    eos_of,
)
from ngramkit.drafters.options import AutomatonOptions
from ngramkit.drafters.recycling import Matrix
from ngramkit.formats.datastore import Datastore
from ngramkit.kernels.automaton import extend, first_match_in_corpus, longest_repeat, new_automaton
from ngramkit.kernels.suffix.search import shard_table

AGREEMENT_PROBABILITY = 0.8  # probability that the next token of a chain is right
INITIAL_CAPACITY = 1 << 11  # initial capacity of an automaton, in tokens


class Automaton(BaseDrafter):
    """Draft from datastores, the context and Token Recycling's matrix.

    A corpus match counts as `bias` tokens shorter; below `threshold` tokens the matrix drafts. With
    `keep` the matrix outlives a request, as published.
    """

    wants_evidence = True

    def __init__(
        self,
        datastores: Sequence[Datastore] = (),
        *,
        options: AutomatonOptions = AutomatonOptions(),
    ) -> None:
        self.options = options
        self.over = describe_artifacts(datastores)
        # Keeps the arrays alive whose addresses the table holds.
        self._shards = [shard for datastore in datastores for shard in datastore.shards]
        self._table = shard_table(self._shards)
        self._eos = eos_of(datastores[0].tokenizer) if datastores else -1
        self._matrix = Matrix()
        self._live = LiveContext(NO_TOKENS)
        self._automaton = new_automaton(INITIAL_CAPACITY)
        self._bound = 0  # no suffix of the context longer than this can match in the corpus

    def start(self, prompt: TokenArray) -> None:
        if not self.options.keep:
            self._matrix.clear()
        self._live = LiveContext(NO_TOKENS)
        self._automaton = new_automaton(max(INITIAL_CAPACITY, 2 * len(prompt)))
        self._bound = 0
        self._append(prompt)

    def draft(self, budget: int) -> DraftTree:
        if budget < 1 or not self._live.length:
            return DraftTree.empty()
        options, source = self.options, Source.CONTEXT
        most = min(options.width, budget)
        matched, chain = longest_repeat(self._automaton, most)
        if len(self._table):
            longest = min(self._bound, options.max_match)
            shortest = max(matched + 1, options.threshold) + options.bias  # below, it is not used
            corpus_matched, copied = first_match_in_corpus(
                self._table, self._live.tokens, longest, shortest, most, self._eos
            )
            is_cut = corpus_matched >= options.max_match
            self._bound = self._live.length if is_cut else corpus_matched
            if corpus_matched >= shortest:
                matched, chain, source = corpus_matched - options.bias, copied, Source.DATASTORE
        if matched < options.threshold or not len(chain):
            return self._matrix.draft(int(self._live.tokens[-1]), budget)
        depths = np.arange(len(chain), dtype=np.int32)
        scores = (AGREEMENT_PROBABILITY ** (depths + 1)).astype(np.float32)
        sources = np.full(len(chain), source, np.uint8)
        return DraftTree(chain, depths - np.int32(1), scores, sources)

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
