"""Requests of blend, which draft from a shared source, and the workspaces that threads draft in.

A source is opened once and, but for past requests that are taken in between two steps, read only. A
workspace belongs to one thread: what it counts in, the tree that it grows, and its memos of what
was sampled, so no two threads ever write into one array. A request holds its live context and what
it learnt of its sources: at a vocabulary of 152,000 under 1 MB and 16 bytes a token. A `Job` is a
request's part in a batch: a workspace drafts for many jobs in one call of a kernel.

A request drafts exactly what a Blend would after start(tokens[:prompt]) and
accept(tokens[prompt:]). Other drafters have requests of the same methods in
`engines.drafter_requests`.

Token ids are int32, 0..vocabulary: unknown ids are the vocabulary's size (`sessions.clipped`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import NOTHING, DraftTree, TokenArray
from ngramkit.drafters.blend import PAST_ROWS, Blend
from ngramkit.drafters.past_requests import PastRequests, Shards
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import DatastoreShard, search_table
from ngramkit.kernels.blend import copying
from ngramkit.kernels.blend.counts import (
    MEMO_ROWS,
    SIZE,
    Frozen,
    SearchedCorpus,
    grown,
    new_candidates,
    new_corpus,
    new_live,
    new_memo,
)
from ngramkit.kernels.blend.evidence import new_evidence
from ngramkit.kernels.blend.mixture import HistoryCorpus, new_experts, new_history, new_scratch
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
from ngramkit.kernels.packed import Packed

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


class RequestSource:
    """The artifacts and the history that all requests share. `compared` are those whose tokenizer
    must be the engine's."""

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


class BlendSource(RequestSource):
    """The artifacts, models and past requests of all requests of blend."""

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
        self.trust_ends: list[int] = np.cumsum([len(part) for part in first]).tolist()
        begin, end = TRUSTED.index(PAST[0]), TRUSTED.index(PAST[-1])
        self._past_trust = slice(self.trust_ends[begin - 1], self.trust_ends[end])
        end = self.trust_ends[TRUSTED.index("copying")]
        kinds = self.sources.copying.trust.shape[1]
        self.same = slice(end - kinds, end)  # the trust in answers to the same prompt
        self.live = Packed(new_live(self.vocabulary, 1))
        self.place = Packed(new_place(len(self.sources.corpus.table)))

    def trust_in(self, past: PastRequests | None) -> Trust:
        """Return the trust that a request over `past` begins with; do not write to it. The past
        requests are trusted half as far as the last request that ended had learnt; answers to the
        same prompt, as far as the last that had one."""
        return self.first_trust if past is None else self._trusts.get(past, self.first_trust)

    def keep_trust(self, past: PastRequests, trust: Trust, begun: Trust) -> None:
        """Let the next requests trust `past` as one does that ended, but remember half of it: what
        comes later may be of another kind. Of answers to the same prompt it `begun` with a trust,
        of which all counts that it has changed."""
        first, learnt, same = self.first_trust.copy(), self._past_trust, self.same
        first[learnt] = (first[learnt] + trust[learnt]) / 2
        before = self.trust_in(past)[same]
        first[same] = np.where(trust[same] == begun, before, trust[same])
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

    __slots__ = (
        "_answer", "_begun", "_checkpoints", "_copied", "_first_trust", "_kept", "_learnt",
        "_place", "_sizes", "_source", "bound", "live", "past", "place", "prompt", "size",
        "tables", "trust",
    )  # fmt: skip

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
        self._answer: TokenArray | None = None  # to the same prompt
        self._first_trust = source.trust_in(past)
        self._begun = self._first_trust[source.same]  # trust in that answer
        # Its trust, then the places that it copies from: what a checkpoint keeps, in one copy.
        first = self._first_trust.view(np.int64), copying.new_copy_state().ravel()
        self._learnt: npt.NDArray[np.int64] = np.concatenate(first)
        trusted = len(self._first_trust)
        self.trust: Trust = self._learnt[:trusted].view(np.float64)
        self._copied = _places(self._learnt[trusted:])
        place = new_place(len(source.sources.corpus.table))._replace(copied=self._copied)
        self._place = source.place.of_same_type(place)
        self.place = self._place.address
        self.bound: dict[Workspace, Packed] = {}  # the sources that it drafts with there
        self._checkpoints = np.empty((CHECKPOINTS, len(self._learnt)), np.int64)  # a ring
        self._sizes: deque[int] = deque(maxlen=CHECKPOINTS)  # tokens at each, the newest last
        self._kept = 0  # checkpoints, with those that were overwritten
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
        parts = *self.live.parts, *self._place.parts, self.trust, self._checkpoints
        return int(sum(each.nbytes for each in parts))

    def append(self, tokens: TokenArray) -> tuple[int, int]:
        """Append what was written, int32[n], for a kernel to count; return its begin and end."""
        if len(tokens):
            self._checkpoints[self._kept % CHECKPOINTS] = self._learnt
            self._sizes.append(self.size)
            self._kept += 1
        return self._append(tokens)

    def _append(self, tokens: TokenArray) -> tuple[int, int]:
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown(self.live.parts, end + max(ROOM, end // 4))
            self.live = self._source.live.of_same_type(live)
            self.bound.clear()
        self.live.parts.tokens[begin:end] = tokens
        self.size = end
        return begin, end

    def rewind(self, workspace: Workspace, size: int) -> None:
        """Take back all but the first `size` tokens, and what was learnt from the others."""
        if size >= self.size:
            return
        if self.tables is None:
            self.catch_up(workspace)
        while self._sizes and self._sizes[-1] > size:
            self._sizes.pop()
            self._kept -= 1
        begin = self._sizes[-1] if self._sizes else 0
        if begin:
            learnt = self._checkpoints[(self._kept - 1) % CHECKPOINTS]
        else:
            first = self._first_trust.view(np.int64), copying.new_copy_state().ravel()
            learnt = np.concatenate(first)
        self._take_back(workspace, begin)
        self._learnt[:] = learnt
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            self._act(workspace, EXTEND, 0, begin)
        self._act(workspace, LEARN if self._source.judged else EXTEND, begin, size)
        self.size = size

    def _act(self, workspace: Workspace, what: int, begin: int, end: int) -> None:
        act(what, workspace.bind(self), self._place, workspace.tree, begin, end)

    def _take_back(self, workspace: Workspace, begin: int) -> None:
        sources, tree = workspace.bind(self), workspace.tree
        serve_chains(REWIND, sources, self._place, tree, begin, self.size)

    def begin(self, workspace: Workspace, prompt: int, written: TokenArray) -> TokenArray:
        """Go on as the request whose prompt is the first `prompt` tokens, `written` included:
        follow what was last answered to it. Return what of `written` is still to be taken in."""
        if self.past is None:
            return written
        more = max(prompt - self.size, 0)
        whole = np.concatenate([self.tokens, written[:more]])
        answer = self.past.answer_to(whole[:prompt])
        if answer is not None and more:
            self.catch_up(workspace)
            self._act(workspace, LEARN, *self.append(written[:more]))
            written = written[more:]
        self._follow(answer, prompt)
        trust = self._source.trust_in(self.past)
        self._begun = trust[self._source.same]
        self.trust[self._source.same] = self._begun
        return written

    def _follow(self, answer: TokenArray | None, prompt: int) -> None:
        """Follow this answer, or none, from now on, if what was written began as it does."""
        self._answer, at = answer, self.size - prompt
        self._forget_place(copying.SAME)
        if answer is not None and np.array_equal(answer[:at], self.tokens[prompt:]):
            copying.follow_answer(self._copied, answer, at, self._source.vocabulary)

    def catch_up(self, workspace: Workspace, lag: int = 0) -> None:
        """Draft from the past requests as they are now, unless `tables` is `lag` versions behind
        them or less: the last tokens are looked up anew."""
        if self.past is None:
            return
        newest = self._source.tables(self.past)
        if self.tables is None or newest.version - self.tables.version > lag:
            self._set_tables(newest)
            self._take_back(workspace, self.size)

    def _set_tables(self, tables: PastTables | None) -> None:
        """Draft from `tables`, and forget places in past requests, which are addresses in the
        tables before."""
        self.tables = tables
        self.bound.clear()
        self._forget_place(copying.PAST)

    def _forget_place(self, which: int) -> None:
        """Forget a place that it copies from, in what it would be taken back to, too."""
        nowhere = copying.new_copy_state()[which]
        for copied in self._copied, _places(self._checkpoints[:, len(self.trust) :]):
            copied[..., which, :] = nowhere

    def rest(self) -> None:
        """Let past requests go until `catch_up`."""
        if self.past is None or self.tables is None:
            return
        self._source.keep_trust(self.past, self.trust, self._begun)
        self._set_tables(None)


def _places(state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return states of copying that are flat, int64[..., n], as kernels read them; a view."""
    return state.reshape(*state.shape[:-1], *copying.new_copy_state().shape)


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
        # Of what was counted in past requests each thread has memos of its own.
        self._pasts: WeakKeyDictionary[PastTable, Packed] = WeakKeyDictionary()
        self._shards = len(shared.corpus.table)
        self._chains = Packed(new_tree(self._shards, LOOKS))
        self.tree = Packed(new_tree(self._shards, 0))

    def request(self, prompt: TokenArray, past: PastRequests | None = None) -> BlendRequest:
        """Begin a request, which drafts from `past`, or from what the source was made with."""
        return BlendRequest(self._source, self, prompt, past)

    def drafts(self, jobs: Sequence[Job], cost: float | None = None) -> list[DraftTree]:
        """Take in what was written for each job, and return a tree of at most `size` nodes, as
        Drafter.draft; where a token costs `cost` passes, the path of at most `size` tokens that is
        worth most, see kernels.blend.tree."""
        return self.prepare(jobs, cost)() if jobs else []

    def prepare(self, jobs: Sequence[Job], cost: float | None) -> Callable[[], list[DraftTree]]:
        """Do what `drafts` does up to the kernels, which the function that is returned runs."""
        if cost is None:
            tree = self.tree = self._grown(self.tree, max(job.size for job in jobs), len(jobs))
        else:
            tree = self._chains = self._grown(self._chains, LOOKS, len(jobs))
            tree.parts.least[0] = cost
        what = LEARN if self._source.judged else EXTEND
        rows: list[int] = []  # flat: numpy takes a list of tuples in three times as long
        for request, written, size, lag in jobs:
            request.catch_up(self, lag)
            begin, end = request.append(written)
            nodes = size if cost is None else 0
            rows += what, self.bind(request).address, request.place, begin, end, nodes, 0
        tree.parts.jobs[: len(jobs)] = np.array(rows, np.int64).reshape(len(jobs), -1)
        lengths = [min(job.size, LOOKS) for job in jobs]

        def draw() -> list[DraftTree]:
            act(SEVERAL, self.sources, self._source.place, tree, 0, len(jobs))
            if cost is not None:
                tree.parts.jobs[: len(jobs), BUDGET] = lengths
                serve_chains(CHAINS, self.sources, self._source.place, tree, 0, len(jobs))
            return _drafts(tree.parts, len(jobs))

        return draw

    def _grown(self, tree: Packed, nodes: int, jobs: int) -> Packed:
        """Return a tree with room for that many nodes and jobs at least."""
        most, rows = len(tree.parts.tokens), len(tree.parts.jobs)
        if nodes <= most and jobs <= rows:
            return tree
        rows = max(jobs, 2 * rows) if jobs > rows else rows  # batches grow request by request
        return Packed(new_tree(self._shards, max(nodes, most), rows))

    def bind(self, request: BlendRequest) -> Packed:
        """Return a copy of this workspace's sources with the live context, the past requests and
        the trust of `request` in them, which lasts until one of these is another array."""
        sources = request.bound.get(self)
        if sources is None:
            sources = request.bound[self] = self.sources.copy()
            sources.put("live", request.live)
            inside = dict(self.sources.inside)
            if request.tables is not None:
                inside |= zip(PAST, map(self._packed, request.tables.origins), strict=True)
            trusts = np.split(request.trust, self._source.trust_ends[:-1])
            for name, trust in zip(TRUSTED, trusts, strict=True):
                part = inside[name].copy()
                part.point("trust", trust.reshape(part.parts.trust.shape))
                sources.put(name, part)
        return sources

    def _packed(self, origin: PastTable) -> Packed:
        """Return past requests packed for this thread."""
        if origin not in self._pasts:
            self._pasts[origin] = Packed(new_history(new_corpus(origin.table, PAST_ROWS)))
        return self._pasts[origin]


def _drafts(tree: Tree, jobs: int) -> list[DraftTree]:
    """Return the first `jobs` drafts, parts of one copy."""
    sizes = tree.jobs[:jobs, NODES].tolist()
    most = max(sizes)
    token_ids, parents, sources = np.ascontiguousarray(tree.found[:jobs, :most].transpose(2, 0, 1))
    scores, sources = tree.found_scores[:jobs, :most].copy(), sources.astype(np.uint8)
    nothing = DraftTree.empty()
    return [
        DraftTree(token_ids[job, :n], parents[job, :n], scores[job, :n], sources[job, :n])
        if n
        else nothing
        for job, n in enumerate(sizes)
    ]


def _own(corpus: SearchedCorpus, rows: int) -> SearchedCorpus:
    return new_corpus(corpus.table, rows, corpus.ends, corpus.firsts)


def _own_history(history: HistoryCorpus) -> HistoryCorpus:
    return new_history(_own(history.corpus, PAST_ROWS))


def _own_frozen(frozen: Frozen) -> Frozen:
    return frozen._replace(memo=new_memo(MEMO_ROWS if frozen.where[SIZE] else 1))
