"""A blend drafter's artifacts as the sources that its kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import eos_of
from ngramkit.formats.datastore import Datastore, search_table
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.blend.counts import (
    Corpus,
    frozen_row,
    new_candidates,
    new_corpus,
    new_frozen,
    new_live,
)
from ngramkit.kernels.blend.evidence import new_bigram, new_evidence
from ngramkit.kernels.blend.mixture import Weights, new_experts, new_history, new_scratch
from ngramkit.kernels.blend.prediction import Sources
from ngramkit.kernels.packed import Absent

LIVE = 1 << 12  # tokens of a live context that there is room for at first
MILLION = 1e6

# What samples of a datastore gave holds for every drafter over it. Two threads that write one row
# at once may spoil a draft, never what the model writes.
_KNOWN: WeakKeyDictionary[Datastore, dict[tuple[int, int], Corpus]] = WeakKeyDictionary()


def new_sources(
    datastores: Sequence[Datastore],
    frozen: FrozenTable | None,
    bigram: ModelBigram | None,
    tokenizer: TokenizerRecord,
    limits: tuple[int, int, int],
    weights: Weights,
) -> Sources:
    """`limits`: scan, sample and hops. The artifacts must outlive it."""
    scan, sample, hops = limits
    vocabulary = tokenizer.vocabulary
    nothing = new_corpus(search_table(()))
    return Sources(
        corpus=_shared_corpus(datastores, (scan, sample)),
        frozen=new_frozen(None if frozen is None else _row_of(frozen)),
        live=new_live(vocabulary, LIVE),
        past_at_start=new_history(nothing),
        past_since=new_history(nothing),
        bigram=new_bigram(*(() if bigram is None else (bigram.next_tokens, bigram.log_probs))),
        evidence=new_evidence(),
        references=Absent(),
        shares=log_shares(datastores, frozen, vocabulary),
        limits=np.array([scan, sample, hops, eos_of(tokenizer)], np.int64),
        weights=weights,
        experts=new_experts(max(len(datastores) + (frozen is not None), 1)),
        scratch=new_scratch(weights),
        into=new_candidates(vocabulary),
        second=new_candidates(vocabulary),
    )


def _row_of(table: FrozenTable) -> npt.NDArray[np.int64]:
    arrays = table.leaders, table.leader_counts, table.follower_offsets
    return frozen_row(*arrays, table.followers, table.follower_counts)


def _shared_corpus(datastores: Sequence[Datastore], sampled: tuple[int, int]) -> Corpus:
    def new() -> Corpus:
        shards = [shard for datastore in datastores for shard in datastore.shards]
        ends = np.cumsum([len(datastore.shards) for datastore in datastores], dtype=np.int64)
        firsts = [_first_tokens(datastore)[:-1] for datastore in datastores]  # no separator
        summed = np.stack(firsts) if firsts else None
        return new_corpus(search_table(shards), ends=ends, firsts=summed)

    if len(datastores) != 1:
        return new()
    known = _KNOWN.setdefault(datastores[0], {})
    if sampled not in known:
        known[sampled] = new()
    return known[sampled]


def _first_tokens(datastore: Datastore) -> npt.NDArray[np.int64]:
    """int64[V + 1]: how many suffixes begin with each token, over all shards."""
    counts = np.zeros(datastore.separator + 1, np.int64)
    for shard in datastore.shards:
        bounds = shard.first_token.astype(np.int64)
        counts += bounds[1:] - bounds[:-1]
    return counts


def log_shares(
    datastores: Sequence[Datastore], frozen: FrozenTable | None, vocabulary: int
) -> npt.NDArray[np.float32]:
    """float32[V + 1]: log(1 + each token's share of the corpora's tokens, in millionths)."""
    counts = np.zeros(vocabulary + 1, np.float64)
    for datastore in datastores:
        counts += _first_tokens(datastore)
    if frozen is not None:  # a longer leader's last token stands for itself
        np.add.at(counts, frozen.leaders[:, -1], frozen.leader_counts)
    counts *= MILLION / max(counts.sum(), 1)
    return np.log1p(counts).astype(np.float32)
