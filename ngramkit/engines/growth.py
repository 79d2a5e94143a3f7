"""Histories that grow while an engine serves.

A finished request joins the history in the step after its end, in memory, and every request drafts
from it from then on. Within a run nothing else changes what is drafted from: the folder is read
when the engine starts (a tenant's at its first request), and requests of other processes that share
it come in at the next start. So ranks of one engine, which see the same requests in the same steps,
draft alike without talking; one of them writes.

Writing is a thread's (`HistoryWriter`): no step waits for it. So is merging what has grown: what
comes of it is drafted from after as many tokens more on every rank. A request is written within
moments of its end. A process that ends writes what is left; one that is killed loses that, but no
request that was counted (`HistoryWriter.written`).

What is remembered is somebody's text. It is off unless a history was named, said in the log where
it is on, and lies in files that only their owner may read.
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
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import NgramkitError, first_line, one_line, reason
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.sources import PastUse
from ngramkit.engines.config import DraftConfig
from ngramkit.formats.eviction import Dropped, expire, shrink
from ngramkit.formats.history import DAMAGED, PRIVATE, History
from ngramkit.formats.manifest import NAME
from ngramkit.formats.tokenizer_record import TokenizerRecord

LOG = logging.getLogger("ngramkit")
# The key of a request's own parameters that names its tenant; false or 0: it is not remembered.
REQUEST_KEY = "ngramkit_history"
OFF = ("false", "off", "no", "0")  # texts that mean false there
TENANTS = 64  # histories in memory at once
FOLDERS = 4096  # tenants with a folder in one run, at most; others are in memory alone
DIGITS = 32  # of a tenant's folder
LONGEST_KEY = 4096  # characters of a tenant's key
WATCHED = 4096  # requests that may wait to go on
WAITING = 4096  # requests that wait to be written, at most
DAY = 86_400.0  # seconds
LOOKS = 50  # in an age: how often requests that are older are looked for
LONGEST_PAUSE = 3600.0  # seconds between two looks
PART, LEAST = 16, 1 << 12  # an index lacks so small a part of what is searched, or so many tokens
PATIENCE = 10.0  # seconds for which a process that ends waits for its thread
EXIT_PRIORITY = 10  # of Finalize: in children of multiprocessing too, which run no atexit


class Finished(NamedTuple):
    """A request that ended."""

    tokens: TokenArray  # int32[n], prompt and output
    prompt: int  # tokens of the prompt
    name: str = ""  # by which the engine knows it
    key: str = ""  # of its tenant


class _FixedPastRequests(PastRequests):
    """Past requests that no other process adds to, so that every rank of an engine has the same."""

    def refresh(self) -> None: ...


class GrowingHistory:
    """The past requests that an engine drafts from, by tenant: "" where there is one history.

    `stores`: requests of this engine join them; `writes`: this process writes them to the folder.
    Raises ArtifactError where something else is there, or a history of another tokenizer.
    """

    def __init__(
        self, config: DraftConfig, tokenizer: TokenizerRecord, *, stores: bool, writes: bool
    ) -> None:
        self.stores = stores
        self.told = False  # the engine says which requests have finished
        self.keyed = config.history_by is not None
        self._folder = Path(config.history) if isinstance(config.history, str) else None
        self._tokenizer, self._tokens = tokenizer, config.history_tokens
        self._prompts = config.history_prompts
        self._waiting: list[Finished] = []  # to be taken in, in the next step
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
        self.past("")

    @property
    def notice(self) -> str:
        """The sentence for whoever runs the server: what is remembered, and where."""
        what = "prompts and answers" if self._prompts else "answers"
        where = "in memory" if self._folder is None else f"in {self._folder}"
        whose = ", by tenant" if self.keyed else ""
        return f"finished requests are remembered: their {what}, {where}{whose}"

    @property
    def remembered(self) -> int:
        """The number of requests of this run that are in the folder, or in memory where this
        process writes to none."""
        return self._taken_in if self._writer is None else self._writer.written

    def past(self, key: str) -> PastRequests:
        """Return a tenant's past requests, read from its folder in the tenant's first step.

        Those of the least recent tenant are let go for a new one, and begin with nothing should it
        come back: what its folder holds by then may not be the same to every rank.
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
                    LOG.warning("a tenant's history is not read: %s", first_line(error))
            past = self._by_key[key] = _FixedPastRequests(
                history,
                tokenizer=self._tokenizer,
                capacity=self._tokens,
                prompts=self._prompts,
                read_only=True,
            )
            if len(self._by_key) > TENANTS:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        return past

    def dummy(self, tokens: TokenArray) -> PastRequests:
        """Return past requests, in memory, to which the same int32[n] were added until they were
        merged and the oldest dropped: drafting from them compiles every kernel."""
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
        """Hand over a request that ended; it is drafted from in the next step, and written."""
        begin = min(request.prompt, len(request.tokens))
        tokens, eos = request.tokens, self._tokenizer.eos
        if eos is not None:  # a pass may have gone on behind it
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
        """Let requests be drafted from that ended since the last step; return how many.

        In the order of their names, which is the same on every rank.
        """
        count = len(self._waiting)
        for request in sorted(self._waiting, key=lambda each: each.name):
            self.past(request.key).remember(request.tokens, request.prompt)
        self._waiting.clear()
        self._taken_in += count
        return count

    def flush(self) -> None:
        """Wait until all finished requests are written, or cannot be."""
        if self._writer is not None:
            self._writer.flush()

    def _has_folder(self, key: str) -> bool:
        """Return whether a tenant has a folder; keys may come from anybody, so not all have one."""
        return self._folder is not None and (key in self._read or len(self._read) < FOLDERS)


def forbids_remembering(parameters: Mapping[str, Any]) -> bool:
    """Return whether a request's own parameters say that it is not to be remembered."""
    return is_off(parameters.get(REQUEST_KEY))


def is_off(value: object) -> bool:
    """Return whether a request's parameter means no: false, 0, or one of OFF as text.

    >>> is_off(False), is_off(0.0), is_off("False"), is_off(None), is_off("")
    (True, True, True, False, False)
    """
    return value == 0 or (isinstance(value, str) and value.strip().lower() in OFF)


def tenant_of(said: Any) -> str | None:
    """Return the key of a tenant by what a client sent, which may be anything; "" for nothing.

    None if it is not a number or a text of at most LONGEST_KEY characters: such a request is not
    remembered.
    """
    if said is None:
        return ""
    if not isinstance(said, str | int | float):
        return None
    if isinstance(said, int) and said.bit_length() > LONGEST_KEY:  # Python writes no such number
        return None
    key = str(said)
    return key if len(key) <= LONGEST_KEY else None


def tenant_folder(key: str) -> str:
    """Return the name of a tenant's folder: the first digits of the key's sha256."""
    raw = key.encode(errors="surrogatepass")  # JSON may hold half a surrogate pair
    return hashlib.sha256(raw).hexdigest()[:DIGITS]


class Folders:
    """An engine's histories in `folder`: one, or one for each tenant, by key."""

    def __init__(
        self, folder: Path, tokenizer: TokenizerRecord, *, keyed: bool, stores: bool
    ) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        self._keyed, self._stores = keyed, stores

    def open(self, key: str) -> History | None:
        """Open a tenant's history; None where there is none and none is made."""
        folder = self._folder / tenant_folder(key) if self._keyed else self._folder
        return PastUse(folder, recorded=not self._stores).history(self._tokenizer)

    def all(self) -> list[Path]:
        """Return the folder of every history that is there."""
        found = self._folder.iterdir() if self._keyed else [self._folder]
        return [folder for folder in found if (folder / NAME).exists()]


class HistoryWriter:
    """A thread that writes requests to the histories of `folders`; it ends with this object.

    Of a log of more than `most` bytes the oldest half is dropped, and so are requests of more than
    `days`, where that is given, of every history that is there: what was there when it was first
    looked at counts as written then. Its index is kept over the newest `searched` tokens, for the
    next start. Where nothing can be written, as on a full disk, that is logged once, and drafts go
    on.
    """

    def __init__(
        self,
        folders: Folders,
        most: int,
        searched: int,
        days: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        age = None if days is None else days * DAY
        self._work = _Writing(folders, most, searched, age, clock)
        self._process = 0  # whose thread it is; a forked child has none
        if days is not None:
            self._start()

    @property
    def written(self) -> int:
        """The number of requests that were written."""
        return self._work.written

    def put(self, key: str, tokens: TokenArray, prompt: int) -> None:
        """Add a finished request, int32[n], to those that wait; return at once."""
        if self._process != os.getpid():
            self._start()
        if self._work.queue.qsize() >= WAITING:
            self._work.complain("requests finish faster than they are written: some are not")
        else:
            self._work.queue.put((key, tokens, prompt))

    def flush(self) -> None:
        """Wait until all that was put is written, or cannot be; for PATIENCE seconds at most."""
        if self._process == os.getpid():
            self._work.flush()

    def _start(self) -> None:
        self._process = os.getpid()
        self._work.begin()
        Finalize(self, self._work.end, exitpriority=EXIT_PRIORITY)


class _Writing:
    """The work of a HistoryWriter's thread, which does not hold the writer."""

    def __init__(
        self,
        folders: Folders,
        most: int,
        searched: int,
        age: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._folders, self._most, self._searched = folders, most, searched
        self._age, self._clock = age, clock
        self.written = 0
        self._complained: set[str] = set()

    def begin(self) -> None:
        # A request, an event to set when those before it are written, or None at the end. Unlike
        # queue.Queue's, its `put` may be called while garbage is collected.
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._histories: dict[str, History] = {}
        self._unsorted: dict[str, int] = {}  # tokens that each index lacks
        # When requests that are too old were looked for; not yet, since other ranks may still read.
        self._looked = self._clock()
        self._idle = True  # nothing was written yet
        self._thread = threading.Thread(target=self._run, name="ngramkit history", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        written = threading.Event()
        self.queue.put(written)
        if threading.current_thread() is not self._thread:
            written.wait(PATIENCE)

    def end(self) -> None:
        self.flush()
        self.queue.put(None)

    def _run(self) -> None:
        while True:
            self._attempt(self._expire_if_due)
            try:
                item = self.queue.get(timeout=None if self._age is None else self._pause())
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
            self.complain(one_line(error))
        except Exception as error:  # the thread goes on, whatever it was
            self.complain(reason(error) or repr(error))

    def _write(self, key: str, tokens: TokenArray, prompt: int) -> None:
        history = self._histories.pop(key, None) or self._folders.open(key)
        if history is None:
            return
        history.append(tokens, prompt)
        self._histories[key] = history  # one that failed is opened anew
        self.written += 1
        if self._idle:
            self._idle, self._looked = False, -math.inf
        if (dropped := shrink(history, self._most)) is not None:
            _log_dropped(history, dropped)
        self._unsorted[key] = self._unsorted.get(key, 0) + len(tokens)
        if self._unsorted[key] >= max(self._searched // PART, LEAST):
            self._unsorted[key] = 0
            History(history.path, history.manifest).extend_index(self._searched)

    def _pause(self) -> float:
        """Return the seconds between two looks for requests that are too old."""
        return min(max((self._age or 0.0) / LOOKS, 1.0), LONGEST_PAUSE)

    def _expire_if_due(self) -> None:
        now = self._clock()
        if self._age is None or abs(now - self._looked) < self._pause():
            return
        self._looked = now
        for folder in self._folders.all():
            self._attempt(self._expire, folder, self._age, now)

    def _expire(self, folder: Path, age: float, now: float) -> None:
        history = History.open(folder)
        _log_dropped(history, expire(history, age, now))

    def complain(self, what: str) -> None:
        if what not in self._complained:
            self._complained.add(what)
            LOG.warning("the history is not written: %s; drafts go on", what)


def _log_dropped(history: History, dropped: Dropped) -> None:
    if dropped.requests:
        LOG.info("%s: dropped the oldest %s requests", history.path, f"{dropped.requests:,}")
    if dropped.damaged:
        aside = history.path / DAMAGED
        LOG.warning("%s: moved %s damaged bytes there", aside, f"{dropped.damaged:,}")


class Departures:
    """Requests that an engine shows while they run, and that say whether they have finished.

    One that is not shown has finished, was aborted, or waits to go on; it may say so only later.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}

    def left(self, running: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Return those that are not `running`, in the order of their names, and remember these
        with them."""
        now = dict(running)
        left = {name: self._seen[name] for name in sorted(self._seen.keys() - now.keys())}
        self._seen.update(now)
        while len(self._seen) > max(WATCHED, len(now)):  # some never say that they were aborted
            del self._seen[next(iter(self._seen))]
        return left

    def forget(self, name: str) -> None:
        """Look for a request no more."""
        self._seen.pop(name, None)
