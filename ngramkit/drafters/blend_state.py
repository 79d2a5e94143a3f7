"""What one blend drafter holds in memory, as the flat arrays its kernels want."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import eos_of
from ngramkit.drafters.bigram import probabilities_by_bits
from ngramkit.formats.datastore import Datastore, DatastoreShard, search_table
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.blend.corpus import KEPT, Corpus, Memo
from ngramkit.kernels.blend.frozen import Frozen, frozen_row
from ngramkit.kernels.blend.history import CONTINUATIONS, OFTEN, History
from ngramkit.kernels.blend.live import Live
from ngramkit.kernels.blend.mixture import EVIDENCE, GATES, TRAITS, Scratch, Weights
from ngramkit.kernels.blend.opinions import ORDERS, TOPS, Bigram, Opinions, bigram_row
from ngramkit.kernels.blend.predict import PAST_SHARDS, Place, Sources
from ngramkit.kernels.blend.table import BUFFER, CANDIDATES, COLUMNS, DEPTH, N_LEVELS, Candidates
from ngramkit.kernels.blend.tree import Tree
from ngramkit.kernels.blend.trust import ASKED, RIGHT, SURENESS

MEMO_ROWS = 1 << 15
MILLION = 1e6
OPINION_ROWS = 1 << 14
# First trusts, as if learnt from so many tokens. In the bigrams' and the last one, two and three
# tokens' opinions, the less the surer the counts are; in past requests by what matched, LEVELS.
PRIOR = 10.0
FIRST_TRUST = (0.1, 0.3, 0.5, 0.7)
FIRST_PAST_TRUST = (0.02, 0.06, 0.12, 0.25, 0.4, 0.7)


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
    nothing = new_corpus(())
    return Sources(
        corpus=_shared_corpus(datastores, (scan, sample)),
        frozen=new_frozen(frozen),
        live=new_live(vocabulary, 1 << 12),
        earlier=new_history(nothing),
        lately=new_history(nothing),
        bigram=new_bigram(bigram),
        opinions=new_opinions(),
        shares=log_shares(datastores, frozen, vocabulary),
        limits=np.array([scan, sample, hops, eos_of(tokenizer)], np.int64),
        weights=weights,
        scratch=new_scratch(weights),
        into=new_candidates(vocabulary),
        aside=new_candidates(vocabulary),
    )


def new_place(sources: Sources) -> Place:
    """Before the first token."""
    root = np.zeros((DEPTH + 1, len(sources.corpus.table), 2), np.int64)
    past = np.zeros((2, DEPTH + 1, PAST_SHARDS, 2), np.int64)
    recent = np.full(DEPTH, NO_TOKEN, np.int32)
    return Place(recent, root, past, np.zeros_like(root), np.zeros_like(past))


def new_tree(sources: Sources, budget: int) -> Tree:
    shards = len(sources.corpus.table)
    return Tree(
        tokens=np.empty(budget, np.int32),
        parents=np.empty(budget, np.int32),
        scores=np.empty(budget, np.float32),
        origins=np.empty(budget, np.uint8),
        intervals=np.empty((budget + 1, DEPTH + 1, shards, 2), np.int64),
        past=np.empty((budget + 1, 2, DEPTH + 1, PAST_SHARDS, 2), np.int64),
        recents=np.empty((budget + 1, DEPTH), np.int32),
        queue_p=np.empty(budget + 1, np.float32),
        queue=np.empty((budget + 1, 3), np.int32),
    )


def _shared_corpus(datastores: Sequence[Datastore], sampled: tuple[int, int]) -> Corpus:
    if len(datastores) != 1:
        return new_corpus([shard for datastore in datastores for shard in datastore.shards])
    known = _KNOWN.setdefault(datastores[0], {})
    if sampled not in known:
        known[sampled] = new_corpus(datastores[0].shards)
    return known[sampled]


def new_live(vocabulary: int, capacity: int) -> Live:
    return Live(
        tokens=np.empty(capacity, np.int32),
        previous=np.empty(capacity, np.int32),
        latest=np.full(vocabulary + 1, -1, np.int32),
        counts=np.zeros(vocabulary + 1, np.int32),
    )


def grown(live: Live, capacity: int) -> Live:
    """The same with room for `capacity` tokens."""
    more = capacity - len(live.tokens)
    return live._replace(
        tokens=np.concatenate([live.tokens, np.empty(more, np.int32)]),
        previous=np.concatenate([live.previous, np.empty(more, np.int32)]),
    )


def new_candidates(vocabulary: int) -> Candidates:
    return Candidates(
        tokens=np.empty(CANDIDATES, np.int32),
        counts=np.empty((CANDIDATES, COLUMNS), np.float32),
        newest=np.empty(CANDIDATES, np.int32),
        source=np.empty(CANDIDATES, np.uint8),
        slot=np.zeros(vocabulary + 1, np.int32),
        stamp=np.zeros(vocabulary + 1, np.int32),
        totals=np.zeros(COLUMNS, np.float32),
        distinct=np.zeros(COLUMNS, np.float32),
        state=np.zeros(3, np.int64),
        positions=np.empty(BUFFER, np.int64),
        successors=np.empty(BUFFER, np.int64),
    )


def new_scratch(weights: Weights) -> Scratch:
    sizes = EVIDENCE, len(weights.gate_bias), GATES, TRAITS, len(weights.trait_bias), CANDIDATES
    return Scratch(*(np.empty(size, np.float32) for size in sizes))


def new_memo(rows: int = MEMO_ROWS) -> Memo:
    """Pages are taken as they are touched: about 13 MB at most."""
    return Memo(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, KEPT), np.int32),
        counts=np.zeros((rows, KEPT), np.float32),
        sizes=np.zeros((rows, 2), np.int32),
        totals=np.zeros(rows, np.float32),
    )


def new_corpus(shards: Sequence[DatastoreShard], rows: int = MEMO_ROWS) -> Corpus:
    """The shards must outlive it."""
    return Corpus(
        table=search_table(shards),
        memo=new_memo(rows if shards else 1),
        pair_keys=np.zeros(rows if shards else 1, np.uint64),
        pairs=np.zeros((rows if shards else 1, len(shards), 2), np.int64),
    )


def new_frozen(table: FrozenTable | None) -> Frozen:
    """The table must outlive it."""
    if table is None:
        return Frozen(np.zeros(11, np.int64), new_memo(1))
    arrays = table.leaders, table.leader_counts, table.follower_offsets
    where = frozen_row(*arrays, table.followers, table.follower_counts)
    return Frozen(where, new_memo())


def new_bigram(bigram: ModelBigram | None) -> Bigram:
    """The bigrams must outlive it."""
    if bigram is None:
        return Bigram(np.zeros(5, np.int64), np.zeros(1, np.float32))
    where = bigram_row(bigram.next_tokens, bigram.log_probs)
    return Bigram(where, probabilities_by_bits())


def new_history(corpus: Corpus) -> History:
    trust = np.full((N_LEVELS, OFTEN, 2), PRIOR)
    trust[..., RIGHT] *= np.array(FIRST_PAST_TRUST)[:, None]
    return History(
        corpus=corpus,
        tokens=np.empty(CONTINUATIONS, np.int32),
        p=np.empty(CONTINUATIONS, np.float32),
        trust=trust,
    )


def new_opinions(rows: int = OPINION_ROWS) -> Opinions:
    opinions = Opinions(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows + 1, TOPS), np.int32),
        p=np.zeros((rows + 1, TOPS), np.float32),
        trust=np.zeros((ORDERS + 1, SURENESS, 2), np.float64),
    )
    forget(opinions)
    return opinions


def forget(opinions: Opinions) -> None:
    """A new request: other text, other opinions."""
    opinions.keys[:] = 0
    unsure = 1 - (np.arange(SURENESS) + 0.5) / SURENESS
    opinions.trust[..., RIGHT] = PRIOR * np.outer(FIRST_TRUST, unsure)
    opinions.trust[..., ASKED] = PRIOR


def log_shares(
    datastores: Sequence[Datastore], frozen: FrozenTable | None, vocabulary: int
) -> npt.NDArray[np.float32]:
    """float32[V + 1]: log(1 + each token's share of the corpora's tokens, in millionths)."""
    counts = np.zeros(vocabulary + 1, np.float64)
    for shard in (shard for datastore in datastores for shard in datastore.shards):
        counts += np.diff(shard.first_token.astype(np.float64))
    if frozen is not None:  # a longer leader's last token stands for itself
        np.add.at(counts, frozen.leaders[:, -1], frozen.leader_counts)
    counts *= MILLION / max(counts.sum(), 1)
    return np.log1p(counts).astype(np.float32)
