"""Requests of the drafters that are not blend: each has a drafter of its own over shared artifacts.

Where an engine takes tokens back, such a request begins anew: its drafts are those of a drafter
that is started with the tokens up to the prompt's end and accepts the others. Scores that are
shares of matches are put as probabilities first, by what such shares have come to in this request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ngramkit.drafters.base import Drafter, DraftTree, TokenArray
from ngramkit.drafters.live import LiveContext
from ngramkit.engines.asked import Asked
from ngramkit.engines.chains import best_path
from ngramkit.engines.model_tokens import Built
from ngramkit.kernels.budget import LEVELS, RUNS, chances, recorded

WIDTH = 4  # nodes of the tree that a chain is taken from, for each of its tokens
# What a share of the matches is worth before anything is known, by tokens foreseen in a row.
FIRST_TRUST = np.array([0.4, 0.5, 0.6, 0.65, 0.7, 0.8], np.float32)
FADE = 0.99  # of the record, with each draft


class DrafterSource:
    """Makes drafters; `make` is called once for each request."""

    def __init__(self, make: Callable[[], Drafter], vocabulary: int) -> None:
        self.make, self.vocabulary = make, vocabulary
        self.built: list[Built] = []  # what it was opened from

    def desk(self) -> None:
        """Such drafters bring their own."""

    def request(self, desk: None, prompt: TokenArray) -> DrafterRequest:
        return DrafterRequest(self, prompt)

    def trees(self, desk: None, asked: Sequence[Asked]) -> list[DraftTree]:
        return _one_by_one(asked, lambda request, size: request.tree(desk, size))

    def chains(self, desk: None, asked: Sequence[Asked], least: float) -> list[DraftTree]:
        return _one_by_one(asked, lambda request, size: request.chain(desk, size, least))


def _one_by_one(
    asked: Sequence[Asked], draw: Callable[[DrafterRequest, int], DraftTree]
) -> list[DraftTree]:
    """`draw` for each, of a request and a size, when what was written is told."""
    drafts = []
    for request, written, size in asked:
        if len(written):
            request.extend(None, written)
        drafts.append(draw(request, size) if size else DraftTree.empty())
    return drafts


class DrafterRequest:
    """See BlendRequest; a desk is not needed."""

    def __init__(self, source: DrafterSource, prompt: TokenArray) -> None:
        self._source = source
        self._begin(prompt, len(prompt))

    def _begin(self, tokens: TokenArray, prompt: int) -> None:
        self.prompt = prompt
        self._drafter = self._source.make()
        self._shares = getattr(self._drafter, "scores_are_shares", False)
        self._record = np.zeros((LEVELS, RUNS, 2), np.float32)
        self._run, self._last = 0, DraftTree.empty()
        self._live = LiveContext(tokens)
        self._drafter.start(tokens[:prompt])
        if len(tokens) > prompt:
            self._drafter.accept(tokens[prompt:])

    @property
    def tokens(self) -> TokenArray:
        return self._live.tokens

    @property
    def size(self) -> int:
        return self._live.length

    @property
    def bytes(self) -> int:
        """Of the live context alone: what a drafter holds it does not tell."""
        return self.tokens.nbytes

    def extend(self, desk: None, tokens: TokenArray) -> None:
        if self._shares and len(self._last):
            last, record = self._last, self._record
            drafted = (last.token_ids, last.parents, last.scores)
            self._run = recorded(*drafted, np.asarray(tokens, np.int32), record, FADE, self._run)
        self._last = DraftTree.empty()
        self._live.append(tokens)
        self._drafter.accept(tokens)

    def rewind(self, desk: None, size: int) -> None:
        if size < self.size:
            self._begin(self.tokens[:size].copy(), min(size, self.prompt))

    def tree(self, desk: None, budget: int) -> DraftTree:
        self._last = self._drafter.draft(budget)
        return self._last

    def chain(self, desk: None, length: int, least: float) -> DraftTree:
        tree = self.tree(desk, WIDTH * length)
        if self._shares and len(tree):
            scores = chances(tree.parents, tree.scores, self._record, FIRST_TRUST, self._run)
            tree = DraftTree(tree.token_ids, tree.parents, scores, tree.source)
        return best_path(tree, length, least)
