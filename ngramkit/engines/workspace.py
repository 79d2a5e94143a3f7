"""What a batch asks of a request: to take in what was written, and then to draft."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import NOTHING, Drafter, DraftTree, LiveContext, TokenArray
from ngramkit.drafters.blend import PAST_ROWS, Blend
from ngramkit.engines.model_tokens import Built
from ngramkit.kernels.blend.counts import (
    MEMO_ROWS,
    SIZE,
    Corpus,
    Frozen,
    grown,
    new_candidates,
    new_corpus,
    new_live,
    new_memo,
)
from ngramkit.kernels.blend.evidence import new_evidence
from ngramkit.kernels.blend.mixture import History, new_experts, new_history, new_scratch
from ngramkit.kernels.blend.prediction import new_place
from ngramkit.kernels.blend.tree import (
    BUDGET,
    CHAINS,
    EXTEND,
    LEARN,
    NODES,
    REWIND,
    SEVERAL,
    Tree,
    act,
    new_tree,
    serve_chains,
)
from ngramkit.kernels.budget import LEVELS, RUNS, chances, update_record
from ngramkit.kernels.packed import Packed


class Asked(NamedTuple):
    request: Any  # see blend_requests, drafter_requests
    written: TokenArray  # since its last draft
    size: int  # nodes or tokens to draft then, at most; 0: none


# The best path of a draft tree, for engines that verify one path.
#
# A token costs `least` of a pass and is accepted with its score: a path is worth the sum of
# (score - least) over its nodes. Scores fall along a path, so it ends where a token no longer pays.


def best_path(tree: DraftTree, length: int, least: float) -> DraftTree:
    """The path from the root that is worth most, at most `length` nodes; empty where none pays.
    Ties go to the earlier node.

    parents [-1, -1, 1], scores [0.5, 0.4, 0.3] -> nodes 1 and 2 at least 0 (0.7 against 0.5), node
    0 at least 0.35 (0.15 against 0.05).
    """
    worth: list[float] = []
    depth: list[int] = []
    best, most = -1, 0.0
    parents = tree.parents.tolist()
    for node, (parent, score) in enumerate(zip(parents, tree.scores.tolist(), strict=True)):
        depth.append(depth[parent] + 1 if parent >= 0 else 1)
        worth.append((worth[parent] if parent >= 0 else 0.0) + score - least)
        if depth[node] <= length and worth[node] > most:
            best, most = node, worth[node]
    path: list[int] = []
    while best >= 0:
        path.append(best)
        best = parents[best]
    kept = np.array(path[::-1], np.int64)
    columns = tree.token_ids[kept], tree.scores[kept], tree.source[kept]
    return DraftTree(
        columns[0], np.arange(-1, len(kept) - 1, dtype=np.int32), columns[1], columns[2]
    )


def came_true(tree: DraftTree, written: np.ndarray) -> int:
    """How many tokens of `written`, int32[n], stand on a path from the root."""
    at, tokens, parents = -1, tree.token_ids.tolist(), tree.parents.tolist()
    for count, token in enumerate(written.tolist()):
        for node in range(at + 1, len(tokens)):
            if parents[node] == at and tokens[node] == token:
                at = node
                break
        else:
            return count
    return len(written)


# blend for many requests: what all share, what a thread counts in, what a request holds.
#
# `BlendSource`: corpora, tables and past requests, read only. `Desk`: tables to count in, a tree to
# grow and memos of what was sampled, one for each thread, so that no two ever write into one. A
# `BlendRequest` holds its live context and what was learnt of its sources: at a vocabulary of
# 152,000 under 1 MB and 16 bytes a token. It drafts exactly what a Blend of its own would after
# start(tokens[:prompt]) and accept(tokens[prompt:]).

CHECKPOINTS = 64  # of what was learnt, so that tokens can be taken back
ROOM = 256  # tokens of a live context that there is room for at first
Trust = npt.NDArray[np.float64]


class BlendSource:
    """What all requests draft from. The past requests are those of when this was made."""

    def __init__(self, blend: Blend) -> None:
        self.built: list[Built] = []  # what it was opened from
        blend.start(NOTHING)  # takes in past requests
        self._alive = blend  # and with it the arrays behind addresses
        self.sources = blend.sources
        self.vocabulary, self.judged = blend.vocabulary, blend.judged
        first = [getattr(self.sources, name).trust.ravel() for name in TRUSTED]
        self.first_trust: Trust = np.concatenate(first)
        # Where in that each begins, in bytes.
        self.trust_offsets = np.cumsum([0, *(each.nbytes for each in first[:-1])]).tolist()
        self.live = Packed(new_live(self.vocabulary, 1))
        self.place = Packed(new_place(len(self.sources.corpus.table)))

    def desk(self) -> Desk:
        return Desk(self)

    def request(self, desk: Desk, prompt: TokenArray) -> BlendRequest:
        return BlendRequest(self, desk, prompt)

    def trees(self, desk: Desk, asked: Sequence[Asked]) -> list[DraftTree]:
        """A tree for each, when what was written is told: in one call of a kernel."""
        return desk.trees(asked)

    def chains(self, desk: Desk, asked: Sequence[Asked], least: float) -> list[DraftTree]:
        return desk.chains(asked, least)


class BlendRequest:
    """One request, `prompt` tokens of which were there at first. Use it from one thread at a time,
    each call with that thread's desk. Tokens are int32[n], 0..vocabulary: unknown ids are the
    vocabulary's size, as `batch.known` makes them."""

    def __init__(self, source: BlendSource, desk: Desk, prompt: TokenArray) -> None:
        self._source = source
        room = len(prompt) + max(ROOM, len(prompt) // 4)
        self.live = source.live.of_same_type(new_live(source.vocabulary, room))
        self._place = source.place.of_same_type(new_place(len(source.sources.corpus.table)))
        self.trust: Trust = source.first_trust.copy()
        begin = self.trust.__array_interface__["data"][0]
        self.place = self._place.address
        self.trusts = [begin + offset for offset in source.trust_offsets]  # addresses
        self._learnt: deque[tuple[int, Trust]] = deque(maxlen=CHECKPOINTS)
        self.prompt = self.size = 0
        self._act(desk, EXTEND, *self._put(prompt))
        self.prompt = self.size

    @property
    def tokens(self) -> TokenArray:
        """int32[size], unknown ids as the vocabulary's size; a view, until the next call."""
        found: TokenArray = self.live.parts.tokens[: self.size]
        return found

    @property
    def bytes(self) -> int:
        """What it holds, of arrays."""
        parts = [*self.live.parts, *self._place.parts, self.trust]
        return int(sum(each.nbytes for each in (*parts, *(t for _, t in self._learnt))))

    def extend(self, desk: Desk, tokens: TokenArray) -> None:
        """These were written."""
        desk.trees([Asked(self, tokens, 0)])

    def put(self, tokens: TokenArray) -> tuple[int, int]:
        """They were written: from where to where they stand. No kernel is told yet."""
        if self._source.judged and len(tokens):
            self._learnt.append((self.size, self.trust.copy()))
        return self._put(tokens)

    def _put(self, tokens: TokenArray) -> tuple[int, int]:
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown(self.live.parts, end + max(ROOM, end // 4))
            self.live = self._source.live.of_same_type(live)
        self.live.parts.tokens[begin:end] = tokens
        self.size = end
        return begin, end

    def rewind(self, desk: Desk, size: int) -> None:
        """Of what there is, only the first `size` tokens were written; what was learnt from the
        others is unlearnt."""
        if size >= self.size:
            return
        if not self._source.judged:
            self._take_back(desk, size)
            self.size, self.prompt = size, min(size, self.prompt)
            return
        while self._learnt and self._learnt[-1][0] > size:
            self._learnt.pop()
        begin, trust = self._learnt[-1] if self._learnt else (0, self._source.first_trust)
        self._take_back(desk, begin)
        self.trust[:] = trust
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            self._act(desk, EXTEND, 0, begin)
        self._act(desk, LEARN, begin, size)
        self.size = size

    def tree(self, desk: Desk, budget: int) -> DraftTree:
        """As Drafter.draft."""
        return desk.trees([Asked(self, NOTHING, budget)])[0]

    def chain(self, desk: Desk, length: int, least: float) -> DraftTree:
        """The path of at most `length` tokens that is worth most, where each costs `least` passes:
        see kernels.blend.tree."""
        return desk.chains([Asked(self, NOTHING, length)], least)[0]

    def _act(self, desk: Desk, what: int, begin: int, end: int) -> None:
        desk.seat(self)
        act(what, desk.sources, self._place, desk.tree, begin, end)

    def _take_back(self, desk: Desk, begin: int) -> None:
        """The tokens from there on."""
        desk.seat(self)
        serve_chains(REWIND, desk.sources, self._place, desk.tree, begin, self.size)


# Where a thread counts and drafts for blend's requests, one after another or several in a row.

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


# Requests of the drafters that are not blend: each has a drafter of its own over shared artifacts.
#
# Where an engine takes tokens back, such a request begins anew: its drafts are those of a drafter
# that is started with the tokens up to the prompt's end and accepts the others. Scores that are
# shares of matches are put as probabilities first, by what such shares have come to in this
# request.

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
            self._run = update_record(
                *drafted, np.asarray(tokens, np.int32), record, FADE, self._run
            )
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
