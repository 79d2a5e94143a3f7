"""Requests of blend, the sources that they share, and the workspaces in which threads draft.

A request needs less than 1 MB at a vocabulary of 152,000, 16 bytes a token, and 3.4 MB once it has
seen evidence. Token ids are int32, 0..vocabulary: all unknown ids are the vocabulary's size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import DraftTree, Evidence, TokenArray
from ngramkit.drafters.past_requests import PastRequests, Shards
from ngramkit.drafters.references import NO_REFERENCES, ReferenceTexts
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend import copied_text
from ngramkit.kernels.blend.copied_text import COLUMNS, PLACES
from ngramkit.kernels.blend.counts import (
    SearchedCorpus,
    grown_context,
    new_candidates,
    new_corpus,
    new_frozen,
    new_live,
)
from ngramkit.kernels.blend.evidence import (
    SKIP_GRAM_LENGTH,
    BigramTable,
    learn_evidence,
    new_evidence,
)
from ngramkit.kernels.blend.references import new_edits
from ngramkit.kernels.blend.sources import BlendSources, new_place
from ngramkit.kernels.blend.tree import EXTEND, LEARN, NODES, REWIND, Tree, new_tree, run_jobs
from ngramkit.kernels.blend.weighting import Weights, new_history, new_scratch
from ngramkit.kernels.packed_arguments import Packed
from ngramkit.kernels.suffix.search import shard_table

MAX_CHECKPOINTS = 64  # checkpoints of a request's learnt state, for `rewind`
MIN_SPARE_TOKENS = 256  # minimum spare capacity of a live context, in tokens
CHAIN_NODES = 64  # maximum nodes predicted from for a chain, and its maximum tokens
PAST_ROWS = 1 << 13  # rows of the memos of past requests, which change often
PAST_TRUST = ("past_at_start", "past_since")  # sources that depend on the tenant
TRUST_ARRAYS = (*PAST_TRUST, "copying", "evidence")  # sources that learn a trust
Trust = npt.NDArray[np.float64]
States = npt.NDArray[np.int64]


class Job(NamedTuple):
    request: Any  # a request of the workspace's source
    written: TokenArray  # int32[n], since its last draft
    size: int  # maximum nodes of the tree or tokens of the chain; 0: no draft
    lag: int = 0  # versions by which its past requests may be outdated, to save time
    evidence: Evidence | None = None  # of the pass that gave `written`


class PastTable:
    def __init__(self, shards: Sequence[DatastoreShard]) -> None:
        self.shards = shards  # keeps the arrays of the table alive
        self.table = shard_table(shards)


class PastTables:
    def __init__(self, shards: Shards, before: PastTables | None = None) -> None:
        self.shards = shards
        self.version: int = 0 if before is None else before.version + 1
        since = PastTable(shards.since + shards.newest)
        if before is not None and before.origins[0].shards is shards.at_start:
            at_start = before.origins[0]  # so that its memos stay valid
        else:
            at_start = PastTable(shards.at_start)
        self.origins: tuple[PastTable, PastTable] = at_start, since  # in the order of PAST_TRUST


class SharedArrays(NamedTuple):
    """Arrays that all requests of a Blend read; for shapes see kernels.blend.sources."""

    table: Array  # of the datastores' shards
    frozen: dict[str, Array] | None  # of a frozen table
    bigram: BigramTable
    shares: Array
    limits: Array
    weights: Weights

    def sources(self, memo: SearchedCorpus | None = None) -> BlendSources:
        """Return sources with arrays for one thread; `memo`: of the datastores."""
        vocabulary, nothing = len(self.shares) - 1, shard_table(())
        return BlendSources(
            corpus=new_corpus(self.table) if memo is None else memo,
            frozen=new_frozen(self.frozen),
            live=new_live(vocabulary, 1),
            past_at_start=new_history(new_corpus(nothing)),
            past_since=new_history(new_corpus(nothing)),
            bigram=self.bigram,
            evidence=new_evidence(1),
            references=nothing,
            edits=new_edits(0),
            shares=self.shares,
            limits=self.limits,
            weights=self.weights,
            copying=copied_text.new_copying(),
            scratch=new_scratch(self.weights),
            into=new_candidates(vocabulary),
            second=new_candidates(vocabulary),
        )


class SharedSources:
    """Sources shared by all requests of a Blend.

    Unless `judged`, only requests with evidence or references learn from written tokens.
    """

    def __init__(self, given: SharedArrays, artifacts: Sequence[Artifact], *, judged: bool) -> None:
        self.given, self.vocabulary, self.judged = given, len(given.shares) - 1, judged
        self._artifacts = artifacts  # keeps the arrays alive whose addresses the sources have
        self._tables: WeakKeyDictionary[PastRequests, PastTables] = WeakKeyDictionary()
        self._learnt: WeakKeyDictionary[PastRequests, States] = WeakKeyDictionary()
        sources = given.sources()
        first = [getattr(sources, name).trust.ravel() for name in TRUST_ARRAYS]
        self.trust_ends: list[int] = np.cumsum([len(part) for part in first]).tolist()
        places = copied_text.new_places().ravel()
        # A new request's trust, then the places that it copies from.
        self.first_learnt: States = np.concatenate([*(t.view(np.int64) for t in first), places])
        self._past_trust = slice(0, self.trust_ends[len(PAST_TRUST) - 1])
        kinds = sources.copying.trust.shape[1]
        begin = self._past_trust.stop + copied_text.SAME_PROMPT * kinds
        self.same = slice(begin, begin + kinds)  # the trust in answers to the same prompt
        self.live = Packed(sources.live)
        self.place = Packed(new_place(len(given.table)))

    def learnt_over(self, past: PastRequests) -> States:
        """Return a new request's `first_learnt` over `past`; do not write to it."""
        return self._learnt.get(past, self.first_learnt)

    def keep_trust(self, past: PastRequests, trust: Trust, begun: Trust) -> None:
        """Update the trust with which requests over `past` begin, from one that ended.

        Trust in past requests is averaged with the default, since later requests may differ; trust
        in answers to the same prompt is kept if it has changed.
        """
        states, learnt, same = self.first_learnt.copy(), self._past_trust, self.same
        first = states.view(np.float64)
        first[learnt] = (first[learnt] + trust[learnt]) / 2
        before = self.learnt_over(past).view(np.float64)[same]
        first[same] = np.where(trust[same] == begun, before, trust[same])
        self._learnt[past] = states

    def tables(self, past: PastRequests) -> PastTables:
        if past not in self._tables:
            self._tables[past] = PastTables(past.shards)
        return self._tables[past]

    def refresh(self) -> None:
        """Search the newest past requests; call it while no thread drafts."""
        for past, tables in list(self._tables.items()):
            if tables.shards is not past.shards:
                self._tables[past] = PastTables(past.shards, tables)


class BlendRequest:
    """One request, used by one thread at a time, with that thread's workspace."""

    __slots__ = (
        "_answer", "_begun", "_checkpoints", "_copied", "_first", "_kept", "_learnt",
        "_place", "_shared", "_sizes", "bound", "edits", "evidence", "live", "past", "place",
        "prompt", "references", "size", "tables", "trust",
    )  # fmt: skip

    def __init__(self, shared: SharedSources, past: PastRequests | None, room: int) -> None:
        self._shared = shared
        self.past = past
        self.tables: PastTables | None = None
        self.live = shared.live.replace(**new_live(shared.vocabulary, room)._asdict())
        self.evidence: Packed | None = None  # its own table, once evidence is given
        self.references = NO_REFERENCES
        self.edits: Array | None = None  # once there are references
        self._answer: TokenArray | None = None  # to the same prompt; the kernels read it
        self._first = shared.first_learnt if past is None else shared.learnt_over(past)
        self._learnt = self._first.copy()  # a checkpoint is one copy of it
        trust, places = np.split(self._learnt, shared.trust_ends[-1:])
        self.trust: Trust = trust.view(np.float64)
        self._begun = self.trust[shared.same].copy()  # initial trust in that answer
        self._copied = places.reshape(PLACES, COLUMNS)
        place = {name: part.copy() for name, part in shared.place.parts._asdict().items()}
        self._place = shared.place.replace(**{**place, "copied": self._copied})
        self.place = self._place.address
        self.bound: dict[Workspace, Packed] = {}  # its sources, by workspace
        self._checkpoints = np.empty((MAX_CHECKPOINTS, len(self._learnt)), np.int64)  # a ring
        self._sizes: deque[int] = deque(maxlen=MAX_CHECKPOINTS)  # tokens at each, the newest last
        self._kept = 0  # checkpoints made, including overwritten ones
        self.prompt = self.size = 0

    @property
    def tokens(self) -> TokenArray:
        tokens: TokenArray = self.live.parts.tokens[: self.size]
        return tokens

    @property
    def bytes(self) -> int:
        parts = [*self.live.parts, *self._place.parts, self.trust, self._checkpoints]
        parts += [] if self.edits is None else [self.edits]
        if self.evidence is not None:
            parts += [part for part in self.evidence.parts if isinstance(part, np.ndarray)]
        return int(sum(each.nbytes for each in parts))

    @property
    def learns(self) -> bool:
        return self._shared.judged or self.evidence is not None or len(self.references) > 0

    def refer(self, references: ReferenceTexts) -> None:
        """Draft from these references, from the first one's start unless the text ends in one."""
        if len(references) or len(self.references):
            self.references = references  # keeps the arrays of the table alive
            self.edits = new_edits()
            self.bound.clear()
            self._forget_place(copied_text.REFERENCE)
            self._forget_place(copied_text.ALTERNATIVE)
            references.place_at_start(self._copied[copied_text.REFERENCE :], self.tokens)

    def append(self, tokens: TokenArray) -> tuple[int, int]:
        """Append tokens, int32[n], for a kernel to count; return their begin and end."""
        if len(tokens):
            self._checkpoints[self._kept % MAX_CHECKPOINTS] = self._learnt
            self._sizes.append(self.size)
            self._kept += 1
        begin, end = self.size, self.size + len(tokens)
        if end > len(self.live.parts.tokens):
            live = grown_context(self.live.parts, end + max(MIN_SPARE_TOKENS, end // 4))
            self.live = self._shared.live.replace(**live._asdict())
            self.bound.clear()
        self.live.parts.tokens[begin:end] = tokens
        self.size = end
        return begin, end

    def accept(
        self, workspace: Workspace, tokens: TokenArray, evidence: Evidence | None = None
    ) -> None:
        """Append tokens, int32[n], and learn from them and the evidence."""
        if evidence is not None and self.evidence is None and self.size:
            self.evidence = Packed(new_evidence())
            self.bound.clear()
        before = self._place.parts.recent.copy()
        begin, end = self.append(tokens)
        workspace.run(self, LEARN if self.learns and begin else EXTEND, begin, end)
        if evidence is not None and begin:
            learn_evidence(
                self.evidence,
                before,
                self._place.parts.recent,
                np.ascontiguousarray(tokens, np.int32),
                np.ascontiguousarray(evidence.token_ids, np.int32),
                np.ascontiguousarray(evidence.parents, np.int32),
                np.ascontiguousarray(evidence.top_ids, np.int32),
                np.ascontiguousarray(evidence.top_log_probs, np.float32),
                np.empty(SKIP_GRAM_LENGTH, np.int32),
            )

    def rewind(self, workspace: Workspace, size: int) -> None:
        """Remove all but the first `size` tokens, and what was learnt from the rest."""
        if size >= self.size:
            return
        if self.tables is None:
            self.catch_up(workspace)
        while self._sizes and self._sizes[-1] > size:
            self._sizes.pop()
            self._kept -= 1
        begin = self._sizes[-1] if self._sizes else 0
        workspace.run(self, REWIND, begin, self.size)
        last = (self._kept - 1) % MAX_CHECKPOINTS
        self._learnt[:] = self._checkpoints[last] if begin else self._first
        if begin == 0:
            self.prompt = begin = min(size, self.prompt)
            workspace.run(self, EXTEND, 0, begin)
        workspace.run(self, LEARN if self.learns else EXTEND, begin, size)
        self.size = size

    def begin(self, workspace: Workspace, prompt: int, written: TokenArray) -> TokenArray:
        """Begin the request with a prompt of `prompt` tokens, including those of `written`.

        It follows the last answer to that prompt. Returns the part of `written` not appended yet.
        """
        if self.past is None:
            return written
        more = max(prompt - self.size, 0)
        whole = np.concatenate([self.tokens, written[:more]])
        answer = self.past.answer_to(whole[:prompt])
        if answer is not None and more:
            self.catch_up(workspace)
            workspace.run(self, LEARN, *self.append(written[:more]))
            written = written[more:]
        self._follow_last_answer(answer, prompt)
        trust = self._shared.learnt_over(self.past).view(np.float64)
        self._begun = trust[self._shared.same]
        self.trust[self._shared.same] = self._begun
        return written

    def _follow_last_answer(self, answer: TokenArray | None, prompt: int) -> None:
        self._answer, at = answer, self.size - prompt
        self._forget_place(copied_text.SAME_PROMPT)
        if answer is not None and np.array_equal(answer[:at], self.tokens[prompt:]):
            copied_text.follow_answer(self._copied, answer, at, self._shared.vocabulary)

    def catch_up(self, workspace: Workspace, lag: int = 0) -> None:
        """Draft from the newest past requests if `tables` is more than `lag` versions older."""
        if self.past is None:
            return
        newest = self._shared.tables(self.past)
        if self.tables is None or newest.version - self.tables.version > lag:
            self._set_tables(newest)
            workspace.run(self, REWIND, self.size, self.size)

    def _set_tables(self, tables: PastTables | None) -> None:
        self.tables = tables
        self.bound.clear()
        self._forget_place(copied_text.PAST)

    def _forget_place(self, which: int) -> None:
        begin = len(self.trust) + which * COLUMNS
        for learnt in self._learnt, self._checkpoints:
            learnt[..., begin : begin + COLUMNS] = self._first[begin : begin + COLUMNS]

    def release_past(self) -> None:
        """Release past requests until `catch_up`, and keep the trust in them."""
        if self.past is None or self.tables is None:
            return
        self._shared.keep_trust(self.past, self.trust, self._begun)
        self._set_tables(None)


class Workspace:
    """Arrays in which one thread counts and drafts.

    Threads that share a `memo` of the datastores may spoil each other's drafts, never the text.
    """

    def __init__(self, shared: SharedSources, memo: SearchedCorpus | None = None) -> None:
        self._shared = shared
        self.sources = Packed(shared.given.sources(memo))
        # Each thread has its own memos of past requests.
        self._pasts: WeakKeyDictionary[PastTable, Packed] = WeakKeyDictionary()
        self._shards = len(shared.given.table)
        self._chains = Packed(new_tree(self._shards, CHAIN_NODES, 1))
        self.tree = Packed(new_tree(self._shards, 0, 1))

    def request(
        self,
        prompt: TokenArray,
        past: PastRequests | None = None,
        references: ReferenceTexts = NO_REFERENCES,
    ) -> BlendRequest:
        room = len(prompt) + max(MIN_SPARE_TOKENS, len(prompt) // 4)
        request = BlendRequest(self._shared, past, room)
        request.catch_up(self)
        self.run(request, EXTEND, *request.append(prompt))
        request.prompt = request.size
        if len(references):
            request.refer(references)
        return request

    def drafts(self, jobs: Sequence[Job], cost: float | None = None) -> list[DraftTree]:
        """Append each job's tokens, and return a tree of at most `size` nodes for each.

        With `cost` (of a token, in passes), return the most valuable path instead, see
        kernels.blend.tree.
        """
        return self.prepare(jobs, cost)() if jobs else []

    def prepare(self, jobs: Sequence[Job], cost: float | None) -> Callable[[], list[DraftTree]]:
        """Do all of `drafts` but the kernel, which the returned function runs."""
        if cost is None:
            tree = self.tree = self._grown(self.tree, max(job.size for job in jobs), len(jobs))
        else:
            tree = self._chains = self._grown(self._chains, CHAIN_NODES, len(jobs))
            tree.parts.cost[0] = cost
        rows: list[int] = []  # flat: numpy converts nested lists three times as slowly
        for request, written, size, lag, evidence in jobs:
            request.catch_up(self, lag)
            if evidence is not None:  # learnt before the draft
                request.accept(self, written, evidence)
                written = written[:0]
            begin, end = request.append(written)
            what = LEARN if request.learns and begin else EXTEND
            nodes = size if cost is None else min(size, CHAIN_NODES)
            rows += what, self.bind(request).address, request.place, begin, end, nodes, 0
        tree.parts.jobs[: len(jobs)] = np.array(rows, np.int64).reshape(len(jobs), -1)

        def draw() -> list[DraftTree]:
            run_jobs(self.sources, self._shared.place, tree, len(jobs))
            return _drafted_trees(tree.parts, len(jobs))

        return draw

    def draft(self, request: BlendRequest, budget: int) -> DraftTree:
        self.run(request, EXTEND, request.size, request.size, budget)
        return _first_draft(self.tree.parts)

    def run(self, request: BlendRequest, what: int, begin: int, end: int, budget: int = 0) -> None:
        """Run one job, see kernels.blend.tree."""
        tree = self.tree = self._grown(self.tree, budget, 1)
        address = self.bind(request).address
        tree.parts.jobs[0] = what, address, request.place, begin, end, budget, 0
        run_jobs(self.sources, self._shared.place, tree, 1)

    def _grown(self, tree: Packed, nodes: int, jobs: int) -> Packed:
        most, rows = len(tree.parts.tokens), len(tree.parts.jobs)
        if nodes <= most and jobs <= rows:
            return tree
        rows = max(jobs, 2 * rows) if jobs > rows else rows  # batches grow request by request
        return Packed(new_tree(self._shards, max(nodes, most), rows))

    def bind(self, request: BlendRequest) -> Packed:
        """Return the workspace's sources with the request's arrays, until these are replaced."""
        if self not in request.bound:
            parts: dict[str, Any] = {"live": request.live}
            if request.edits is not None:
                parts |= {"references": request.references.table, "edits": request.edits}
            inside = dict(self.sources.inside)
            if request.evidence is not None:
                inside["evidence"] = request.evidence
            if request.tables is not None:
                inside |= zip(PAST_TRUST, map(self._packed, request.tables.origins), strict=True)
            trusts = np.split(request.trust, self._shared.trust_ends[:-1])
            for name, trust in zip(TRUST_ARRAYS, trusts, strict=True):
                shape = inside[name].parts.trust.shape
                parts[name] = inside[name].replace(trust=trust.reshape(shape))
            request.bound[self] = self.sources.replace(**parts)
        return request.bound[self]

    def _packed(self, origin: PastTable) -> Packed:
        if origin not in self._pasts:
            self._pasts[origin] = Packed(new_history(new_corpus(origin.table, PAST_ROWS)))
        return self._pasts[origin]


def _first_draft(tree: Tree) -> DraftTree:
    """Return the first job's draft, in half the time of `_drafted_trees`."""
    nodes = int(tree.jobs[0, NODES])
    found, scores = tree.found[0, :nodes], tree.found_scores[0, :nodes].copy()
    return DraftTree(found[:, 0].copy(), found[:, 1].copy(), scores, found[:, 2].astype(np.uint8))


def _drafted_trees(tree: Tree, jobs: int) -> list[DraftTree]:
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
