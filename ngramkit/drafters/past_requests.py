"""Past requests, always searchable: suffix arrays over them, of sizes that grow geometrically.

Requests that were there at start, those added since, and the newest of these have separate suffix
arrays, so that drafters can trust each differently. A finished request is merged at once into a
short tail, a full tail into the newest, and the older half of the newest becomes one more suffix
array of those added since, which a thread merges.

A merged array is searched after a fixed number of further tokens, not when its thread ends, so
processes that add the same requests search the same arrays. State is replaced in one assignment,
for readers and forks. Only one thread may add.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ngramkit.basics.errors import UsageError, require_between
from ngramkit.drafters.base import TokenArray, describe_artifacts
from ngramkit.drafters.options import HISTORY_TOKENS
from ngramkit.formats.datastore import DatastoreShard, cut_shard, merge_shards, requests_shard
from ngramkit.formats.history import History, join_requests
from ngramkit.formats.request_log import Mark
from ngramkit.formats.safetensors import Array
from ngramkit.formats.tokenizer_record import TokenizerRecord

MIN_MERGED_TOKENS = 1 << 11  # tokens; merging as many into the newest takes 0.25 ms
MAX_NEWEST_TOKENS = 1 << 16  # tokens
MIN_RATIO_OF_LENGTHS = 64  # minimum ratio of lengths of two suffix arrays that are not merged
MAX_ARRAYS_AT_REST = 3  # maximum suffix arrays of an origin at rest
# 1/SHARE_BEFORE_SEARCH of the tokens is added before a merged suffix array is searched.
SHARE_BEFORE_SEARCH = 256
SHARE_DROPPED = 16  # 1/SHARE_DROPPED of the tokens is dropped, or added to a saved index, at a time
# Answers found by their prompts hold 1/SHARE_OF_ANSWERS of the capacity at most.
SHARE_OF_ANSWERS = 4
ENTRY_TOKENS = 64  # extra tokens that an answer counts for: it takes 250 bytes and 4 per token


class Shards(NamedTuple):
    """Past requests by origin, oldest first.

    An origin has at most MAX_ARRAYS_AT_REST + 1 suffix arrays, two of the newest requests.
    """

    at_start: tuple[DatastoreShard, ...] = ()  # there at start, or when the log was rewritten
    since: tuple[DatastoreShard, ...] = ()  # added since by any process, except the newest
    newest: tuple[DatastoreShard, ...] = ()  # the last of those added since, and a tail


class PastRequests:
    """The datastore shards of past requests by origin, `shards`; none at first.

    With a `history`, it begins with its newest requests and adds to it; otherwise `tokenizer` must
    be given. The newest `capacity` tokens are searched, and up to a sixteenth more. With
    `background` False merging blocks the caller. With `prompts` False only outputs are remembered.
    With `read_only` nothing is written; while `forgetful`, nothing is remembered. Raises
    UsageError.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        capacity: int = HISTORY_TOKENS,
        rebuild_tokens: int = MIN_MERGED_TOKENS,
        newest_tokens: int = MAX_NEWEST_TOKENS,
        background: bool = True,
        prompts: bool = True,
        read_only: bool = False,
        forgetful: bool = False,
    ) -> None:
        if history is not None:
            history = History(history.path, history.manifest)  # own position in the log
            tokenizer = history.tokenizer
        if tokenizer is None:
            raise UsageError(
                "cannot open past requests: they need a history or a tokenizer", "Give one of them."
            )
        require_between("history_tokens", capacity, 1, (1 << 31) - 1)
        self.tokenizer = tokenizer
        self.separator = tokenizer.separator
        self._history = history
        self._capacity = capacity
        self._rebuild_tokens = rebuild_tokens
        self._newest_tokens = min(newest_tokens, capacity)
        self._part = max(rebuild_tokens, capacity // SHARE_DROPPED)
        self._background = background
        self._prompts = prompts
        self._saves = history is not None and not read_only
        self.forgetful = forgetful
        self._answers: dict[int, TokenArray] = {}  # by their prompts' hashes, the newest last
        self._held = 0  # tokens of the answers, with ENTRY_TOKENS for each
        self._state = _State()
        if history is not None:
            index, added, _ = history.newest(capacity)
            at_start = tuple(shard for shard in (index, added) if shard)
            self._begin(at_start, history.mark, saved=len(index.tokens) if index else 0)
            self._advance()

    def __repr__(self) -> str:
        return f"<PastRequests {self.tokens:,} tokens, {describe_artifacts((), self.tokenizer)}>"

    def copy(self, *, forgetful: bool) -> PastRequests:
        """Return past requests that begin as these and do not read the history again."""
        new = copy.copy(self)
        new._history, new._saves = None, False
        new.forgetful = forgetful
        new._answers = dict(self._answers)
        return new

    @property
    def shards(self) -> Shards:
        return self._state.shards

    @property
    def tokens(self) -> int:
        return self._state.tokens

    @property
    def sorted_end(self) -> int:
        """Return the number of tokens ever added, without the tail."""
        return self._state.sorted_end

    def remember(self, tokens: Array, prompt: int) -> None:
        if self.forgetful:
            return
        if 0 < prompt < len(tokens):
            self._keep_answer(tokens[:prompt], tokens[prompt:])
        if not self._prompts:
            tokens, prompt = tokens[prompt:], 0
        if self._history is not None and self._saves:
            self._history.append(tokens, prompt)
            self.refresh()
            return
        valid = (tokens >= 0) & (tokens < self.separator)
        size = len(tokens) if valid.all() else int(valid.argmin())
        self._add([tokens[:size]], self._state.mark)

    def answer_to(self, prompt: TokenArray) -> TokenArray | None:
        """Return the last answer to exactly this prompt, int32[n], or None."""
        return self._answers.get(self._name(prompt)) if self._answers else None

    def _keep_answer(self, prompt: Array, answer: Array) -> None:
        name = self._name(prompt)
        self._drop_answer(name)
        self._answers[name] = np.array(answer, np.int32)
        self._held += len(answer) + ENTRY_TOKENS
        while self._held > max(self._capacity // SHARE_OF_ANSWERS, len(answer) + ENTRY_TOKENS):
            self._drop_answer(next(iter(self._answers)))

    def _drop_answer(self, name: int) -> None:
        if (answer := self._answers.pop(name, None)) is not None:
            self._held -= len(answer) + ENTRY_TOKENS

    def _name(self, prompt: Array) -> int:
        ids = np.asarray(prompt, np.int32).view(np.uint32)
        return hash(np.minimum(ids, np.uint32(self.separator)).tobytes())

    def refresh(self) -> None:
        """Add requests written to the history since the last call, by any process."""
        if self._history is not None:
            self._history.mark = self._state.mark  # a fork may have come between the two
            requests, restarted = self._history.news()
            tokens = [request.tokens for request in requests]
            if restarted:
                newest = join_requests(tokens, self.separator)[-self._capacity :]
                at_start = (requests_shard(newest, self.separator),) if requests else ()
                self._begin(at_start, self._history.mark)
            elif requests:
                self._add(tokens, self._history.mark)
        self._advance()

    def wait(self) -> None:
        while self._state.job is not None or self._state.saving is not None:
            for job in (self._state.job, self._state.saving):
                if job is not None:
                    job.until = 0
                    job.finish()
            self._advance()

    def _begin(
        self, at_start: tuple[DatastoreShard, ...], mark: Mark | None, saved: int = 0
    ) -> None:
        self._answers.clear()
        self._held = 0
        size = sum(len(shard.tokens) for shard in at_start)
        self._state = _State(Shards(at_start), sorted_end=size, saved=saved, mark=mark)

    def _add(self, requests: Sequence[Array], mark: Mark | None) -> None:
        """Merge requests into the tail, a full tail into `newest`, its older half into `since`."""
        state = self._state
        tail = requests_shard(join_requests(requests, self.separator), self.separator)
        since, newest = state.shards.since, state.shards.newest
        if state.has_tail:
            newest, tail = newest[:-1], merge_shards(newest[-1], tail)
        full = len(tail.tokens) >= self._rebuild_tokens
        sorted_end = state.sorted_end + len(tail.tokens) * full
        if full and newest:
            tail = merge_shards(newest[0], tail)
            newest = ()
        begin = 0
        if full and len(since) <= MAX_ARRAYS_AT_REST:
            begin = self._first_newest_token(tail.tokens)
        if begin:
            since = (*since, cut_shard(tail, 0, begin))
            tail = cut_shard(tail, begin, len(tail.tokens))
        shards = Shards(state.shards.at_start, since, (*newest, tail))
        self._state = state._replace(
            shards=shards, has_tail=not full, sorted_end=sorted_end, mark=mark
        )
        self._advance()

    def _first_newest_token(self, tokens: Array) -> int:
        if len(tokens) <= self._newest_tokens:
            return 0
        limit = len(tokens) - max(self._newest_tokens // 2, 1)
        ends = np.flatnonzero(tokens[:limit] == self.separator)
        return int(ends[-1]) + 1 if len(ends) else 0

    def _advance(self) -> None:
        while (job := self._state.job) is None or self._state.sorted_end >= job.until:
            state = self._state.after_job()
            job = self._next_job(state)
            self._state = state._replace(job=job)
            if job is None:
                break
            if self._background:
                job.start()
        self._save_if_due()

    def _next_job(self, state: _State) -> _Job | None:
        """Return a job that drops or merges shards, due after a fixed number of tokens."""
        until = state.sorted_end + max(self._rebuild_tokens, state.tokens // SHARE_BEFORE_SEARCH)
        job = partial(_Job, until=until if self._background else 0, after=state.saving)
        origins = state.shards.at_start, state.shards.since
        excess = state.tokens - self._capacity
        for origin, shards in enumerate(origins):
            if shards and excess >= self._part:
                return job(partial(_drop_oldest, shards[0], excess), origin=origin, count=1)
        for origin, shards in enumerate(origins):
            for i in range(len(shards) - 1, 0, -1):
                older, newer = shards[i - 1 : i + 1]
                alike = len(older.tokens) < MIN_RATIO_OF_LENGTHS * len(newer.tokens)
                if alike or len(shards) > MAX_ARRAYS_AT_REST:
                    work = partial(_merge_pair, older, newer)
                    return job(work, origin=origin, first=i - 1, count=2)
        return None

    def _save_if_due(self) -> None:
        state = self._state
        if state.saving is not None and not state.saving.is_alive():
            state = self._state = state._replace(saving=None)
        part = max(self._rebuild_tokens, state.tokens // SHARE_DROPPED)
        merging = state.job is not None and state.job.is_alive()  # one at a time: less memory
        if self._saves and not (merging or state.saving) and state.sorted_end - state.saved >= part:
            job = _Job(self._save)
            self._state = state._replace(saving=job, saved=state.sorted_end)
            if self._background:
                job.start()
            else:
                job.finish()

    def _save(self) -> tuple[DatastoreShard, ...]:
        assert self._history is not None
        # Without its index a history is only slower to load, so a full disk is not an error here.
        with contextlib.suppress(OSError):
            History(self._history.path, self._history.manifest).extend_index(self._capacity)
        return ()


@dataclass(eq=False, repr=False)
class _Job(threading.Thread):
    """Work whose result replaces `count` shards of an origin, from `first` on, at `until` tokens.

    It waits for `after`, since each needs memory for a copy.
    """

    work: Callable[[], tuple[DatastoreShard, ...]]
    until: int = 0
    origin: int = 0
    first: int = 0
    count: int = 0
    after: _Job | None = None
    result: tuple[DatastoreShard, ...] | None = None

    def __post_init__(self) -> None:
        # No daemon: a process that ends waits for it, so that its index is not lost.
        super().__init__(name="merging past requests", daemon=False)

    def run(self) -> None:
        if self.after is not None and self.after.is_alive():  # not in a fork's child
            self.after.join()
        self.result = self.work()

    def finish(self) -> tuple[DatastoreShard, ...]:
        """Return the result; run here if no thread did, as in a forked child."""
        if self.is_alive():
            self.join()
        if self.result is None:
            self.run()
        return self.result or ()


class _State(NamedTuple):
    shards: Shards = Shards()
    has_tail: bool = False  # the last of the newest is the tail
    sorted_end: int = 0  # tokens ever added, without the tail
    saved: int = 0  # tokens of these that the history's index holds, or will hold
    mark: Mark | None = None  # their end in the history
    job: _Job | None = None  # merges or drops
    saving: _Job | None = None  # saves the index

    @property
    def tokens(self) -> int:
        return sum(len(shard.tokens) for shard in itertools.chain(*self.shards))

    def after_job(self) -> _State:
        job = self.job
        if job is None:
            return self
        origins = list(self.shards)
        old = origins[job.origin]
        origins[job.origin] = (*old[: job.first], *job.finish(), *old[job.first + job.count :])
        return self._replace(shards=Shards(*origins), job=None)


def _merge_pair(older: DatastoreShard, newer: DatastoreShard) -> tuple[DatastoreShard, ...]:
    return (merge_shards(older, newer),)


def _drop_oldest(shard: DatastoreShard, tokens: int) -> tuple[DatastoreShard, ...]:
    size = len(shard.tokens)
    return (cut_shard(shard, tokens, size),) if tokens < size else ()
