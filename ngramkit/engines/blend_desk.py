"""Where a thread counts and drafts for blend's requests, one after another or several in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.blend import PAST_ROWS
from ngramkit.engines.asked import Asked
from ngramkit.kernels.blend.counts import (
    MEMO_ROWS,
    SIZE,
    Corpus,
    Frozen,
    new_candidates,
    new_corpus,
    new_memo,
)
from ngramkit.kernels.blend.evidence import new_evidence
from ngramkit.kernels.blend.mixture import History, new_experts, new_history, new_scratch
from ngramkit.kernels.blend.tree import (
    BUDGET,
    CHAINS,
    EXTEND,
    LEARN,
    NODES,
    SEVERAL,
    Tree,
    act,
    new_tree,
    serve_chains,
)
from ngramkit.kernels.packed import Packed

if TYPE_CHECKING:
    from ngramkit.engines.blend_requests import BlendRequest, BlendSource

LOOKS = 64  # contexts looked at for a chain, and its tokens, at most
TRUSTED = (
    "experts",
    "past_at_start",
    "past_since",
    "evidence",
)  # parts of Sources that learn a trust


class Desk:
    """Where one thread counts and drafts: for a request, or for several in one call."""

    def __init__(self, source: BlendSource) -> None:
        shared, vocabulary = source.sources, source.vocabulary
        self._source = source
        self.sources = Packed(
            shared._replace(
                corpus=_own(shared.corpus, MEMO_ROWS),
                frozen=_own_frozen(shared.frozen),
                live=source.live.parts,
                past_at_start=_own_history(shared.past_at_start),
                past_since=_own_history(shared.past_since),
                evidence=new_evidence(1),
                experts=new_experts(len(shared.experts.trust)),
                scratch=new_scratch(shared.weights),
                into=new_candidates(vocabulary),
                second=new_candidates(vocabulary),
            )
        )
        self._seated: Packed | None = None
        inside = self.sources.inside
        self._live = self.sources.place_of("live")
        self._trusts = [inside[name].place_of("trust") for name in TRUSTED]
        self._shards = len(shared.corpus.table)
        self._chains = Packed(new_tree(self._shards, LOOKS))
        self.tree = Packed(new_tree(self._shards, 0))
        self._seats = Seats(self.sources, 0)

    def trees(self, asked: Sequence[Asked]) -> list[DraftTree]:
        """See BlendSource.trees."""
        if not asked:
            return []
        sizes = [each.size for each in asked]
        self.tree = self._grown(self.tree, max(sizes), len(asked))
        self._tell(self.tree, asked, sizes)
        return _found(self.tree.parts, len(asked))

    def chains(self, asked: Sequence[Asked], least: float) -> list[DraftTree]:
        """See BlendSource.chains."""
        if not asked:
            return []
        self._chains = self._grown(self._chains, LOOKS, len(asked))
        tree = self._chains.parts
        tree.least[0] = least
        self._tell(self._chains, asked, [0] * len(asked))
        tree.jobs[: len(asked), BUDGET] = [min(each.size, LOOKS) for each in asked]
        serve_chains(CHAINS, self.sources, self._source.place, self._chains, 0, len(asked))
        return _found(tree, len(asked))

    def _grown(self, tree: Packed, nodes: int, jobs: int) -> Packed:
        """With room for so many of both, at least."""
        have, seats = len(tree.parts.tokens), len(tree.parts.jobs)
        if nodes <= have and jobs <= seats:
            return tree
        jobs = max(jobs, 2 * seats) if jobs > seats else seats  # batches grow request by request
        self._seats = self._seats.grown(jobs)
        return Packed(new_tree(self._shards, max(nodes, have), jobs))

    def _tell(self, tree: Packed, asked: Sequence[Asked], sizes: Sequence[int]) -> None:
        """Each takes in what was written, then a tree of so many nodes is drawn for it."""
        learns = self._source.judged
        spans = [each.request.put(each.written) for each in asked]
        if len(asked) == 1:
            self.seat(asked[0].request)
            seats = [self.sources.address]
        else:
            seats = self._seats.take([each.request for each in asked], learns=learns)
        what = LEARN if learns else EXTEND
        tree.parts.jobs[: len(asked)] = [
            (what, seat, each.request.place, begin, end, size, 0)
            for seat, each, (begin, end), size in zip(seats, asked, spans, sizes, strict=True)
        ]
        act(SEVERAL, self.sources, self._source.place, tree, 0, len(asked))

    def seat(self, request: BlendRequest) -> None:
        """What kernels do next they do for `request`."""
        if self._seated is request.live:  # anew where a request has outgrown its arrays
            return
        block, word = self._live
        block[word] = request.live.address
        if self._source.judged:  # else nothing is learnt, and trust is what it was at first
            for (block, word), address in zip(self._trusts, request.trusts, strict=True):
                block[word] = address
        self._seated = request.live


def _found(tree: Tree, jobs: int) -> list[DraftTree]:
    drafts = []
    for job, n in enumerate(tree.jobs[:jobs, NODES].tolist()):
        token_ids, parents, source = (tree.found[job, :n, column] for column in range(3))
        scores = tree.found_scores[job, :n].copy()
        drafts.append(DraftTree(token_ids.copy(), parents.copy(), scores, source.astype(np.uint8)))
    return drafts


class Seats:
    """Sources for as many requests at once: a desk's, but for what is a request's own."""

    def __init__(self, sources: Packed, count: int) -> None:
        self._sources, self._blocks = sources, sources.rows(count)
        self._live = sources.place_of("live")[1]
        self._trusts = []  # int64[count, words] of what learns a trust, and the word of that
        for name in TRUSTED:
            inside, (_, word) = sources.inside[name], sources.place_of(name)
            rows = inside.rows(count)
            self._blocks[:, word] = _addresses(rows)
            self._trusts.append((rows, inside.place_of("trust")[1]))

    def grown(self, count: int) -> Seats:
        """For so many, at least."""
        return self if count <= len(self._blocks) else Seats(self._sources, count)

    def take(self, requests: Sequence[BlendRequest], *, learns: bool) -> list[int]:
        """Where the sources of each are, until the next call."""
        n = len(requests)
        self._blocks[:n, self._live] = [request.live.address for request in requests]
        if learns:
            for i, (rows, word) in enumerate(self._trusts):
                rows[:n, word] = [request.trusts[i] for request in requests]
        addresses: list[int] = _addresses(self._blocks[:n]).tolist()
        return addresses


def _addresses(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    begin: int = rows.__array_interface__["data"][0]
    return begin + np.arange(len(rows)) * rows.strides[0]


def _own(corpus: Corpus, rows: int) -> Corpus:
    return new_corpus(corpus.table, rows, corpus.ends, corpus.firsts)


def _own_history(history: History) -> History:
    return new_history(_own(history.corpus, PAST_ROWS))


def _own_frozen(frozen: Frozen) -> Frozen:
    return frozen._replace(memo=new_memo(MEMO_ROWS if frozen.where[SIZE] else 1))
