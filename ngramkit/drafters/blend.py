"""blend: one probability model over all sources, and the tree of its most probable paths.

Gates fitted on other text (research.fit_blend) mix the continuations of the last 1, 2, 3, ...
tokens; other sources are trusted as far as they have been right so far. Scores are calibrated: a
node with score 0.3 is accepted about three times in ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.drafters.base import (
    NO_TOKENS,
    BaseDrafter,
    DraftTree,
    Evidence,
    TokenArray,
    describe_artifacts,
    eos_of,
)
from ngramkit.drafters.blend_request import BlendRequest, SharedArrays, SharedSources, Workspace
from ngramkit.drafters.options import BlendOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import Given, reference_texts
from ngramkit.formats.artifact import Artifact, require_one_tokenizer
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.safetensors import open_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.kernels.blend.counts import SearchedCorpus, new_corpus
from ngramkit.kernels.blend.evidence import new_bigram
from ngramkit.kernels.blend.weighting import (
    GATE_FEATURES,
    GATES,
    TOKEN_FEATURES,
    Weights,
    pad_gates,
)
from ngramkit.kernels.suffix.search import shard_table

FITTED_WEIGHTS = Path(__file__).with_name("blend_weights.safetensors")  # the mixture's weights
MILLION = 1e6

# Memos by datastore and (scan, sample), shared by its drafters. Two threads that write one row at
# once may spoil a draft, never the text.
_MEMOS: WeakKeyDictionary[Datastore, dict[tuple[int, int], SearchedCorpus]] = WeakKeyDictionary()


class Blend(BaseDrafter):
    """Draft from datastores, a frozen table, bigrams, past requests and the live context.

    `tokenizer` is needed only without artifacts and past requests. Finished requests join `past`.
    Duplicate datastores, and a frozen table of a datastore's corpus, are ignored. Ids beyond the
    vocabulary are one unknown id.

    Raises UsageError without a tokenizer or for an option out of bounds, ArtifactError for
    different tokenizers.
    """

    wants_evidence = True
    takes_references = True

    def __init__(
        self,
        datastores: Sequence[Datastore] = (),
        frozen_table: FrozenTable | None = None,
        bigram: ModelBigram | None = None,
        past: PastRequests | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        weights: Weights | None = None,
        options: BlendOptions = BlendOptions(),
    ) -> None:
        datastores = list({each.manifest.checksum: each for each in datastores}.values())
        if frozen_table is not None and any(_same_corpus(frozen_table, d) for d in datastores):
            frozen_table = None
        artifacts = [*datastores, *(a for a in (frozen_table, bigram) if a)]
        record = _common_tokenizer(artifacts, past, tokenizer)
        self.over = describe_artifacts(artifacts, record)
        self.vocabulary = record.vocabulary
        self.past = past
        weights = load_weights() if weights is None else weights
        given = SharedArrays(
            table=shard_table([shard for each in datastores for shard in each.shards]),
            frozen=None if frozen_table is None else frozen_table.table,
            bigram=new_bigram(*(() if bigram is None else (bigram.next_tokens, bigram.log_probs))),
            shares=log_shares(datastores, frozen_table, self.vocabulary),
            limits=np.array([*astuple(options), eos_of(record)], np.int64),
            weights=pad_gates(weights),
        )
        judged = bigram is not None or past is not None
        self.shared = SharedSources(given, artifacts, judged=judged)
        sampled = options.scan, options.sample
        memo = _shared_memo(datastores[0], sampled) if len(datastores) == 1 else None
        self.workspace = Workspace(self.shared, memo)
        self.request: BlendRequest | None = None  # None before the first start

    def start(self, prompt: TokenArray, references: Given = ()) -> None:
        texts = reference_texts(references)
        if self.past is not None:
            if self.request is not None:
                self.request.release_past()
            self.past.refresh()
            self.shared.refresh()
        self.request = self.workspace.request(self._known(prompt), self.past, texts)
        self.request.begin(self.workspace, len(prompt), NO_TOKENS)

    def draft(self, budget: int) -> DraftTree:
        return self.workspace.draft(self._begun, budget)

    def accept(self, tokens: TokenArray, evidence: Evidence | None = None) -> None:
        self._begun.accept(self.workspace, self._known(tokens), evidence)

    def finish(self) -> None:
        if self.past is not None and self.request is not None and self.request.size:
            self.past.remember(self.request.tokens, self.request.prompt)

    @property
    def _begun(self) -> BlendRequest:
        if self.request is None:
            self.start(NO_TOKENS)
        assert self.request is not None
        return self.request

    def _known(self, tokens: TokenArray) -> TokenArray:
        ids = np.ascontiguousarray(tokens, np.int32).view(np.uint32)
        return np.minimum(ids, np.uint32(self.vocabulary)).view(np.int32)


def _common_tokenizer(
    artifacts: Sequence[Artifact], past: PastRequests | None, tokenizer: TokenizerRecord | None
) -> TokenizerRecord:
    require_one_tokenizer(artifacts)
    record = artifacts[0].tokenizer if artifacts else past.tokenizer if past else tokenizer
    if record is None:
        raise UsageError(
            "cannot make a blend drafter: it needs an artifact or a tokenizer", "Give one of them."
        )
    if past is not None:
        past.tokenizer.require(record, "the history")
    return record


def _same_corpus(one: Artifact, other: Artifact) -> bool:
    key = one.manifest.corpus_key
    return key is not None and key == other.manifest.corpus_key


def _shared_memo(datastore: Datastore, sampled: tuple[int, int]) -> SearchedCorpus:
    memos = _MEMOS.setdefault(datastore, {})
    if sampled not in memos:
        memos[sampled] = new_corpus(shard_table(datastore.shards))
    return memos[sampled]


def log_shares(
    datastores: Sequence[Datastore], frozen: FrozenTable | None, vocabulary: int
) -> npt.NDArray[np.float32]:
    """Return log(1 + each token's share of the corpora's tokens, in millionths), float32[V + 1]."""
    counts = np.zeros(vocabulary + 1, np.float64)
    for shard in (shard for datastore in datastores for shard in datastore.shards):
        bounds = shard.first_token.astype(np.int64)
        counts += bounds[1:] - bounds[:-1]  # suffixes that begin with each token
    if frozen is not None:  # each leader counts for its last token
        np.add.at(counts, frozen.leaders[:, -1], frozen.leader_counts)
    counts *= MILLION / max(counts.sum(), 1)
    return np.log1p(counts).astype(np.float32)


def load_weights(path: Path = FITTED_WEIGHTS) -> Weights:
    """Read the fitted weights. Raises ArtifactError if their shapes are not the kernel's."""
    arrays = open_arrays(path)
    try:
        weights = Weights(*(np.array(arrays[name], np.float32) for name in Weights._fields))
    except KeyError as error:
        raise ArtifactError(
            f"cannot read {path}: it has no {error}", "Fit the weights again."
        ) from error
    hidden, units = len(weights.gate_bias), len(weights.token_bias)
    shapes = [
        (GATE_FEATURES, hidden), (hidden,), (hidden, GATES), (GATES,),
        (TOKEN_FEATURES, units), (units,), (units + 1,),
    ]  # fmt: skip
    if [w.shape for w in weights] != shapes:
        raise ArtifactError(
            f"cannot use {path}: its shapes are not the kernel's", "Fit the weights again."
        )
    return weights
