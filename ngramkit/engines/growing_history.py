"""Histories that grow while an engine serves.

A finished request joins the history in memory in the next step; folders are read only when the
engine starts (a tenant's at its first request). So ranks, which see the same requests in the same
steps, draft the same; one of them writes. No step waits for the threads that write and merge. A
killed process loses unwritten requests.

Users' texts are remembered only if a history was named. The log reports it, and its files are
private.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import NgramkitError, first_line, one_line, reason
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.sources import PastUse
from ngramkit.engines.config import DraftConfig
from ngramkit.formats.eviction import Dropped, drop_older_than, keep_newest_half_if_larger
from ngramkit.formats.history import DAMAGED, History
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.formats.replacing import PRIVATE
from ngramkit.formats.tokenizer_record import TokenizerRecord

LOG = logging.getLogger("ngramkit")
MAX_TENANTS_IN_MEMORY = 64  # histories in memory at once
MAX_TENANT_FOLDERS = 4096  # maximum tenants with a folder in one run; others are only in memory
FOLDER_NAME_DIGITS = 32  # hex digits of a tenant's folder name
MAX_WAITING_REQUESTS = 4096  # maximum requests that wait to be written
DAY_SECONDS = 86_400.0
EXPIRY_CHECKS_PER_AGE = 50  # searches for expired requests per age
LONGEST_PAUSE = 3600.0  # maximum seconds between two searches
# An index lacks at most one in INDEX_LAG_ONE_IN of the searched tokens, or MIN_INDEX_LAG tokens.
INDEX_LAG_ONE_IN, MIN_INDEX_LAG = 16, 1 << 12
EXIT_SECONDS = 10.0  # seconds that an ending process waits for its thread
# Exit priorities of Finalize, which also runs in multiprocessing children, unlike atexit: the last
# requests are finished first, and then written.
FINISH_PRIORITY, EXIT_PRIORITY = 20, 10


class Finished(NamedTuple):
    tokens: TokenArray  # int32[n], prompt and output
    prompt: int  # tokens of the prompt
    name: str = ""  # its name in the engine
    key: str = ""  # of its tenant


class _FixedPastRequests(PastRequests):
    """Past requests that only this engine adds to, so that all ranks have the same."""

    def refresh(self) -> None: ...


class GrowingHistory:
    """The past requests that an engine drafts from, by tenant: "" if there is one history.

    `stores`: this engine's requests join; `writes`: this process writes them. Raises ArtifactError
    for another kind of folder or another tokenizer.
    """

    def __init__(
        self, config: DraftConfig, tokenizer: TokenizerRecord, *, stores: bool, writes: bool
    ) -> None:
        self.stores = stores
        self.keyed = config.history_by is not None
        self._folder = Path(config.history) if isinstance(config.history, str) else None
        self._tokenizer, self._tokens = tokenizer, config.history_tokens
        self._prompts = config.history_prompts
        self._waiting: list[Finished] = []  # to be added in the next step
        self._taken_in = 0  # requests
        self._by_key: OrderedDict[str, PastRequests] = OrderedDict()  # by use, the oldest first
        self._read: set[str] = set()  # tenants whose folders were read in this run
        self._folders = None
        if self._folder is not None:
            if self.keyed and stores:
                self._folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self._folders = Folders(self._folder, tokenizer, keyed=self.keyed, stores=stores)
        self._writer = None
        if stores and writes and self._folders is not None:
            self._writer = HistoryWriter(
                self._folders, config.history_bytes, config.history_tokens, config.history_days
            )
            Finalize(self, self._writer.end)
        self.past("")

    @property
    def notice(self) -> str:
        what = "prompts and answers" if self._prompts else "answers"
        where = "in memory" if self._folder is None else f"in {self._folder}"
        whose = ", by tenant" if self.keyed else ""
        return f"finished requests are remembered: their {what}, {where}{whose}"

    @property
    def remembered(self) -> int:
        """The number of this run's requests that were written, or added if none are written."""
        return self._taken_in if self._writer is None else self._writer.written

    def past(self, key: str) -> PastRequests:
        """Return a tenant's past requests, read from its folder in its first step.

        A tenant that was evicted begins with nothing, since ranks may then read different folders.
        """
        past = self._by_key.get(key)
        if past is None:
            history = None
            if self._folders is not None and self._has_folder(key) and key not in self._read:
                self._read.add(key)
                try:
                    history = self._folders.open(key)
                except (NgramkitError, OSError) as error:
                    if key == "":
                        raise
                    LOG.warning("cannot read a tenant's history: %s", first_line(error))
            past = self._by_key[key] = _FixedPastRequests(
                history,
                tokenizer=self._tokenizer,
                capacity=self._tokens,
                prompts=self._prompts,
                read_only=True,
            )
            if len(self._by_key) > MAX_TENANTS_IN_MEMORY:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        return past

    def dummy(self, tokens: TokenArray) -> PastRequests:
        """Return in-memory past requests with which drafting compiles every kernel."""
        past = PastRequests(
            tokenizer=self._tokenizer,
            capacity=8 * len(tokens),
            rebuild_tokens=len(tokens) // 2,
            newest_tokens=2 * len(tokens),
            background=False,
        )
        for _ in range(16):
            past.remember(tokens, 0)
        return past

    def finish(self, request: Finished) -> None:
        """Queue a finished request for the next step, and for writing."""
        begin = min(request.prompt, len(request.tokens))
        tokens, eos = request.tokens, self._tokenizer.eos
        if eos is not None:  # a pass may have gone beyond it
            ends = np.flatnonzero(tokens[begin:] == eos)
            tokens = tokens[: begin + ends[0] + 1] if len(ends) else tokens
        if len(tokens) <= begin:
            return
        self.past(request.key)  # read before anything of this run is written there
        tokens = np.array(tokens, np.int32)
        self._waiting.append(request._replace(tokens=tokens, prompt=begin))
        if self._writer is not None and self._has_folder(request.key):
            if not self._prompts:
                tokens, begin = tokens[begin:], 0
            self._writer.put(request.key, tokens, begin)

    def take_in(self) -> int:
        """Add requests that ended since the last step, ordered by name; return how many."""
        count = len(self._waiting)
        for request in sorted(self._waiting, key=lambda each: each.name):
            self.past(request.key).remember(request.tokens, request.prompt)
        self._waiting.clear()
        self._taken_in += count
        return count

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def _has_folder(self, key: str) -> bool:
        """Return whether a tenant may have a folder; anybody may send keys."""
        return self._folder is not None and (
            key in self._read or len(self._read) < MAX_TENANT_FOLDERS
        )


def config_of_later_replica(config: DraftConfig, *, ranks: int, logs: bool) -> DraftConfig:
    """Return the configuration of a data-parallel engine after the first, which alone writes.

    Several ranks that read a tenant's folder while it is written might read different requests.
    """
    if not isinstance(config.history, str) or not config.store:
        return config
    unread = config.history_by is not None and ranks > 1
    if logs:
        LOG.warning(
            "the first data-parallel engine alone writes %s; this one %sremembers in memory",
            config.history,
            "has several ranks, so it does not read tenants' folders, and " if unread else "",
        )
    return replace(config, history=True) if unread else config


def tenant_folder(key: str) -> str:
    raw = key.encode(errors="surrogatepass")  # JSON may hold half a surrogate pair
    return hashlib.sha256(raw).hexdigest()[:FOLDER_NAME_DIGITS]


class Folders:
    def __init__(
        self, folder: Path, tokenizer: TokenizerRecord, *, keyed: bool, stores: bool
    ) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        self._keyed, self._stores = keyed, stores

    def open(self, key: str) -> History | None:
        """Open a tenant's history; None if it would stay empty."""
        folder = self._folder / tenant_folder(key) if self._keyed else self._folder
        return PastUse(folder, recorded=not self._stores).history(self._tokenizer)

    def all(self) -> list[Path]:
        found = self._folder.iterdir() if self._keyed else [self._folder]
        return [folder for folder in found if (folder / MANIFEST_FILE).exists()]


class HistoryWriter:
    """A thread that writes requests to the histories of `folders`, until `end` or its process ends.

    Beyond `most` bytes a log's oldest half is dropped, and so are requests older than `days`;
    earlier ones count as written when first seen. The index covers the newest `searched` tokens.
    """

    def __init__(
        self,
        folders: Folders,
        most: int,
        searched: int,
        days: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folders, self._most, self._searched = folders, most, searched
        self._age = None if days is None else days * DAY_SECONDS
        self._clock = clock
        self.written = 0
        self._complained: set[str] = set()
        self._process = 0  # id of the thread's process; a forked child has no thread
        if days is not None:
            self._start()

    def put(self, key: str, tokens: TokenArray, prompt: int) -> None:
        if self._process != os.getpid():
            self._start()
        if self._queue.qsize() >= MAX_WAITING_REQUESTS:
            self._warn_once("requests finish faster than they are written: some are not")
        else:
            self._queue.put((key, tokens, prompt))

    def flush(self) -> None:
        if self._process != os.getpid() or not self._thread.is_alive():
            return
        written = threading.Event()
        self._queue.put(written)
        if threading.current_thread() is not self._thread:
            written.wait(EXIT_SECONDS)

    def end(self) -> None:
        if self._process == os.getpid():
            self.flush()
            self._queue.put(None)
            self._exit.cancel()

    def _start(self) -> None:
        self._process = os.getpid()
        # A request, an event to set when those before it are written, or None at the end. Unlike
        # queue.Queue's, its `put` may be called while garbage is collected.
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._histories: dict[str, History] = {}
        self._unsorted: dict[str, int] = {}  # tokens that each index lacks
        # When expired requests were last searched; not yet, since other ranks may still read.
        self._looked = self._clock()
        self._idle = True  # nothing was written yet
        self._thread = threading.Thread(target=self._run, name="ngramkit history", daemon=True)
        self._thread.start()
        self._exit = Finalize(None, self.end, exitpriority=EXIT_PRIORITY)

    def _run(self) -> None:
        while True:
            self._attempt(self._expire_if_due)
            try:
                item = self._queue.get(timeout=None if self._age is None else self._pause())
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._attempt(self._write, *item)

    def _attempt(self, work: Callable[..., None], *given: Any) -> None:
        try:
            work(*given)
        except NgramkitError as error:
            self._warn_once(one_line(error))
        except Exception as error:  # the thread goes on, whatever it was
            self._warn_once(reason(error) or repr(error))

    def _write(self, key: str, tokens: TokenArray, prompt: int) -> None:
        history = self._histories.pop(key, None) or self._folders.open(key)
        if history is None:
            return
        history.append(tokens, prompt)
        self._histories[key] = history  # after an error it is opened again
        self.written += 1
        if self._idle:
            self._idle, self._looked = False, -math.inf
        if (dropped := keep_newest_half_if_larger(history, self._most)) is not None:
            _log_dropped(history, dropped)
        self._unsorted[key] = self._unsorted.get(key, 0) + len(tokens)
        if self._unsorted[key] >= max(self._searched // INDEX_LAG_ONE_IN, MIN_INDEX_LAG):
            self._unsorted[key] = 0
            History(history.path, history.manifest).extend_index(self._searched)

    def _pause(self) -> float:
        return min(max((self._age or 0.0) / EXPIRY_CHECKS_PER_AGE, 1.0), LONGEST_PAUSE)

    def _expire_if_due(self) -> None:
        now = self._clock()
        if self._age is None or abs(now - self._looked) < self._pause():
            return
        self._looked = now
        for folder in self._folders.all():
            self._attempt(self._expire, folder, self._age, now)

    def _expire(self, folder: Path, age: float, now: float) -> None:
        history = History.open(folder)
        _log_dropped(history, drop_older_than(history, age, now))

    def _warn_once(self, what: str) -> None:
        if what not in self._complained:
            self._complained.add(what)
            LOG.warning("cannot write the history: %s; drafting continues", what)


def _log_dropped(history: History, dropped: Dropped) -> None:
    if dropped.requests:
        LOG.info("%s: dropped the oldest %s requests", history.path, f"{dropped.requests:,}")
    if dropped.damaged:
        aside = history.path / DAMAGED
        LOG.warning("%s: moved %s damaged bytes there", aside, f"{dropped.damaged:,}")
