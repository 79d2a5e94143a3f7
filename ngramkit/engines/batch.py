"""Drafts for many requests at once: rows of token ids in, draft trees or chains out.

Every row is a session (`engines.sessions`). Requests are drafted for on threads, each of which
drafts for all of its own in one call of a kernel: to come back to Python for each would mean to
wait for its lock as long as for the draft. Whichever thread it is, the draft is the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.drafters.base import NOTHING, DraftTree, TokenArray
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.cut import Cut
from ngramkit.engines.gate import Gate
from ngramkit.engines.metrics import Statistics
from ngramkit.engines.model_tokens import require_same
from ngramkit.engines.sessions import Found, Session, Sessions
from ngramkit.engines.source import DraftSource, open_source
from ngramkit.engines.workspace import Asked, came_true
from ngramkit.errors import UsageError, reason

LOG = logging.getLogger("ngramkit")
THREADS = 4  # at most, where nobody says
SHARE = 128  # nodes that are worth a thread: fewer are drafted before another is awake

NEVER = 2.0  # passes: for that no token is drafted

Rows = Sequence[npt.ArrayLike]
Keep = Callable[[DraftTree], DraftTree]


class BatchDrafter:
    """Drafts for an engine's requests from one source.

    `least` is what a drafted token costs, in passes: a chain ends where a token is less likely to
    be accepted, and a request whose drafts have cost more than they saved pauses (unless `pause` is
    False). With `learn` that likelihood is what such scores have come to: see engines.cut.
    `statistics` counts. One thread calls it at a time.
    """

    def __init__(
        self,
        source: DraftSource,
        *,
        least: float = 0.0,
        sessions: int = 512,
        threads: int | None = None,
        pause: bool = True,
        learn: bool = False,
        log_steps: int = 0,
        metrics: str | Path | None = None,
    ) -> None:
        self.source, self.least, self.pause = source, least, pause
        self.statistics = Statistics()
        self.sessions = Sessions(sessions)
        threads = threads or min(os.cpu_count() or 1, THREADS)
        self._desks: list[Any] = [source.desk() for _ in range(threads)]
        self._pool = _Pool(threads - 1) if threads > 1 else None
        self._log_steps, self._metrics = log_steps, Path(metrics) if metrics else None
        self._logged = 0
        self.cut = Cut() if learn else None

    @classmethod
    def open(
        cls,
        config: DraftConfig,
        *,
        vocabulary: int | None = None,
        least: float = 0.0,
        timed: bool = False,
    ) -> BatchDrafter:
        """Ready for requests. Where the configuration has no min_probability, `least` to begin
        with, and what is learnt. `timed`: neither is for it to decide, nor pauses, but for
        `engines.alone`, which goes by the time.

        Raises as `open_source`, and UsageError for a `clock` of the configuration without that.
        """
        if config.clock and config.min_probability is None and not timed:
            raise UsageError(
                "clock of the configuration is for engines of one text at a time: llama.cpp",
                "leave it out, or say min_probability",
                option="clock",
            )
        drafter = cls(
            open_source(config, vocabulary),
            least=least if config.min_probability is None else config.min_probability,
            sessions=config.sessions,
            threads=config.threads,
            pause=config.pause and not timed,
            learn=config.min_probability is None and not timed,
            log_steps=config.log_steps,
            metrics=config.metrics,
        )
        drafter.warm()
        return drafter

    def require_same(self, tokenizer: Any) -> None:
        """Raises ArtifactError where an artifact's ids are not `tokenizer`'s, as
        `engines.model_tokens.require_same`."""
        require_same(self.source.built, tokenizer)

    def warm(self) -> None:
        """Drafts a little in vain: kernels are compiled and artifacts opened before a request has
        to wait for that."""
        prompt = np.zeros(4, np.int32)
        for desk in self._desks:
            request = self.source.request(desk, prompt)
            request.extend(desk, prompt[:1])
            request.tree(desk, 2)
            request.chain(desk, 2, 0.0)
            request.rewind(desk, 4)

    def draft_batch(self, rows: Rows, budgets: Sequence[int]) -> list[DraftTree]:
        """A tree of at most budgets[i] nodes for rows[i]: all token ids of a request so far, int32.

        Budget 0 switches drafting off for that row, in this call.
        """
        return self._drafted(rows, budgets)

    def chain_batch(
        self,
        rows: Rows,
        lengths: Sequence[int],
        least: float | None = None,
        keep: Keep | None = None,
    ) -> list[DraftTree]:
        """As `draft_batch`, for engines that verify one path: of each row the path that is worth
        most, at most lengths[i] tokens. `least`: where it ends, in place of what is known; `keep`:
        what of a chain is verified."""
        if least is None:
            least = self.least if self.cut is None else self.cut.at(self.least)
        return self._drafted(rows, lengths, least, keep)

    def skipped(self, row: TokenArray | None = None) -> None:
        """A row is not drafted for. If it is given, its session takes in what was written."""
        self.statistics.paused += 1
        if row is not None:
            self._drafted([row], [1], NEVER)
            return
        self.statistics.rows += 1
        self._tell()

    def _drafted(
        self,
        rows: Rows,
        sizes: Sequence[int],
        chained: float | None = None,
        keep: Keep | None = None,
    ) -> list[DraftTree]:
        """What is kept of trees, or of chains where each token costs `chained` passes."""
        started = time.perf_counter()
        drafts = [DraftTree.empty()] * len(rows)
        asked = [i for i in range(len(rows)) if sizes[i] > 0 and len(rows[i])]  # type: ignore[arg-type]
        contexts = [known(rows[i], self.source.vocabulary) for i in asked]
        found = self.sessions.find(contexts)
        cut = None if chained is None else self.cut
        worth = sum(sizes[i] for i in asked) // SHARE
        parts = max(min(len(self._desks), len(asked), worth), 1)

        def work(part: int) -> None:
            desk = self._desks[part]
            mine = [  # it finds its samples at that desk
                k for k in range(len(asked)) if found[k].session.number % parts == part
            ]
            wanted = [self._ready(found[k], contexts[k], sizes[asked[k]], desk) for k in mine]
            if chained is None:
                drawn = self.source.trees(desk, wanted)
            else:
                drawn = self.source.chains(desk, wanted, chained)
            for k, draft in zip(mine, drawn, strict=True):
                drafts[asked[k]] = found[k].session.draft = keep(draft) if keep else draft

        others = [self._pool.submit(work, part) for part in range(1, parts)] if self._pool else []
        try:
            work(0)
        finally:
            failed = [error for error in (other.exception() for other in others) if error]
        if failed:
            raise failed[0]
        for each, row in zip(found, contexts, strict=True):
            self._settle(each, row)
            if cut is not None and each.session.judged is not None and each.session.was is not None:
                cut.judge(each.session.was, each.session.judged)
        self.statistics.seconds += time.perf_counter() - started
        self._tell()
        return drafts

    def _ready(self, found: Found, row: TokenArray, size: int, desk: Any) -> Asked:
        """What to ask for one row, on any thread: writes into its own session alone."""
        session, written = found.session, NOTHING
        session.judged = None
        if session.request is None:
            session.request, session.gate = self.source.request(desk, row), Gate()
        else:
            if found.kept < session.request.size:
                session.request.rewind(desk, found.kept)
                session.draft = None
            written = row[found.kept :]
            if len(written):
                self._judge(session, written)
        session.opened = not self.pause or session.gate.opens()
        return Asked(session.request, written, size if session.opened else 0)

    def _judge(self, session: Session, written: TokenArray) -> None:
        draft = session.draft
        if draft is not None and len(draft):
            right = came_true(draft, written)
            session.judged, session.was = right, draft
            session.gate.judge(len(draft), right, self.least)

    def _settle(self, found: Found, row: TokenArray) -> None:
        session, counts = found.session, self.statistics
        counts.requests += not session.keys
        self.sessions.settle(session, row, found.kept)
        counts.rows += 1
        counts.paused += not session.opened
        counts.accepted_tokens += session.judged or 0
        counts.draft_tokens += 0 if session.draft is None else len(session.draft)

    def _tell(self) -> None:
        """The log's line and the file for Prometheus, every so many rows."""
        if not self._log_steps or self.statistics.rows - self._logged < self._log_steps:
            return
        self._logged = self.statistics.rows
        LOG.info("%s", self.statistics.line())
        if self._metrics is not None:
            try:
                self.statistics.write(self._metrics)
            except OSError as error:
                LOG.warning("%s: %s; no more is written there", self._metrics, reason(error))
                self._metrics = None


class _Pool:
    """Threads of this process; a forked child has none of its parent's, and starts its own."""

    def __init__(self, threads: int) -> None:
        self._threads, self._process = threads, 0

    def submit(self, work: Callable[[int], None], part: int) -> Future[None]:
        if self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self._threads, "ngramkit")
            self._process = os.getpid()
        return self._pool.submit(work, part)


def known(row: Any, vocabulary: int) -> TokenArray:
    """int32[n]: ids that requests do not know are all one, the vocabulary's size."""
    ids = np.ascontiguousarray(row, np.int32).view(np.uint32)
    found: TokenArray = np.minimum(ids, np.uint32(vocabulary)).view(np.int32)
    return found
