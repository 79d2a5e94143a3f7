"""Requests that draft from a shared source, and the workspaces that threads draft in.

A source (`BlendSource`, `DrafterSource`) is opened once and, but for past requests that are taken
in between two steps, read only. A workspace belongs to one thread: what it counts in, the tree that
it grows, and its memos of what was sampled, so no two threads ever write into one array. A request
holds its live context and what it learnt of its sources. A `Job` is a request's part in a batch: a
workspace drafts for many jobs in one call of a kernel.

blend has a request of its own (`BlendRequest`): at a vocabulary of 152,000 under 1 MB and 16 bytes
a token. It drafts exactly what a Blend would after start(tokens[:prompt]) and
accept(tokens[prompt:]). Every other drafter is made once for each request (`DrafterRequest`), over
shared artifacts.

Token ids are int32, 0..vocabulary: unknown ids are the vocabulary's size (`batch.clipped`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.budget.rule import SHARES_OF_MATCHES
from ngramkit.drafters.base import NOTHING, Drafter, DraftTree, LiveContext, TokenArray
from ngramkit.drafters.blend import PAST_ROWS, Blend
from ngramkit.drafters.past_requests import PastRequests, Shards
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import DatastoreShard, search_table
from ngramkit.kernels.blend import copying
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
from ngramkit.kernels.tree import best_path

if TYPE_CHECKING:
    from ngramkit.engines.growth import GrowingHistory

CHECKPOINTS = 64  # of what a request learnt, so that tokens can be taken back
ROOM = 256  # tokens that a new live context has room for beyond its prompt
LOOKS = 64  # contexts looked at for a chain, and its tokens, at most
PAST = ("past_at_start", "past_since")  # parts that are a tenant's
TRUSTED = ("experts", *PAST, "copying", "evidence")  # parts that learn a trust
Trust = npt.NDArray[np.float64]


class Job(NamedTuple):
    """The work for one request: take in what was written, then draft."""

    request: Any  # a request of the workspace's source
    written: TokenArray  # int32[n], since its last draft
    size: int  # nodes of the tree or tokens of the chain, at most; 0: no draft
    lag: int = 0  # versions by which its past requests may be behind, to save time


class _Source:
    """The artifacts and the history that all requests share. `compared`: what else is of a
    tokenizer that must be the engine's."""

    def __init__(self) -> None:
        self.artifacts: Sequence[Artifact] = ()
        self.compared: Sequence[Artifact] = ()
        self.history: GrowingHistory | None = None

    def past(self, tenant: str) -> PastRequests | None:
        """Return the past requests that a tenant's requests draft from."""
        return None if self.history is None else self.history.past(tenant)


class PastTable:
    """Past requests of one origin as kernels search them."""

    def __init__(self, shards: Sequence[DatastoreShard]) -> None:
        self.shards = shards  # keeps the arrays behind the table alive
        self.table = search_table(shards)


class PastTables:
    """Past requests as kernels search them, of the `version` that they had before `refresh`."""

    def __init__(self, shards: Shards, before: PastTables | None = None) -> None:
        self.shards = shards
        self.version: int = 0 if before is None else before.version + 1
        since = PastTable(shards.since + shards.newest)
        if before is not None and before.origins[0].shards is shards.at_start:
            at_start = before.origins[0]  # what was counted there holds
        else:
            at_start = PastTable(shards.at_start)
        self.origins: tuple[PastTable, PastTable] = at_start, since  # each of PAST


class BlendSource(_Source):
    """What all requests of blend draft from."""

    def __init__(self, blend: Blend) -> None:
        super().__init__()
        self._tables: WeakKeyDictionary[PastRequests, PastTables] = WeakKeyDictionary()
        self._trusts: WeakKeyDictionary[PastRequests, Trust] = WeakKeyDictionary()
        blend.start(NOTHING)  # takes in past requests
        self._alive = blend  # keeps the arrays behind addresses
        self.sources = blend.sources
        self.vocabulary, self.judged = blend.vocabulary, blend.judged
        first = [getattr(self.sources, name).trust.ravel() for name in TRUSTED]
        self.first_trust: Trust = np.concatenate(first)
        begins = np.cumsum([0, *map(len, first)])  # of each part in first_trust, and its end
        self.trust_offsets = (begins[:-1] * self.first_trust.itemsize).tolist()  # in bytes
        begin, end = TRUSTED.index(PAST[0]), TRUSTED.index(PAST[-1]) + 1
        self._past_trust = slice(int(begins[begin]), int(begins[end]))
        self.live = Packed(new_live(self.vocabulary, 1))
        self.place = Packed(new_place(len(self.sources.corpus.table)))

    def trust_in(self, past: PastRequests | None) -> Trust:
        """Return what a request that drafts from `past` trusts at first, not to be written to: the
        past requests half as far as the last one that ended had learnt."""
        return self.first_trust if past is None else self._trusts.get(past, self.first_trust)

    def keep_trust(self, past: PastRequests, trust: Trust) -> None:
        """Let the next requests trust `past` as one does that ended, but remember half of it: what
        comes later may be of another kind."""
        first, learnt = self.first_trust.copy(), self._past_trust
        first[learnt] = (first[learnt] + trust[learnt]) / 2
        self._trusts[past] = first

    def workspace(self) -> Workspace:
        """Return a new workspace, for one thread."""
        return Workspace(self)

    def tables(self, past: PastRequests) -> PastTables:
        """Return the tables of `past` as of the last `refresh`."""
        if past not in self._tables:
            self._tables[past] = PastTables(past.shards)
        return self._tables[past]

    def refresh(self) -> None:
        """Take in what the past requests of all tenants have become, while no thread drafts."""
        for past, tables in list(self._tables.items()):
            if tables.shards is not past.shards:
                self._tables[past] = PastTables(past.shards, tables)


class BlendRequest:
    """One request, which one thread at a time uses, each call with that thread's workspace.

    `prompt` of its `size` tokens were there when it began. It drafts from `past`, as they were
    when `tables` was made.
    """

    def __init__(
        self,
        source: BlendSource,
        workspace: Workspace,
        prompt: TokenArray,
        past: PastRequests | None = None,
    ) -> None:
        self._source = source
        self.past = past
        self.tables: PastTables | None = None
        room = len(prompt) + max(ROOM, len(prompt) // 4)
        self.live = source.live.of_same_type(new_live(source.vocabulary, room))
        self._place = source.place.of_same_type(new_place(len(source.sources.corpus.table)))
        self._first_trust = source.trust_in(past)
        self.trust: Trust = self._first_trust.copy()
        begin = self.trust.__array_interface__["data"][0]
        self.place = self._place.address
        self.trusts = [begin + offset for offset in source.trust_offsets]  # addresses
        self._checkpoints: deque[_Checkpoint] = deque(maxlen=CHECKPOINTS)
        self.prompt = self.size = 0
        self.catch_up(workspace)
        self._act(workspace, EXTEND, *self._append(prompt))
        self.prompt = self.size

    @property
    def tokens(self) -> TokenArray:
        """All tokens, int32[size]; a view, valid until the next call."""
        tokens: TokenArray = self.live.parts.tokens[: self.size]
        return tokens

    @property
    def bytes(self) -> int:
        """Size of the request's own arrays, in bytes."""
        parts = [*self.live.parts, *self._place.parts, self.trust]
        return int(
            sum(each.nbytes for each in (*parts, *(a for c in self._checkpoints for a in c[1:])))
        )

    def append(self, tokens: TokenArray) -> tuple[int, int]:
        """Append what was written, and return its begin and end. A kernel has yet to count it."""
        if len(tokens):
            copied = self._place.parts.copied.copy()
            self._checkpoints.append(_Checkpoint(self.size, self.trust.copy(), copied))
        return self._append(tokens)

    def _append(self, tokens: TokenArray) -> tuple[int, int]:
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown(self.live.parts, end + max(ROOM, end // 4))
            self.live = self._source.live.of_same_type(live)
        self.live.parts.tokens[begin:end] = tokens
        self.size = end
        return begin, end

    def rewind(self, workspace: Workspace, size: int) -> None:
        """Take back all but the first `size` tokens, and what was learnt from the others."""
        if size >= self.size:
            return
        if self.tables is None:
            self.catch_up(workspace)
        while self._checkpoints and self._checkpoints[-1].size > size:
            self._checkpoints.pop()
        begin, copied = 0, copying.new_copy_state()
        self.trust[:] = self._first_trust
        if self._checkpoints:
            begin, self.trust[:], copied = self._checkpoints[-1]
        self._take_back(workspace, begin)
        self._place.parts.copied[:] = copied
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            self._act(workspace, EXTEND, 0, begin)
        self._act(workspace, LEARN if self._source.judged else EXTEND, begin, size)
        self.size = size

    def _act(self, workspace: Workspace, what: int, begin: int, end: int) -> None:
        workspace.bind(self)
        act(what, workspace.sources, self._place, workspace.tree, begin, end)

    def _take_back(self, workspace: Workspace, begin: int) -> None:
        workspace.bind(self)
        sources, tree = workspace.sources, workspace.tree
        serve_chains(REWIND, sources, self._place, tree, begin, self.size)

    def catch_up(self, workspace: Workspace, lag: int = 0) -> None:
        """Draft from the past requests as they are now, unless `tables` is `lag` versions behind
        them or less: the last tokens are looked up anew."""
        if self.past is None:
            return
        newest = self._source.tables(self.past)
        if self.tables is None or newest.version - self.tables.version > lag:
            self.tables = newest
            self._forget_places_in_past()
            self._take_back(workspace, self.size)

    def _forget_places_in_past(self) -> None:
        """Forget places in past requests, which hold addresses of the tables so far."""
        nowhere = copying.new_copy_state()[copying.PAST]
        for copied in (self._place.parts.copied, *(each.copied for each in self._checkpoints)):
            copied[copying.PAST] = nowhere

    def rest(self) -> None:
        """Let past requests go until `catch_up`."""
        if self.past is None or self.tables is None:
            return
        self._source.keep_trust(self.past, self.trust)
        self.tables = None
        self._forget_places_in_past()


class _Checkpoint(NamedTuple):
    """What a request had learnt when it had `size` tokens."""

    size: int
    trust: Trust
    copied: npt.NDArray[np.int64]


class Workspace:
    """The arrays that one thread counts and drafts in, for one request or several in a call."""

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
                copying=copying.new_copying(),
                evidence=new_evidence(1),
                experts=new_experts(len(shared.experts.trust)),
                scratch=new_scratch(shared.weights),
                into=new_candidates(vocabulary),
                second=new_candidates(vocabulary),
            )
        )
        # The live context and past requests that kernels work on.
        self._bound: tuple[Packed, PastTables | None] | None = None
        # Of what was counted in past requests each thread has memos of its own.
        self._pasts: WeakKeyDictionary[PastTable, Packed] = WeakKeyDictionary()
        inside = self.sources.inside
        self._live = self.sources.place_of("live")
        self._trusts = [inside[name].place_of("trust") for name in TRUSTED]
        self._shards = len(shared.corpus.table)
        self._chains = Packed(new_tree(self._shards, LOOKS))
        self.tree = Packed(new_tree(self._shards, 0))
        self._copies = _SourceCopies(self.sources, 0)

    def request(self, prompt: TokenArray, past: PastRequests | None = None) -> BlendRequest:
        """Begin a request, which drafts from `past`, or from what the source was made with."""
        return BlendRequest(self._source, self, prompt, past)

    def trees(self, jobs: Sequence[Job]) -> list[DraftTree]:
        """Return a tree of at most `size` nodes for each job, as Drafter.draft."""
        if not jobs:
            return []
        sizes = [job.size for job in jobs]
        self.tree = self._grown(self.tree, max(sizes), len(jobs))
        self._serve(self.tree, jobs, sizes)
        return _drafts(self.tree.parts, len(jobs))

    def chains(self, jobs: Sequence[Job], cost: float) -> list[DraftTree]:
        """Return for each job the path of at most `size` tokens that is worth most, where each
        token costs `cost` passes; see kernels.blend.tree."""
        if not jobs:
            return []
        self._chains = self._grown(self._chains, LOOKS, len(jobs))
        tree = self._chains.parts
        tree.least[0] = cost
        self._serve(self._chains, jobs, [0] * len(jobs))
        tree.jobs[: len(jobs), BUDGET] = [min(job.size, LOOKS) for job in jobs]
        serve_chains(CHAINS, self.sources, self._source.place, self._chains, 0, len(jobs))
        return _drafts(tree, len(jobs))

    def _grown(self, tree: Packed, nodes: int, jobs: int) -> Packed:
        """Return a tree with room for that many nodes and jobs at least."""
        have, rows = len(tree.parts.tokens), len(tree.parts.jobs)
        if nodes <= have and jobs <= rows:
            return tree
        jobs = max(jobs, 2 * rows) if jobs > rows else rows  # batches grow request by request
        if jobs > len(self._copies):
            self._copies = _SourceCopies(self.sources, jobs)
        return Packed(new_tree(self._shards, max(nodes, have), jobs))

    def _serve(self, tree: Packed, jobs: Sequence[Job], sizes: Sequence[int]) -> None:
        """Take in what was written for each job, then draw it a tree of at most that size."""
        learns = self._source.judged
        requests = [job.request for job in jobs]
        for job in jobs:
            job.request.catch_up(self, job.lag)
        spans = [job.request.append(job.written) for job in jobs]
        if len(jobs) == 1:
            self.bind(jobs[0].request)
            sources = [self.sources.address]
        else:
            pasts = [self._packed(each.tables) for each in requests if each.tables]
            sources = self._copies.bind(requests, pasts, learns=learns)
        what = LEARN if learns else EXTEND
        tree.parts.jobs[: len(jobs)] = [
            (what, address, job.request.place, begin, end, size, 0)
            for address, job, (begin, end), size in zip(sources, jobs, spans, sizes, strict=True)
        ]
        act(SEVERAL, self.sources, self._source.place, tree, 0, len(jobs))

    def bind(self, request: BlendRequest) -> None:
        """Let kernels work on `request` from now on."""
        bound = request.live, request.tables
        if self._bound == bound:  # another array where a request has outgrown its own
            return
        block, word = self._live
        block[word] = request.live.address
        trusts = dict(zip(TRUSTED, self._trusts, strict=True))
        if request.tables is not None:
            for name, packed in zip(PAST, self._packed(request.tables), strict=True):
                block, word = self.sources.place_of(name)
                block[word] = packed.address
                trusts[name] = packed.place_of("trust")
        if self._source.judged:  # else nothing is learnt, and trust is what it was at first
            for (block, word), address in zip(trusts.values(), request.trusts, strict=True):
                block[word] = address
        self._bound = bound

    def _packed(self, tables: PastTables) -> list[Packed]:
        """Return past requests packed for this thread."""
        for origin in tables.origins:
            if origin not in self._pasts:
                self._pasts[origin] = Packed(new_history(new_corpus(origin.table, PAST_ROWS)))
        return [self._pasts[origin] for origin in tables.origins]


class _SourceCopies:
    """Copies of a workspace's sources, one for each request of a batch, that differ in what is a
    request's own."""

    def __init__(self, sources: Packed, count: int) -> None:
        self._blocks = sources.rows(count)  # int64[count, words]
        self._live = sources.place_of("live")[1]
        self._trusts = []  # int64[count, words] of each part that learns a trust, and its word
        self._pasts: list[list[Packed]] = []  # of the last batch
        for name in TRUSTED:
            inside, (_, word) = sources.inside[name], sources.place_of(name)
            rows = inside.rows(count)
            self._blocks[:, word] = _addresses(rows)
            self._trusts.append((rows, inside.place_of("trust")[1]))

    def __len__(self) -> int:
        return len(self._blocks)

    def bind(
        self, requests: Sequence[BlendRequest], pasts: list[list[Packed]], *, learns: bool
    ) -> list[int]:
        """Bind a copy to each request, and to its past requests if there are any; return their
        addresses."""
        n = len(requests)
        self._blocks[:n, self._live] = [request.live.address for request in requests]
        if pasts != self._pasts:
            self._pasts = pasts
            for k, name in enumerate(PAST):
                rows = self._trusts[TRUSTED.index(name)][0]
                for row, past in zip(rows, pasts, strict=False):
                    row[:] = past[k].rows(1)[0]
        if learns:
            for i, (rows, word) in enumerate(self._trusts):
                rows[:n, word] = [request.trusts[i] for request in requests]
        addresses: list[int] = _addresses(self._blocks[:n]).tolist()
        return addresses


def _drafts(tree: Tree, jobs: int) -> list[DraftTree]:
    """Return the first `jobs` drafts, parts of one copy."""
    sizes = tree.jobs[:jobs, NODES].tolist()
    most = max(sizes)
    token_ids, parents, sources = np.ascontiguousarray(tree.found[:jobs, :most].transpose(2, 0, 1))
    scores, sources = tree.found_scores[:jobs, :most].copy(), sources.astype(np.uint8)
    return [
        DraftTree(token_ids[job, :n], parents[job, :n], scores[job, :n], sources[job, :n])
        for job, n in enumerate(sizes)
    ]


def _addresses(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    begin: int = rows.__array_interface__["data"][0]
    return begin + np.arange(len(rows)) * rows.strides[0]


def _own(corpus: Corpus, rows: int) -> Corpus:
    return new_corpus(corpus.table, rows, corpus.ends, corpus.firsts)


def _own_history(history: History) -> History:
    return new_history(_own(history.corpus, PAST_ROWS))


def _own_frozen(frozen: Frozen) -> Frozen:
    return frozen._replace(memo=new_memo(MEMO_ROWS if frozen.where[SIZE] else 1))


# Drafters that are not blend.

WIDTH = 4  # nodes of the tree that a chain is taken from, for each of its tokens
FADE = 0.99  # of the record of scores, with each draft


class DrafterSource(_Source):
    """A function that makes the drafter of each request, from its past requests where there are
    any. Nothing is shared between threads but what is read only while they draft, so it is every
    thread's workspace too."""

    def __init__(self, make: Callable[..., Drafter], vocabulary: int) -> None:
        super().__init__()
        self.make, self.vocabulary = make, vocabulary

    def workspace(self) -> DrafterSource:
        return self

    def request(self, prompt: TokenArray, past: PastRequests | None = None) -> DrafterRequest:
        """Begin a request, which drafts from `past`."""
        return DrafterRequest(self.make if past is None else partial(self.make, past), prompt)

    def refresh(self) -> None:
        """Do nothing: drafters look at their past requests whenever they draft."""

    def trees(self, jobs: Sequence[Job]) -> list[DraftTree]:
        """See Workspace.trees."""
        return self._drafts(jobs, lambda request, size: request.tree(size))

    def chains(self, jobs: Sequence[Job], cost: float) -> list[DraftTree]:
        """See Workspace.chains."""
        return self._drafts(jobs, lambda request, size: request.chain(size, cost))

    def _drafts(
        self, jobs: Sequence[Job], draft: Callable[[DrafterRequest, int], DraftTree]
    ) -> list[DraftTree]:
        drafts = []
        for request, written, size, _ in jobs:
            if len(written):
                request.append(written)
            drafts.append(draft(request, size) if size else DraftTree.empty())
        return drafts


class DrafterRequest:
    """A drafter of its own. Where tokens are taken back it begins anew.

    Scores that are shares of matches become probabilities by what such shares have come to in this
    request.
    """

    def __init__(self, make: Callable[[], Drafter], prompt: TokenArray) -> None:
        self._make = make
        self._begin(prompt, len(prompt))

    def _begin(self, tokens: TokenArray, prompt: int) -> None:
        self.prompt = prompt
        self._drafter = self._make()
        self._shares = getattr(self._drafter, "scores_are_shares", False)
        self._record = np.zeros((LEVELS, RUNS, 2), np.float32)
        self._run, self._last = 0, DraftTree.empty()
        self._live = LiveContext(tokens)
        self._drafter.start(tokens[:prompt])
        if len(tokens) > prompt:
            self._drafter.accept(tokens[prompt:])

    @property
    def tokens(self) -> TokenArray:
        """All tokens, int32[size]; a view, valid until the next call."""
        return self._live.tokens

    @property
    def size(self) -> int:
        return self._live.length

    @property
    def bytes(self) -> int:
        """Size of the live context, in bytes; a drafter does not tell what it holds."""
        return self.tokens.nbytes

    def rest(self) -> None:
        """Do nothing: nothing is held but by the drafter."""

    def append(self, tokens: TokenArray) -> None:
        """Take in what was written."""
        if self._shares and len(self._last):
            last, record = self._last, self._record
            drafted = (last.token_ids, last.parents, last.scores)
            self._run = update_record(
                *drafted, np.asarray(tokens, np.int32), record, FADE, self._run
            )
        self._last = DraftTree.empty()
        self._live.append(tokens)
        self._drafter.accept(tokens)

    def rewind(self, workspace: DrafterSource, size: int) -> None:
        """Take back all but the first `size` tokens."""
        if size < self.size:
            self._begin(self.tokens[:size].copy(), min(size, self.prompt))

    def tree(self, budget: int) -> DraftTree:
        """Return the drafter's tree of at most `budget` nodes."""
        self._last = self._drafter.draft(budget)
        return self._last

    def chain(self, length: int, cost: float) -> DraftTree:
        """Return the tree's path that is worth most, where each token costs `cost` passes."""
        tree = self.tree(WIDTH * length)
        scores = tree.scores
        if self._shares and len(tree):
            scores = chances(tree.parents, scores, self._record, SHARES_OF_MATCHES, self._run)
        path = best_path(tree.parents, scores, length, cost)
        parents = np.arange(-1, len(path) - 1, dtype=np.int32)
        return DraftTree(tree.token_ids[path], parents, scores[path], tree.source[path])
