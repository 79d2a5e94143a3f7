"""blend: one probability model over all sources, and the tree of its most probable paths.

What followed the last 1, 2, 3, ... tokens, in a datastore or frozen table and the live context, is
mixed by gates that were fitted on other text (research.fit_blend); of several datastores and
tables, each is weighed by how much of the context it has explained so far. Scores are calibrated: a
node with score 0.3 is accepted about three times in ten. Past requests, the model's bigrams and,
where decode gives it, `Evidence` are mixed in, trusted as far as they have been right so far; so
are references, last of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.drafters.base import BaseDrafter, DraftTree, Evidence, TokenArray, describe, eos_of
from ngramkit.drafters.options import within_limits
from ngramkit.drafters.past_requests import PastRequests, Shards
from ngramkit.drafters.references import NONE, Given, ReferenceTexts, reference_texts
from ngramkit.formats.artifact import Artifact, require_one_tokenizer
from ngramkit.formats.datastore import Datastore, DatastoreShard, search_table
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.safetensors import open_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.blend.copying import (
    follow_answer,
    forget_trust,
    new_copy_state,
    new_copying,
)
from ngramkit.kernels.blend.counts import (
    SearchedCorpus,
    grown,
    new_candidates,
    new_corpus,
    new_frozen,
    new_live,
)
from ngramkit.kernels.blend.evidence import (
    SKIP_GRAM_LENGTH,
    forget,
    learn_evidence,
    new_bigram,
    new_evidence,
)
from ngramkit.kernels.blend.mixture import (
    GATE_FEATURES,
    GATES,
    TOKEN_FEATURES,
    Weights,
    new_experts,
    new_history,
    new_scratch,
    widened,
)
from ngramkit.kernels.blend.prediction import BlendSources, new_place
from ngramkit.kernels.blend.references import new_state
from ngramkit.kernels.blend.tree import ALIGN, DRAFT, EXTEND, LEARN, act, new_tree
from ngramkit.kernels.packed import Absent, Packed

FITTED = Path(__file__).with_name("blend_weights.safetensors")  # the mixture's weights
LIVE = 1 << 12  # tokens of a live context that there is room for at first
PAST_ROWS = 1 << 13  # of what is counted in past requests, which change often
MILLION = 1e6

# What was counted in a datastore serves every drafter over it, by scan and sample. Two threads that
# write one row at once may spoil a draft, never what the model writes.
_CORPORA: WeakKeyDictionary[Datastore, dict[tuple[int, int], SearchedCorpus]] = WeakKeyDictionary()


class Blend(BaseDrafter):
    """A drafter over any number of datastores, a frozen table, the model's bigrams, past requests,
    and always the live context. Without any of these, the `tokenizer` must be given.

    Finished requests join the past ones, where there are any. A frozen table of a datastore's own
    corpus adds nothing and is left out. `vocabulary` is the number of ids; all others are one
    unknown id. Where it is `judged`, every written token changes how far its sources are trusted.

    Raises UsageError where no tokenizer is known or a bound makes no sense, ArtifactError for
    artifacts of different tokenizers.
    """

    wants_evidence = True
    takes_references = True

    @within_limits("blend")
    def __init__(
        self,
        datastores: Sequence[Datastore] = (),
        frozen_table: FrozenTable | None = None,
        bigram: ModelBigram | None = None,
        past: PastRequests | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        scan: int = 48,
        sample: int = 256,
        hops: int = 128,
        weights: Weights | None = None,
    ) -> None:
        if frozen_table is not None and any(_same_corpus(frozen_table, d) for d in datastores):
            frozen_table = None
        # Keeps the arrays behind the kernels' addresses alive.
        self._artifacts = [*datastores, *(a for a in (frozen_table, bigram) if a)]
        record = _common_tokenizer(self._artifacts, past, tokenizer)
        self.over = describe(self._artifacts, record)
        self.vocabulary = record.vocabulary
        self._past = past
        self._prompt_tokens = 0
        self._shards = Shards()
        weights = load_weights() if weights is None else weights
        limits = (scan, sample, hops)
        sources = new_sources(datastores, frozen_table, bigram, record, limits, weights)
        self._sources = Packed(sources)
        several = len(sources.experts.trust) > 1
        self.judged = several or bigram is not None or self._past is not None
        self._references = NONE
        self._place = Packed(new_place(len(sources.corpus.table)))
        self._tree = Packed(new_tree(len(sources.corpus.table), 0))
        self._size = 0

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        self._set_references(reference_texts(references))
        sources, place = self._sources.parts, self._place.parts
        forget(sources.evidence)
        sources.experts.trust[:] = 0
        forget_trust(sources.copying)
        sources.live.latest[:] = -1
        place.root[:] = 0
        place.past[:] = 0
        place.recent[:] = NO_TOKEN
        place.aligned[:] = new_state()
        place.copied[:] = new_copy_state()
        self._size = 0
        self._prompt_tokens = len(prompt)
        self._refresh_past()
        self._append(prompt)
        # Keeps the array behind the place alive.
        self._answer = None if self._past is None else self._past.answer_to(prompt)
        if self._answer is not None:
            follow_answer(place.copied, self._answer, 0, self.vocabulary)
        if len(self._references):
            act(ALIGN, self._sources, self._place, self._tree, 0, 0)

    def _set_references(self, texts: ReferenceTexts) -> None:
        """Draft from these references, from their beginning."""
        if len(texts) or len(self._references):
            self._references = texts  # keeps the arrays behind the table alive
            references = texts.for_request() if len(texts) else Absent()
            self._sources = Packed(self._sources.parts._replace(references=references))

    def _refresh_past(self) -> None:
        """Take in new past requests; they stay as they are until the next start."""
        if self._past is None:
            return
        self._past.refresh()
        before, self._shards = self._shards, self._past.shards  # keeps the arrays alive
        if self._shards is before:
            return
        sources = self._sources.parts
        at_start, since = sources.past_at_start, sources.past_since
        if self._shards.at_start is not before.at_start:  # else what was counted there holds
            at_start = at_start._replace(corpus=_past_corpus(self._shards.at_start))
        since = since._replace(corpus=_past_corpus(self._shards.since + self._shards.newest))
        self._sources = Packed(sources._replace(past_at_start=at_start, past_since=since))

    def draft(self, budget: int) -> DraftTree:
        if len(self._tree.parts.tokens) < budget:
            self._tree = Packed(new_tree(len(self._sources.parts.corpus.table), budget))
        tree = self._tree.parts
        n = act(DRAFT, self._sources, self._place, self._tree, self._size, budget)
        tokens, parents = tree.tokens[:n].copy(), tree.parents[:n].copy()
        return DraftTree(tokens, parents, tree.scores[:n].copy(), tree.origins[:n].copy())

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        before = self._place.parts.recent.copy()
        learns = self.judged or evidence is not None or len(self._references) > 0
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
        # A model may have more ids than its tokenizer; all of those, and what is no id at all, are
        # one unknown id.
        ids = live.tokens[begin:end].view(np.uint32)
        np.minimum(np.asarray(tokens, np.int32).view(np.uint32), self.vocabulary, out=ids)
        what = LEARN if judged else EXTEND
        act(what, self._sources, self._place, self._tree, begin, end)
        self._size = end

    @property
    def sources(self) -> BlendSources:
        """Return what its kernels read; valid while the drafter lives, until a request starts or
        accepts."""
        sources: BlendSources = self._sources.parts
        return sources

    def finish(self) -> None:
        """Add the request to the past ones."""
        if self._past is not None and self._size:
            self._past.remember(self._sources.parts.live.tokens[: self._size], self._prompt_tokens)


def _common_tokenizer(
    artifacts: Sequence[Artifact], past: PastRequests | None, tokenizer: TokenizerRecord | None
) -> TokenizerRecord:
    """Return the artifacts' tokenizer, where there are any: their ids index the arrays."""
    require_one_tokenizer(artifacts)
    record = artifacts[0].tokenizer if artifacts else past.tokenizer if past else tokenizer
    if record is None:
        raise UsageError("the blend drafter needs an artifact or a tokenizer", "give one of them")
    if past is not None:
        past.tokenizer.require(record, "the history")
    return record


def _same_corpus(one: Artifact, other: Artifact) -> bool:
    """Return whether both hold the same documents, by their manifests."""
    key = one.manifest.corpus_key
    return key is not None and key == other.manifest.corpus_key


def new_sources(
    datastores: Sequence[Datastore],
    frozen: FrozenTable | None,
    bigram: ModelBigram | None,
    tokenizer: TokenizerRecord,
    limits: tuple[int, int, int],
    weights: Weights,
) -> BlendSources:
    """Return what the kernels read of a drafter's artifacts, which must outlive it. `limits`: scan,
    sample and hops."""
    scan, sample, hops = limits
    vocabulary = tokenizer.vocabulary
    nothing = new_corpus(search_table(()))
    return BlendSources(
        corpus=_shared_corpus(datastores, (scan, sample)),
        frozen=new_frozen(None if frozen is None else frozen.table),
        live=new_live(vocabulary, LIVE),
        past_at_start=new_history(nothing),
        past_since=new_history(nothing),
        bigram=new_bigram(*(() if bigram is None else (bigram.next_tokens, bigram.log_probs))),
        evidence=new_evidence(),
        references=Absent(),
        shares=log_shares(datastores, frozen, vocabulary),
        limits=np.array([scan, sample, hops, eos_of(tokenizer)], np.int64),
        weights=widened(weights),
        copying=new_copying(),
        experts=new_experts(max(len(datastores) + (frozen is not None), 1)),
        scratch=new_scratch(weights),
        into=new_candidates(vocabulary),
        second=new_candidates(vocabulary),
    )


def _shared_corpus(datastores: Sequence[Datastore], sampled: tuple[int, int]) -> SearchedCorpus:
    """Return the datastores' corpus; of a single datastore, one that its drafters share."""

    def new() -> SearchedCorpus:
        shards = [shard for datastore in datastores for shard in datastore.shards]
        ends = np.cumsum([len(datastore.shards) for datastore in datastores], dtype=np.int64)
        firsts = [_first_tokens(datastore)[:-1] for datastore in datastores]  # no separator
        summed = np.stack(firsts) if firsts else None
        return new_corpus(search_table(shards), ends=ends, firsts=summed)

    if len(datastores) != 1:
        return new()
    corpora = _CORPORA.setdefault(datastores[0], {})
    if sampled not in corpora:
        corpora[sampled] = new()
    return corpora[sampled]


def _past_corpus(shards: Sequence[DatastoreShard]) -> SearchedCorpus:
    return new_corpus(search_table(shards), PAST_ROWS)


def _first_tokens(datastore: Datastore) -> npt.NDArray[np.int64]:
    """Return how many suffixes begin with each token, over all shards, int64[V + 1]."""
    counts = np.zeros(datastore.separator + 1, np.int64)
    for shard in datastore.shards:
        bounds = shard.first_token.astype(np.int64)
        counts += bounds[1:] - bounds[:-1]
    return counts


def log_shares(
    datastores: Sequence[Datastore], frozen: FrozenTable | None, vocabulary: int
) -> npt.NDArray[np.float32]:
    """Return log(1 + each token's share of the corpora's tokens, in millionths), float32[V + 1]."""
    counts = np.zeros(vocabulary + 1, np.float64)
    for datastore in datastores:
        counts += _first_tokens(datastore)
    if frozen is not None:  # a longer leader's last token stands for itself
        np.add.at(counts, frozen.leaders[:, -1], frozen.leader_counts)
    counts *= MILLION / max(counts.sum(), 1)
    return np.log1p(counts).astype(np.float32)


def load_weights(path: Path = FITTED) -> Weights:
    """Read the fitted weights. Raises ArtifactError where the file has other shapes than the
    kernel."""
    arrays = open_arrays(path)
    try:
        weights = Weights(*(np.array(arrays[name], np.float32) for name in Weights._fields))
    except KeyError as error:
        raise ArtifactError(f"{path} has no {error}", "fit the weights again") from error
    hidden, units = len(weights.gate_bias), len(weights.token_bias)
    shapes = [
        (GATE_FEATURES, hidden), (hidden,), (hidden, GATES), (GATES,),
        (TOKEN_FEATURES, units), (units,), (units + 1,),
    ]  # fmt: skip
    if [w.shape for w in weights] != shapes:
        raise ArtifactError(f"{path} is of another shape than the kernel's", "fit it again")
    return weights
