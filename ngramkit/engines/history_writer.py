"""A thread that writes an engine's finished requests to their histories, so that no step waits.

What is put is written within moments; a process that ends writes what is left, one that is killed
loses that. A request is whole in the log once it is counted (`written`), whatever then happens to
the process. Where nothing can be written, as on a full disk, that is logged once, and drafts go on.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from multiprocessing.util import Finalize

from ngramkit.drafters.base import TokenArray
from ngramkit.errors import NgramkitError, one_line, reason
from ngramkit.formats.history import History

LOG = logging.getLogger("ngramkit")
WAITING = 4096  # requests that wait to be written, at most
DAY = 86_400.0  # seconds
LOOKS = 50  # in an age: how often requests that are older are looked for
PART, LEAST = 16, 1 << 12  # an index lacks so small a part of what is searched, or so many tokens
PATIENCE = 10.0  # seconds for which a process that ends waits for its thread
EXIT_PRIORITY = 10  # of Finalize: in children of multiprocessing too, which run no atexit

Item = tuple[str, TokenArray, int]  # key, tokens, tokens of the prompt


class HistoryWriter:
    """Writes requests to the history that `open_history` opens for each key. Of a log of more than
    `most` bytes the oldest half is dropped, and so are requests of more than `days`, where that is
    given: what was there when it was first looked at counts as written then. Its index is kept over
    the newest `searched` tokens, for the next start."""

    def __init__(
        self,
        open_history: Callable[[str], History | None],
        most: int,
        searched: int,
        days: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open, self._most, self._clock = open_history, most, clock
        self._searched = searched
        self._age = None if days is None else days * DAY
        self.written = 0  # requests
        self._process = 0  # whose thread it is; a forked child has none
        self._complained: set[str] = set()

    def put(self, key: str, tokens: TokenArray, prompt: int) -> None:
        """Hand over a finished request, int32[n]; return at once."""
        if self._process != os.getpid():
            self._start()
        try:
            self._queue.put_nowait((key, tokens, prompt))
        except queue.Full:
            self._complain("requests finish faster than they are written: some are not")

    def flush(self, patience: float = PATIENCE) -> None:
        """Wait until all that was put is written, or cannot be; for `patience` seconds at most."""
        if self._process == os.getpid():
            with self._queue.all_tasks_done:
                self._queue.all_tasks_done.wait_for(
                    lambda: not self._queue.unfinished_tasks, patience
                )

    def _start(self) -> None:
        self._process = os.getpid()
        self._queue: queue.Queue[Item] = queue.Queue(WAITING)
        self._histories: dict[str, History] = {}
        self._requests: dict[str, int] = {}  # in each history's log
        self._noted: dict[str, float] = {}  # when that was last noted there
        self._unsorted: dict[str, int] = {}  # tokens that each index lacks
        threading.Thread(target=self._run, name="ngramkit history", daemon=True).start()
        Finalize(None, self.flush, exitpriority=EXIT_PRIORITY)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            try:
                self._write(*item)
            except NgramkitError as error:
                self._complain(one_line(error))
            except OSError as error:
                self._complain(reason(error))
            finally:
                self._queue.task_done()

    def _write(self, key: str, tokens: TokenArray, prompt: int) -> None:
        history = self._histories.pop(key, None) or self._open(key)
        if history is None:
            return
        history.append(tokens, prompt)
        self._histories[key] = history  # one that failed is opened anew
        added, restarted = history.news()  # others' too
        self._requests[key] = len(added) + (0 if restarted else self._requests.get(key, 0))
        self.written += 1
        dropped = self._expired(key, history) if self._age else 0
        if history.bytes > self._most:
            dropped += history.trim(self._most // 2 // history.log.width.itemsize)
        if dropped:
            LOG.info("%s: %s oldest requests were dropped", history.path, f"{dropped:,}")
        self._unsorted[key] = self._unsorted.get(key, 0) + len(tokens)
        if self._unsorted[key] >= max(self._searched // PART, LEAST):
            self._unsorted[key] = 0
            History(history.path, history.manifest).extend_index(self._searched)

    def _expired(self, key: str, history: History) -> int:
        """Now and then, note how many requests there are, and drop those that are too old; return
        how many went."""
        now, age = self._clock(), self._age or 0.0
        if now - self._noted.get(key, 0.0) < age / LOOKS:
            return 0
        self._noted[key] = now
        history.note_age(self._requests[key], now)
        return history.expire(now - age)

    def _complain(self, what: str) -> None:
        if what not in self._complained:
            self._complained.add(what)
            LOG.warning("the history is not written: %s; drafts go on", what)
