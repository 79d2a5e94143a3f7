"""Requests of drafters other than blend: a drafter for each, over shared artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ngramkit.budget.auto import TRUST_IN_MATCH_SHARES
from ngramkit.drafters.base import Drafter, DraftTree, Evidence, LiveContext, TokenArray
from ngramkit.drafters.blend_request import Job
from ngramkit.drafters.checked import drafts_of
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import NO_REFERENCES, ReferenceTexts, start_with_references
from ngramkit.engines.blend_source import RequestSource
from ngramkit.kernels.acceptance_record import RUN_CLASSES, SHARE_CLASSES, chances, update_record
from ngramkit.kernels.tree_paths import best_path

NODES_PER_CHAIN_TOKEN = 4  # nodes of the tree per token of the chain that is its best path
SCORE_DECAY = 0.99  # decay of the record of scores per draft


class DrafterSource(RequestSource):
    """A factory of one drafter per request; it is every thread's workspace too."""

    def __init__(self, make: Callable[..., Drafter], vocabulary: int) -> None:
        super().__init__()
        self.make, self.vocabulary = make, vocabulary

    def workspace(self) -> DrafterSource:
        return self

    def request(self, prompt: TokenArray, past: PastRequests | None = None) -> DrafterRequest:
        make = self.make if past is None else partial(self.make, past)
        return DrafterRequest(make, prompt, self.vocabulary)

    def refresh(self) -> None:
        """Do nothing: drafters read their past requests whenever they draft."""

    def prepare(self, jobs: Sequence[Job], cost: float | None) -> Callable[[], list[DraftTree]]:
        return partial(self.drafts, jobs, cost)

    def drafts(self, jobs: Sequence[Job], cost: float | None = None) -> list[DraftTree]:
        drafts = []
        for request, written, size, _, evidence in jobs:
            if len(written):
                request.append(written, evidence)
            if size == 0:
                drafts.append(DraftTree.empty())
            else:
                drafts.append(request.tree(size) if cost is None else request.chain(size, cost))
        return drafts


class DrafterRequest:
    """A request and its drafter, which is made again if tokens are removed."""

    def __init__(self, make: Callable[[], Drafter], prompt: TokenArray, vocabulary: int) -> None:
        self._make, self._vocabulary, self._references = make, vocabulary, NO_REFERENCES
        self._begin(prompt, len(prompt))

    def _begin(self, tokens: TokenArray, prompt: int) -> None:
        self.prompt = prompt
        self._drafter = self._make()
        # An unknown id is the vocabulary's size, and may be copied from the text.
        self._draft = drafts_of(self._drafter, self._vocabulary + 1)
        self._shares = getattr(self._drafter, "scores_are_shares", False)
        self._record = np.zeros((SHARE_CLASSES, RUN_CLASSES, 2), np.float32)
        self._run, self._last = 0, DraftTree.empty()
        self._live = LiveContext(tokens)
        start_with_references(self._drafter, tokens[:prompt], self._references)
        if len(tokens) > prompt:
            self._drafter.accept(tokens[prompt:])

    @property
    def tokens(self) -> TokenArray:
        return self._live.tokens

    @property
    def size(self) -> int:
        return self._live.length

    def release_past(self) -> None:
        """Do nothing: only the drafter holds past requests."""

    def begin(self, workspace: DrafterSource, prompt: int, written: TokenArray) -> TokenArray:
        """Return all of `written`: nothing is appended here."""
        return written

    def refer(self, references: ReferenceTexts) -> None:
        if len(references) or len(self._references):
            self._references = references
            self._begin(self.tokens.copy(), self.size)

    def accept(self, workspace: DrafterSource, tokens: TokenArray) -> None:
        self.append(tokens)

    def append(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        if self._shares and len(self._last):
            last = self._last
            self._run = update_record(
                last.token_ids, last.parents, last.scores, np.asarray(tokens, np.int32),
                self._record, SCORE_DECAY, self._run,
            )  # fmt: skip
        self._last = DraftTree.empty()
        self._live.append(tokens)
        self._drafter.accept(tokens, evidence)

    def rewind(self, workspace: DrafterSource, size: int) -> None:
        if size < self.size:
            self._begin(self.tokens[:size].copy(), min(size, self.prompt))

    def tree(self, budget: int) -> DraftTree:
        self._last = self._draft(budget).below(self._vocabulary)
        return self._last

    def chain(self, length: int, cost: float) -> DraftTree:
        """Return the tree's best path if each token costs `cost` passes."""
        tree = self.tree(NODES_PER_CHAIN_TOKEN * length)
        if self._shares and len(tree):
            scored = tree.parents, tree.scores, self._record, TRUST_IN_MATCH_SHARES, self._run
            tree = replace(tree, scores=chances(*scored))
        return tree.subtree(best_path(tree.parents, tree.scores, length, cost))
