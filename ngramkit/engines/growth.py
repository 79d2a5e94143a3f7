"""Histories that grow while an engine serves.

A finished request joins the history in the step after its end, in memory, and every request drafts
from it from then on. Within a run nothing else changes what is drafted from: the folder is read
when the engine starts (a tenant's at its first request), and requests of other processes that share
it come in at the next start. So ranks of one engine, which see the same requests in the same steps,
draft alike without talking; one of them writes.

Writing is a thread's (`engines.history_writer`): no step waits for it.

What is remembered is somebody's text. It is off unless a history was named, said in the log where
it is on, and lies in files that only their owner may read.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.sources import PastUse
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.history_writer import HistoryWriter
from ngramkit.errors import NgramkitError, first_line
from ngramkit.formats.history import PRIVATE, History
from ngramkit.formats.manifest import TokenizerRecord

LOG = logging.getLogger("ngramkit")
# The key of a request's own parameters that names its tenant; false or 0: it is not remembered.
REQUEST_KEY = "ngramkit_history"
TENANTS = 64  # histories in memory at once
FOLDERS = 4096  # tenants with a folder in one run, at most; others are in memory alone
DIGITS = 32  # of a tenant's folder
WATCHED = 4096  # requests that may wait to go on


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
        if self.keyed and self._folder is not None and stores:
            self._folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self._writer = None
        if stores and writes and self._folder is not None:
            self._writer = HistoryWriter(
                self._open, config.history_bytes, config.history_tokens, config.history_days
            )
        self.past("")

    @property
    def notice(self) -> str:
        """What whoever runs the server should know of it."""
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
            if self._stored(key) and key not in self._read:
                self._read.add(key)
                history = self._opened(key)
            past = self._by_key[key] = _FixedPastRequests(
                history,
                tokenizer=self._tokenizer,
                capacity=self._tokens,
                background=False,
                read_only=True,
            )
            if len(self._by_key) > TENANTS:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        return past

    def dummy(self, tokens: TokenArray) -> PastRequests:
        """Return past requests, in memory, that have grown by the same int32[n] again and again, so
        that all that is ever done to past requests was done."""
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
        if not self._prompts:
            tokens, begin = tokens[begin:], 0
        if len(tokens) <= begin:
            return
        self.past(request.key)  # read before anything of this run is written there
        kept = request._replace(tokens=np.array(tokens, np.int32), prompt=begin)
        self._waiting.append(kept)
        if self._writer is not None and self._stored(request.key):
            self._writer.put(kept.key, kept.tokens, begin)

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

    def _stored(self, key: str) -> bool:
        """Return whether a tenant has a folder; keys may come from anybody, so not all have one."""
        return self._folder is not None and (key in self._read or len(self._read) < FOLDERS)

    def _opened(self, key: str) -> History | None:
        """Open a tenant's history; a tenant's that cannot be opened stops no server."""
        try:
            return self._open(key)
        except (NgramkitError, OSError) as error:
            if key == "":
                raise
            LOG.warning("a tenant's history is not read: %s", first_line(error))
            return None

    def _open(self, key: str) -> History | None:
        assert self._folder is not None
        folder = self._folder / tenant_folder(key) if self.keyed else self._folder
        return PastUse(folder, recorded=not self.stores).history(self._tokenizer)


def tenant_folder(key: str) -> str:
    """Return the name of a tenant's folder: the first digits of the key's sha256."""
    return hashlib.sha256(key.encode()).hexdigest()[:DIGITS]


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
