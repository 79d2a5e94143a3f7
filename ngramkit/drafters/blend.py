"""blend: one probability model over everything at hand, and the tree of its most probable paths.

What followed the last 1, 2, 3, ... tokens, in a datastore or frozen table and the live context, is
mixed by gates that were fitted on other text (research.fit_blend); of several datastores
and tables, each is weighed by what it has explained of the text so far. Scores are calibrated: a
node with score 0.3 is accepted about three times in ten. Past requests, the model's bigrams and,
where decode says what the model itself held likely, its `Evidence` is mixed in,
trusted as far as it has come true so far; so are references, the last word on what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.drafters.blend_state import new_sources
from ngramkit.drafters.blend_weights import load_weights
from ngramkit.drafters.described import Described, described
from ngramkit.drafters.options import Limits, within_limits
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import NONE, Given, ReferenceTexts, reference_texts
from ngramkit.drafters.request_shards import Shards
from ngramkit.errors import UsageError
from ngramkit.formats.artifact import Artifact, require_one_tokenizer
from ngramkit.formats.datastore import Datastore, search_table
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.blend.counts import BUFFER, grown, new_corpus
from ngramkit.kernels.blend.evidence import SKIP_GRAM_LENGTH, forget, learn_evidence
from ngramkit.kernels.blend.mixture import Weights
from ngramkit.kernels.blend.prediction import Sources, look, new_place
from ngramkit.kernels.blend.references import new_state
from ngramkit.kernels.blend.tree import ALIGN, DRAFT, EXTEND, LEARN, act, new_tree
from ngramkit.kernels.packed import Absent, Packed

Floats = npt.NDArray[np.float32]

PAST_ROWS = 1 << 13  # of what is remembered about past requests, which change often


class Blend(Described):
    """Drafts from any number of datastores, a frozen table, the model's bigrams, past requests, and
    always from the live context. Without any of these, the `tokenizer` must be given.

    Finished requests join the past ones, where there are any. A frozen table of a datastore's own
    corpus says nothing new and is left out.

    Raises UsageError where no tokenizer is known or a bound makes no sense, ArtifactError for
    artifacts of different tokenizers.
    """

    wants_evidence = True
    takes_references = True

    @within_limits
    def __init__(
        self,
        datastores: Sequence[Datastore] = (),
        frozen_table: FrozenTable | None = None,
        bigram: ModelBigram | None = None,
        past: PastRequests | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        scan: Annotated[int, Limits("read every occurrence of up to so many", 1, BUFFER)] = 48,
        sample: Annotated[int, Limits("read so many of more occurrences", 8, BUFFER)] = 256,
        hops: Annotated[int, Limits("occurrences followed in the live context", 0)] = 128,
        weights: Weights | None = None,
    ) -> None:
        if frozen_table is not None and any(_same_corpus(frozen_table, d) for d in datastores):
            frozen_table = None
        # Keeps the arrays behind the kernels' addresses alive.
        self._artifacts = [*datastores, *(a for a in (frozen_table, bigram) if a)]
        known = _common_tokenizer(self._artifacts, past, tokenizer)
        self.over = described(self._artifacts, known)
        self._vocabulary = known.vocabulary
        self._past = past
        self._prompt_tokens = 0
        self._shards = Shards()
        weights = load_weights() if weights is None else weights
        limits = (scan, sample, hops)
        sources = new_sources(datastores, frozen_table, bigram, known, limits, weights)
        self._sources = Packed(sources)
        several = len(sources.experts.trust) > 1
        self._judged = several or bigram is not None or self._past is not None
        self._references = NONE
        self._place = Packed(new_place(len(sources.corpus.table)))
        self._tree = Packed(new_tree(len(sources.corpus.table), 0))
        self._size = 0

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._refer(reference_texts(references))
        sources, place = self._sources.parts, self._place.parts
        forget(sources.evidence)
        sources.experts.trust[:] = 0
        sources.live.latest[:] = -1
        place.root[:] = 0
        place.past[:] = 0
        place.recent[:] = NO_TOKEN
        place.aligned[:] = new_state()
        self._size = 0
        self._prompt_tokens = len(prompt)
        self._look_back()
        self._append(prompt)
        if len(self._references):
            act(ALIGN, self._sources, self._place, self._tree, 0, 0)

    def _refer(self, texts: ReferenceTexts) -> None:
        """From now on these are the references: nothing is known of them yet."""
        if len(texts) or len(self._references):
            self._references = texts  # keeps the arrays behind the table alive
            opened = texts.opened() if len(texts) else Absent()
            self._sources = Packed(self._sources.parts._replace(references=opened))

    def _look_back(self) -> None:
        """Takes in what came to the past requests; they stay as they are until the next start."""
        if self._past is None:
            return
        self._past.refresh()
        if self._past.shards is self._shards:
            return
        self._shards = self._past.shards  # keeps the arrays behind the tables alive
        later = (*self._shards.session, *self._shards.newest)
        tables = search_table(self._shards.earlier), search_table(later)
        earlier_corpus, later_corpus = (new_corpus(table, PAST_ROWS) for table in tables)
        sources = self._sources.parts
        self._sources = Packed(
            sources._replace(
                past_at_start=sources.past_at_start._replace(corpus=earlier_corpus),
                past_since=sources.past_since._replace(corpus=later_corpus),
            )
        )

    def draft(self, budget: int) -> DraftTree:
        if len(self._tree.parts.tokens) < budget:
            self._tree = Packed(new_tree(len(self._sources.parts.corpus.table), budget))
        tree = self._tree.parts
        n = act(DRAFT, self._sources, self._place, self._tree, self._size, budget)
        found = (tree.tokens, tree.parents, tree.scores, tree.origins)
        return DraftTree(*(column[:n].copy() for column in found))

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        before = self._place.parts.recent.copy()
        learns = self._judged or evidence is not None or len(self._references) > 0
        judged = self._size > 0 and learns
        self._append(tokens, judged=judged)
        if evidence is not None and judged:
            learn_evidence(
                self._sources.inside["evidence"],
                before,
                self._place.parts.recent,
                np.ascontiguousarray(tokens, np.int32),
                np.ascontiguousarray(evidence.token_ids, np.int32),
                np.ascontiguousarray(evidence.parents, np.int32),
                np.ascontiguousarray(evidence.top_ids, np.int32),
                np.ascontiguousarray(evidence.top_log_probs, np.float32),
                np.empty(SKIP_GRAM_LENGTH, np.int32),
            )

    def _append(self, tokens: TokenArray, *, judged: bool = False) -> None:
        begin, end = self._size, self._size + len(tokens)
        live = self._sources.parts.live
        if end > len(live.tokens):
            live = grown(live, 2 * end)
            self._sources = Packed(self._sources.parts._replace(live=live))
        # A model may know more ids than its tokenizer does; all of those, and what is no id at all,
        # are one unknown.
        inside = live.tokens[begin:end].view(np.uint32)
        np.minimum(np.asarray(tokens, np.int32).view(np.uint32), self._vocabulary, out=inside)
        what = LEARN if judged else EXTEND
        act(what, self._sources, self._place, self._tree, begin, end)
        self._size = end

    def look(self) -> tuple[Floats, ...]:
        """What is known of the next token: candidates int32[n], counts [n, COLUMNS], totals
        [COLUMNS], gate features [GATE_FEATURES], token features [n, TOKEN_FEATURES] (log p: 0)."""
        kernel: Any = look
        found: tuple[Floats, ...] = kernel(self._sources, self._place, self._size)
        return found

    @property
    def sources(self) -> Sources:
        """What it drafts from, as its kernels read it; valid while it lives, and no request starts
        or accepts."""
        found: Sources = self._sources.parts
        return found

    @property
    def vocabulary(self) -> int:
        """Ids from here on are unknown, all one."""
        return self._vocabulary

    @property
    def judged(self) -> bool:
        """Whether it learns from every written token what its evidence is worth."""
        return self._judged

    def finish(self) -> None:
        """The request joins the past ones."""
        if self._past is not None and self._size:
            self._past.remember(self._sources.parts.live.tokens[: self._size], self._prompt_tokens)


def _common_tokenizer(
    artifacts: Sequence[Artifact], past: PastRequests | None, tokenizer: TokenizerRecord | None
) -> TokenizerRecord:
    """The artifacts' own, where there are any: their ids index the arrays."""
    require_one_tokenizer(artifacts)
    known = artifacts[0].tokenizer if artifacts else past.tokenizer if past else tokenizer
    if known is None:
        raise UsageError("the blend drafter needs an artifact or a tokenizer", "give one of them")
    if past is not None:
        past.tokenizer.require(known, "the history")
    return known


def _same_corpus(one: Artifact, other: Artifact) -> bool:
    """Whether both hold the same documents, as far as their manifests tell."""
    records = [
        (a.manifest.corpus, a.manifest.counts["documents"], a.manifest.counts["tokens"])
        for a in (one, other)
    ]
    return records[0] == records[1]
