"""Drafts for many requests at once: rows of token ids in, draft trees or chains out.

Only kernels run on other threads, since Python's lock would cost as much as their drafts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import accumulate, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import reason
from ngramkit.basics.thread_counts import drafting_threads
from ngramkit.budget.batch import BatchBudget
from ngramkit.budget.pass_timer import Clock, PassTimer
from ngramkit.budget.pass_times import PassTimes
from ngramkit.budget.pause import Pause
from ngramkit.drafters.base import NO_TOKENS, DraftTree, Evidence, TokenArray
from ngramkit.drafters.blend_request import Job
from ngramkit.drafters.references import NO_REFERENCES, Given, ReferenceTexts, reference_texts
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growing_history import Finished
from ngramkit.engines.metrics import EngineCounters, Statistics
from ngramkit.engines.request_texts import RequestTexts
from ngramkit.engines.sessions import MAX_SESSIONS, Session, Sessions, with_known_ids
from ngramkit.engines.source import (
    DraftSource,
    open_source,
    require_known_ids,
    require_same_encoding,
)
from ngramkit.formats.tokenizer_record import TokenizerRecord

LOG = logging.getLogger("ngramkit")
# Minimum nodes per thread: fewer are drafted before another thread is awake.
MIN_NODES_PER_THREAD = 128
ROWS_PER_VERSION = 8  # rows per version that past requests may lag: a lookup takes 0.1 ms
MAX_SKIPPED = 15  # passes in a row that are not even read, while all drafts pause

Rows = Sequence[npt.ArrayLike]
Keep = Callable[[DraftTree], DraftTree]
Decode = Callable[..., str]  # of a tokenizer, from token ids to text


class Asked(NamedTuple):
    prompt: int | None  # tokens that the model did not write, or not in this step; None: unknown
    tenant: str = ""  # whose history it drafts from, and joins
    references: Given = ()  # texts that its answer probably repeats; the same object in each step
    evidence: Evidence | None = None  # of the pass that wrote the newest tokens
    name: Hashable = ""  # of the request, which may be in any row; "": it stays in this one
    holder: Any = None  # holds its row and only appends; with another one tokens are compared


NOTHING_ASKED = Asked(None)


class BatchDrafter:
    """Drafts for an engine's requests from one source; call it from one thread.

    `cost`: the cost of a drafted token in passes, fixed or by the times of passes. A chain
    ends before a token whose corrected score is below it, or below the min_probability of `config`.
    By a `clock`, in seconds, the passes between calls of `chain_batch` correct their times.
    `refers`: it can draft from references.
    """

    def __init__(
        self,
        source: DraftSource,
        config: DraftConfig,
        *,
        cost: float | PassTimes = 0.0,
        clock: Clock | None = None,
        counters: EngineCounters | None = None,
    ) -> None:
        self.source, self.pause = source, config.pause
        self.refers = DRAFTERS[DrafterSpec.parse(config.drafter).name].references
        least = config.min_probability
        learns = clock is not None and least is None and not isinstance(cost, int | float)
        self.budget = BatchBudget(
            cost if least is None else least, corrects=least is None, learns=learns
        )
        self._drafting = 0  # rows of this pass that are drafted for
        self._judged: list[float] = []  # gains of this pass's rows, in tokens
        self.timer = PassTimer(clock) if learns and clock is not None else None
        self._last: Sequence[Session] = ()  # drafted for in the last pass, without a history
        self._sizes: Mapping[Hashable, int] = {}  # of the last pass
        self._skipped = 0  # passes in a row
        self.statistics = Statistics()
        self.sessions = Sessions(config.sessions or MAX_SESSIONS, source.vocabulary)
        threads = drafting_threads(config.threads)
        self._workspaces: list[Any] = [source.workspace() for _ in range(threads)]
        self._pool = _Pool(threads - 1) if threads > 1 else None
        self._log_steps = config.log_steps
        self._metrics = Path(config.metrics) if config.metrics else None
        self._counters = counters
        self._logged = 0  # rows at the last line of the log
        self.decode: Decode | None = None  # of the engine's tokenizer, if an adapter loads it
        self.history = source.history
        self.grows = self.history is not None and self.history.stores

    @classmethod
    def open(
        cls,
        config: DraftConfig,
        *,
        vocabulary: int | None = None,
        cost: float | PassTimes = 0.0,
        clock: Clock | None = None,
        counters: EngineCounters | None = None,
        tokenizer: TokenizerRecord | None = None,
        writes: bool = True,
    ) -> BatchDrafter:
        """Open the sources of `config`, and compile all kernels.

        `tokenizer` and `writes` as in `open_source`. Raises as `open_source`.
        """
        source = open_source(config, vocabulary, tokenizer=tokenizer, writes=writes)
        drafter = cls(source, config, cost=cost, clock=clock, counters=counters)
        drafter.warm()
        return drafter

    def require_known_ids(self, vocabulary: int) -> None:
        """Raise ArtifactError if an artifact or history has ids beyond `vocabulary`."""
        require_known_ids([*self.source.artifacts, *self.source.compared], vocabulary)

    def require_same_encoding(self, tokenizer: Any) -> None:
        """Raise as `engines.source.require_same_encoding`."""
        require_same_encoding([*self.source.artifacts, *self.source.compared], tokenizer)

    def warm(self) -> None:
        """Compile all kernels with dummy requests."""
        prompt = np.tile(np.array([0, 1], np.int32), 8)
        pasts = [self.source.past if self.history is None else self.history.past("")]
        texts = [ReferenceTexts([[0, most]]) for most in (1, 1 << 16)] if self.refers else []
        if self.history is not None:
            pasts.append(self.history.dummy(prompt))
        for workspace, past in product(self._workspaces, pasts):
            requests = [workspace.request(prompt, past) for _ in range(2)]
            workspace.drafts([Job(request, prompt[:1], 2) for request in requests])
            for text in texts:
                requests[1].refer(text)
            workspace.drafts([Job(request, prompt[1:2], 2) for request in requests], 0.0)
            requests[0].append(prompt[:1])
            requests[0].rewind(workspace, 4)
            workspace.drafts([Job(workspace.request(prompt[:1], past), NO_TOKENS, 2)])

    def request_texts(self) -> RequestTexts:
        """Return what an adapter keeps of the texts that requests bring."""
        return RequestTexts(self.source.vocabulary, self.statistics, able=self.refers)

    def finish(self, request: Finished) -> None:
        """Let a request that has finished join a growing history in the next step."""
        if self.history is not None and self.grows:
            self.history.finish(request)

    def draft_batch(
        self, rows: Rows, budgets: Sequence[int], asked: Sequence[Asked] | None = None
    ) -> list[DraftTree]:
        """Return a tree of at most budgets[i] nodes for each row, a request's ids so far, int32[n].

        Without `asked` a request's prompt is all but the last token of its first row.
        """
        return self._draft(rows, budgets, asked=asked)

    def chain_batch(
        self,
        rows: Rows,
        lengths: Sequence[int],
        cost: float | None = None,
        keep: Keep | None = None,
        asked: Sequence[Asked] | None = None,
        sizes: Mapping[Hashable, int] | None = None,
    ) -> list[DraftTree]:
        """Return for each row the path that is worth most, at most lengths[i] tokens.

        `cost` of a token in passes, by default the controller's; `keep` returns the part of a chain
        that is verified. `sizes`: the tokens of each row by its name, 0 for a row that wrote
        nothing in this pass; by default the rows' own.
        """
        if cost is not None:
            return self._draft(rows, lengths, cost, keep, asked)
        if sizes is None:
            names = [each.name or i for i, each in enumerate(asked)] if asked else range(len(rows))
            sizes = dict(zip(names, map(len, rows), strict=True))  # type: ignore[arg-type]
        if self.timer is not None and (timed := self.timer.begin(sizes)):
            self.budget.learn(timed)
        if keep is None and self._skip_if_all_pause(sizes, lengths, asked):
            if self.timer is not None:
                self.timer.end(sizes, [0] * len(sizes))
            return [DraftTree.empty()] * len(rows)
        used = [size for size in sizes.values() if size]
        least = self.budget.least_score_to_draft(lengths, sum(used) / max(len(used), 1), len(used))
        chains = self._draft(rows, lengths, least, keep, asked, budgeted=True)
        if self.timer is not None:
            seconds = self.timer.end(sizes, [len(chain) for chain in chains])
            self.budget.learn_drafting(seconds, self._drafting)
        return chains

    def _skip_if_all_pause(
        self, sizes: Mapping[Hashable, int], lengths: Sequence[int], asked: Sequence[Asked] | None
    ) -> bool:
        """Skip a pass whose requests all wrote a token and pause; return whether it was skipped.

        The tokens are read in a later pass.
        """
        before, self._sizes = self._sizes, sizes
        skips = (
            self.pause
            and len(self._last) > 0
            and self._skipped < MAX_SKIPPED
            and all(session.pause.lasts for session in self._last)
            and len(self._last) == sum(length > 0 for length in lengths)
            and len(before) == len(sizes)
            and all(before.get(name) == size - 1 for name, size in sizes.items())
            and not any(len(fact.references) or fact.evidence for fact in asked or ())
        )
        if not skips:
            return False
        self._skipped += 1
        for session in self._last:
            session.pause.opens()
        self.statistics.calls += 1
        self.statistics.paused += len(self._last)
        self.statistics.rows += len(self._last)
        return True

    def _draft(
        self,
        rows: Rows,
        sizes: Sequence[int],
        cost: float | None = None,
        keep: Keep | None = None,
        asked: Sequence[Asked] | None = None,
        *,
        budgeted: bool = False,
    ) -> list[DraftTree]:
        started = time.perf_counter()
        wanted = [i for i in range(len(rows)) if sizes[i] > 0 and len(rows[i])]  # type: ignore[arg-type]
        contexts = [np.ascontiguousarray(rows[i], np.int32) for i in wanted]
        facts = [asked[i] if asked else NOTHING_ASKED for i in wanted]
        sessions = self.sessions.find(
            contexts,
            [fact.name or i for i, fact in zip(wanted, facts, strict=True)],
            [fact.tenant for fact in facts],
            [fact.holder for fact in facts],
        )
        for session, row, fact in zip(sessions, contexts, facts, strict=True):
            session.prompt = _prompt_length(session, row, fact, self._skipped)
            # Each skipped pass wrote a token.
            known = max(session.size, session.prompt - self._skipped, 1)
            session.begins = session.kept < known
        begun = [session for session in sessions if session.begins]
        if self.history is not None:
            if self.history.take_in():
                self.source.refresh()
            for session in [*self.sessions.absent, *begun]:
                if session.request is not None:
                    session.request.release_past()
        written = self._new_tokens_of(sessions, contexts)
        lag = len(wanted) // ROWS_PER_VERSION
        jobs = [
            self._learn_and_plan_draft(session, len(row), new, sizes[i], lag, fact)
            for session, row, new, i, fact in zip(
                sessions, contexts, written, wanted, facts, strict=True
            )
        ]
        self._drafting = sum(job.size > 0 for job in jobs)
        self._last = [] if self.history is not None else sessions
        if self._judged:
            self.budget.account.judge(sum(self._judged) / len(self._judged), 0.0)
            self._judged.clear()
        made = self._draft_on_threads(sessions, jobs, cost)
        if keep is not None:
            made = [keep(draft).first(sizes[i]) for i, draft in zip(wanted, made, strict=True)]
        if budgeted:
            sized = self.budget.cut_chains([draft.scores for draft in made])
            made = [draft.first(n) for draft, n in zip(made, sized, strict=True)]
        drafts = [DraftTree.empty()] * len(rows)
        for i, session, draft in zip(wanted, sessions, made, strict=True):
            drafts[i] = session.draft = draft
            if not draft:
                self._judge_draft(session, draft, 0)
        self._skipped = 0
        # With a name, a longer prompt belongs to the same request.
        self.statistics.requests += sum(
            each.size == 0 or isinstance(each.name, int) for each in begun
        )
        self._count_outcomes(sessions, contexts, chained=cost is not None)
        self.statistics.seconds += time.perf_counter() - started
        self.statistics.calls += 1
        self._log_and_count()
        return drafts

    def _new_tokens_of(
        self, sessions: Sequence[Session], rows: Sequence[TokenArray]
    ) -> Sequence[TokenArray]:
        """Return each row's new tokens, all of a new session's, with known ids."""
        new = [row[session.kept :] for session, row in zip(sessions, rows, strict=True)]
        if not new:
            return new
        joined = with_known_ids(np.concatenate(new), self.source.vocabulary)
        ends = accumulate(map(len, new))
        return [joined[end - len(each) : end] for each, end in zip(new, ends, strict=True)]

    def _learn_and_plan_draft(
        self,
        session: Session,
        total: int,
        written: TokenArray,
        size: int,
        lag: int,
        asked: Asked,
    ) -> Job:
        """Let a row's request learn its new tokens, and return its next job.

        The row has `total` tokens. Past requests may be `lag` to 2 `lag` versions old.
        """
        workspace = self._workspaces[0]
        given: Given = asked.references if len(asked.references) else NO_REFERENCES
        refers = given is not session.references or (session.begins and len(given) > 0)
        answer = min(session.prompt, total) if refers else total
        written = self._open_or_follow(session, written, answer)
        if session.begins or refers:
            session.pause = Pause(self.budget.account.credit)
        if session.begins:
            written = session.request.begin(workspace, session.prompt, written)
        if refers:
            written = _refer_before_answer(session.request, workspace, given, answer, written)
            session.references = given
        session.drafting = not self.pause or session.pause.opens()
        lag += session.number % max(lag, 1)  # so that not all catch up in one step
        evidence = asked.evidence if len(written) else None
        return Job(session.request, written, size if session.drafting else 0, lag, evidence)

    def _open_or_follow(self, session: Session, written: TokenArray, answer: int) -> TokenArray:
        """Open a session's request with the tokens before `answer`, or judge its last draft.

        Returns the tokens of `written` that the request lacks.
        """
        session.outcome = None
        workspace = self._workspaces[0]
        if session.request is None:
            past = self.source.past if self.history is None else self.history.past(session.tenant)
            session.request = workspace.request(written[:answer], past)
            return written[answer:]
        if session.kept < session.request.size:
            session.request.rewind(workspace, session.kept)
            session.draft = None
        elif session.draft and 0 < len(written) <= len(session.draft) + 1:  # else not verified
            accepted = len(session.draft.accepted_nodes(written.tolist()))
            session.outcome = session.draft, accepted
            self._judge_draft(session, session.draft, accepted)
        return written

    def _judge_draft(self, session: Session, draft: DraftTree, accepted: int) -> None:
        """Count what a draft gained and cost; the request's drafts may pause."""
        spent = self.budget.price * len(draft)
        spent += self.budget.lookup if session.drafting else 0.0
        session.pause.judge(accepted, spent)
        self._judged.append(accepted - spent)

    def _draft_on_threads(
        self, sessions: Sequence[Session], jobs: Sequence[Job], cost: float | None
    ) -> list[DraftTree]:
        if not jobs:
            return []
        worth = sum(job.size for job in jobs) // MIN_NODES_PER_THREAD
        parts = max(min(len(self._workspaces), len(jobs), worth), 1)
        if parts == 1:
            alone: list[DraftTree] = self._workspaces[0].prepare(jobs, cost)()
            return alone
        shares: list[list[int]] = [[] for _ in range(parts)]
        for k, session in enumerate(sessions):  # mostly the workspace that holds its samples
            shares[session.number % parts].append(k)
        draws: list[Callable[[], list[DraftTree]]] = [
            workspace.prepare([jobs[k] for k in share], cost) if share else list
            for workspace, share in zip(self._workspaces, shares, strict=False)
        ]
        others = [self._pool.submit(draw) for draw in draws[1:]] if self._pool else []
        try:
            made = [draws[0]()]
        finally:
            wait(others)
        made += [other.result() for other in others]
        drafts = [DraftTree.empty()] * len(jobs)
        for share, of_share in zip(shares, made, strict=True):
            for k, draft in zip(share, of_share, strict=True):
                drafts[k] = draft
        return drafts

    def _count_outcomes(
        self, sessions: Sequence[Session], rows: Sequence[TokenArray], *, chained: bool
    ) -> None:
        """Count and learn in the order of rows, on every rank."""
        counts = self.statistics
        outcomes = [session.outcome for session in sessions if session.outcome is not None]
        accepted = [right for _, right in outcomes]
        counts.paused += sum(not session.drafting for session in sessions)
        counts.draft_tokens += sum(len(session.draft or ()) for session in sessions)
        counts.rows += len(rows)
        for session, row in zip(sessions, rows, strict=True):
            session.size = len(row)
        if self.history is not None:
            counts.remembered = self.history.remembered
        counts.accepted_tokens += sum(accepted)
        if chained and outcomes:
            self.budget.observe([draft.scores for draft, _ in outcomes], accepted)

    def _log_and_count(self) -> None:
        if self._counters is not None:
            self._counters.show(self.statistics)
        if not self._log_steps or self.statistics.rows - self._logged < self._log_steps:
            return
        self._logged = self.statistics.rows
        LOG.info("%s", self.statistics.line())
        if self._metrics is not None:
            try:
                self.statistics.write(self._metrics)
            except OSError as error:
                LOG.warning("%s: %s; nothing more is written there", self._metrics, reason(error))
                self._metrics = None


class _Pool:
    def __init__(self, threads: int) -> None:
        self._threads, self._process = threads, 0

    def submit(self, draw: Callable[[], list[DraftTree]]) -> Future[list[DraftTree]]:
        if self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self._threads, "ngramkit")
            self._process = os.getpid()
        return self._pool.submit(draw)


def _prompt_length(session: Session, row: TokenArray, asked: Asked, skipped: int) -> int:
    """Return the length of the prompt; if unknown, that of all tokens before the last passes."""
    if asked.prompt is not None:
        return asked.prompt
    new = len(row) - session.kept
    most = len(session.draft or ()) + 1 + skipped
    return len(row) - (new if session.kept == session.size and new <= most else 1)


def _refer_before_answer(
    request: Any, workspace: Any, given: Given, answer: int, written: TokenArray
) -> TokenArray:
    """Draft from references, which are read before the answer, the tokens from `answer` on.

    Returns the tokens to append: those of the answer, and `written` without the prompt's.
    """
    again = request.tokens[answer:].copy()
    request.rewind(workspace, answer)
    more = max(answer - request.size, 0)
    if more and len(written):
        request.accept(workspace, written[:more])
    request.refer(reference_texts(given))
    return np.concatenate([again, written[more:]])
