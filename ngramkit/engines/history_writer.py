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
from collections.abc import Callable
from multiprocessing.util import Finalize

from ngramkit.drafters.base import TokenArray
from ngramkit.errors import NgramkitError, one_line, reason
from ngramkit.formats.history import History

LOG = logging.getLogger("ngramkit")
WAITING = 4096  # requests that wait to be written, at most
PATIENCE = 10.0  # seconds for which a process that ends waits for its thread
EXIT_PRIORITY = 10  # of Finalize: in children of multiprocessing too, which run no atexit

Item = tuple[str, TokenArray, int]  # key, tokens, tokens of the prompt


class HistoryWriter:
    """Writes requests to the history that `open_history` opens for each key. Of a log of more than
    `most` bytes the oldest half is dropped."""

    def __init__(self, open_history: Callable[[str], History | None], most: int) -> None:
        self._open, self._most = open_history, most
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
        history.news()  # drafts are not made from here
        self.written += 1
        if history.bytes > self._most:
            dropped = history.trim(self._most // 2 // history.log.width.itemsize)
            LOG.info("%s: %s oldest requests were dropped", history.path, f"{dropped:,}")

    def _complain(self, what: str) -> None:
        if what not in self._complained:
            self._complained.add(what)
            LOG.warning("the history is not written: %s; drafts go on", what)
