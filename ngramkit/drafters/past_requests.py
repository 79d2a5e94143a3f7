"""Past requests, always searchable: a circular token buffer and suffix arrays over it.

Requests that were there at start, those that came since, and the newest of these have separate
suffix arrays, so that each can be trusted for itself.

The latest requests lie in a short tail whose suffix array is made at once (a few milliseconds).
When the tail has grown to `rebuild_tokens`, suffix arrays over the whole buffer are made in the
background, while drafting goes on with the old ones; all are then replaced together. A rebuild
changes no match: only what the circular buffer has overwritten is lost with it, and of more than
`newest_tokens` the older half are no longer the newest. (`shards` is one attribute, set at once: a
drafter sees the old ones or the new ones.)

A process may fork at any time: the child has the same requests, and rebuilds for itself. A fork
waits while the stream or the shards change, not while the background sorts or saves. (filelock
keeps the child free of a file lock that is held meanwhile.)

One thread adds; `shards` may be read at any time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from ngramkit.drafters.base import describe
from ngramkit.errors import UsageError, require_between
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.formats.history import History
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.request_log import Mark
from ngramkit.kernels.suffix.sort import sort_shard

CAPACITY = 4_000_000  # tokens
REBUILD = 1 << 15  # tokens; sorting as many takes 5 to 20 ms
NEWEST = 1 << 16  # tokens


class PastRequests:
    """The requests' datastore shards by origin, `shards`; none at first.

    With a `history`, begins with its requests; `remember` adds there, `refresh` takes in what other
    processes have added. Without one, the `tokenizer` must be given. The newest `capacity` tokens
    are searched. With `background` False a rebuild blocks the caller, so that matches never depend
    on timing. With `read_only` requests are remembered in memory alone; while the attribute
    `forgetful` is set, none is remembered.

    Raises UsageError for a capacity below one, or where neither history nor tokenizer is given.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        capacity: int = CAPACITY,
        rebuild_tokens: int = REBUILD,
        newest_tokens: int = NEWEST,
        background: bool = True,
        read_only: bool = False,
        forgetful: bool = False,
    ) -> None:
        if history is not None:
            history = History(history.path, history.manifest)  # its own place in the log
            tokenizer = history.tokenizer
        if tokenizer is None:
            raise UsageError("past requests need a history or a tokenizer", "give one of them")
        require_between("history_tokens", capacity, 1, (1 << 31) - 1)
        self.shards = Shards()
        self.tokenizer = tokenizer
        self.separator = tokenizer.vocabulary
        self._history = history
        self._capacity = capacity
        self._rebuild_tokens = rebuild_tokens
        self._newest_tokens = newest_tokens
        self._background = background
        self._read_only = read_only
        self.forgetful = forgetful
        self._reset_builder()
        self._clear()
        _LIVING.add(self)
        if history is not None:
            self._load(history)

    def _reset_builder(self) -> None:
        """Set up the state in which no rebuild is running."""
        self._swap = threading.Lock()  # held to change the stream or the shards
        self._builder: threading.Thread | None = None
        self._building = False  # that thread will check for new requests again

    def __repr__(self) -> str:
        return f"<PastRequests {self.tokens:,} tokens, {describe((), self.tokenizer)}>"

    @property
    def tokens(self) -> int:
        """Return the number of searchable tokens, separators included."""
        return sum(len(shard.tokens) for shard in itertools.chain(*self.shards))

    def remember(self, tokens: Array, prompt: int) -> None:
        """Add a finished request; the first `prompt` of its tokens are the prompt."""
        if self.forgetful:
            return
        if self._history is not None and not self._read_only:
            self._history.append(tokens, prompt)
            self.refresh()
            return
        valid = (tokens >= 0) & (tokens < self.separator)
        size = len(tokens) if valid.all() else int(valid.argmin())
        self._add([tokens[:size]], self._mark)

    def refresh(self) -> None:
        """Take in the requests added to the history since the last call, by any process."""
        if self._history is not None:
            requests, restarted = self._history.news()
            if requests or restarted:
                tokens = [request.tokens for request in requests]
                self._add(tokens, self._history.mark, restarted=restarted)
        self._rebuild_if_due()

    def wait(self) -> None:
        """Wait until no rebuild is running."""
        if self._builder is not None:
            self._builder.join()

    def _clear(self) -> None:
        self.shards = Shards()
        self._stream = TokenRing(self._capacity, token_dtype(self.separator))
        self._since = self._newest = 0  # where in the stream these begin
        self._ends: list[int] = []  # of the newest requests
        self._sorted = Shards()  # at most one each, over the stream up to `sorted_end`
        self.sorted_end = 0
        self._mark: Mark | None = None  # where in the history the stream ends

    def _load(self, history: History) -> None:
        shard = history.load_index(self._capacity)
        if shard is not None:
            self._stream.add(shard.tokens)
            self._sorted, self.sorted_end = Shards(at_start=(shard,)), self._stream.end
        requests, _ = history.news()
        self._add([r.tokens for r in requests], history.mark, opening=True)

    def _add(
        self,
        requests: Sequence[Array],
        mark: Mark | None,
        *,
        restarted: bool = False,
        opening: bool = False,
    ) -> None:
        with self._swap:
            if restarted:
                self._clear()
            for request in requests:
                self._stream.add(np.append(request, self.separator))
                self._ends.append(self._stream.end)
            if restarted or opening:
                self._since = self._newest = self._stream.end
                self._ends = []
            self._mark = mark
            self._publish()
        self._rebuild_if_due()

    def _rebuild_if_due(self) -> None:
        with self._swap:
            start = self._due and not self._building
            self._building = self._building or start
        if start:
            # No daemon: a process that ends waits for it, so that its index is not lost.
            self._builder = threading.Thread(target=self._rebuild, name="suffix array of requests")
            self._builder.start()
            if not self._background:
                self._builder.join()

    @property
    def _due(self) -> bool:
        return self._stream.end - self.sorted_end >= self._rebuild_tokens

    def _publish(self) -> None:
        """Set new shards: the sorted ones, and the tail's, which are sorted now. The tail is
        bounded: a long history's first load, or a slow rebuild, leaves more to the background."""
        begin = max(self.sorted_end, self._stream.end - 2 * self._rebuild_tokens)
        tails = self._by_origin(self._stream.since(begin), self._newest)
        pairs = zip(self._sorted, tails, strict=True)
        self.shards = Shards(*(s + sort_requests(tail, self.separator) for s, tail in pairs))

    def _by_origin(self, tokens: Array, newest: int) -> list[Array]:
        """Split the stream's last `tokens` by origin; `newest` is where the newest begin in it."""
        begin = self._stream.end - len(tokens)
        return np.split(tokens, [max(self._since - begin, 0), max(newest - begin, 0)])

    def _rebuild(self) -> None:
        """Sort until only a short tail was added meanwhile; then save the index."""
        try:
            while self._building:
                shards, end, mark = self._sort_all()
        except BaseException:
            self._building = False
            raise
        if self._history is not None and mark is not None and not self._read_only:
            shard = join(shards, self.separator)
            # Without its index a history is only slower to load: a full disk is no error here.
            with contextlib.suppress(OSError):
                self._history.save_index(shard, mark, complete=end < self._capacity)

    def _sort_all(self) -> tuple[Shards, int, Mark | None]:
        """Make and publish a suffix array per origin over the whole buffer; return them, and where
        in the stream and in the history they end."""
        with self._swap:
            stream, end, mark = self._stream, self._stream.end, self._mark
            newest = self._next_newest()
            tokens, *others = self._by_origin(stream.since(0), newest)
            at_start = self._sorted.at_start if self.sorted_end >= self._since else ()
        if sum(len(shard.tokens) for shard in at_start) != len(tokens):  # else it has not changed
            at_start = sort_requests(tokens, self.separator)
        shards = Shards(at_start, *(sort_requests(added, self.separator) for added in others))
        with self._swap:
            if stream is self._stream:  # else the history was rewritten meanwhile
                self._sorted, self.sorted_end = shards, end
                self._newest, self._ends = newest, [e for e in self._ends if e > newest]
                self._publish()
            self._building = self._due
        return shards, end, mark

    def _next_newest(self) -> int:
        """Return where in the stream the newest requests begin after a rebuild."""
        if self._stream.end - self._newest <= self._newest_tokens:
            return self._newest
        limit = self._stream.end - self._newest_tokens // 2
        return max((end for end in self._ends if end <= limit), default=self._newest)


_LIVING: WeakSet[PastRequests] = WeakSet()


class _Fork:
    """A pause of all changes while the process forks: the child gets a consistent state."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._locked: list[PastRequests] = []

    def before(self) -> None:
        self._one_at_a_time.acquire()
        for past in list(_LIVING):
            past._swap.acquire()
            self._locked.append(past)

    def in_parent(self) -> None:
        while self._locked:
            self._locked.pop()._swap.release()
        self._one_at_a_time.release()

    def in_child(self) -> None:
        """Forget the parent's builder thread, which the child does not have."""
        for past in self._locked:
            past._reset_builder()
        self.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(
        before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child
    )


class Shards(NamedTuple):
    """Past requests by origin; of each no shard, one (sorted), or two (sorted, and a tail)."""

    at_start: tuple[DatastoreShard, ...] = ()  # there at start, or when the log was rewritten
    since: tuple[DatastoreShard, ...] = ()  # added since, by any process, but for the newest
    newest: tuple[DatastoreShard, ...] = ()  # the last of those added since


def sort_requests(tokens: Array, separator: int) -> tuple[DatastoreShard, ...]:
    """Return one shard over requests that each end with `separator`; none of no tokens."""
    return (DatastoreShard(**sort_shard(tokens, separator)),) if len(tokens) else ()


def join(shards: Shards, separator: int) -> DatastoreShard:
    """Return one shard over all requests, for a later process to start with."""
    parts = list(itertools.chain(*shards))
    if len(parts) == 1:
        return parts[0]
    return sort_requests(np.concatenate([shard.tokens for shard in parts]), separator)[0]


class TokenRing:
    """A buffer of the last `capacity` tokens of an endless stream; `end` counts all tokens ever
    added.

    Capacity 4, after [1, 2, 3] and [4, 5]: since(0) is [2, 3, 4, 5], since(3) is [4, 5].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.uint16] | np.dtype[np.uint32]) -> None:
        self.end = 0
        self._tokens = np.empty(capacity, dtype)

    def add(self, tokens: Array) -> None:
        capacity = len(self._tokens)
        last = tokens[-capacity:]
        begin = (self.end + len(tokens) - len(last)) % capacity
        first = min(len(last), capacity - begin)
        self._tokens[begin : begin + first] = last[:first]
        self._tokens[: len(last) - first] = last[first:]
        self.end += len(tokens)

    def since(self, begin: int) -> Array:
        """Return a copy of the stream from `begin`, or from the oldest token in the buffer."""
        capacity = len(self._tokens)
        begin = max(begin, self.end - capacity, 0)
        at, count = begin % capacity, self.end - begin
        first = min(count, capacity - at)
        return np.concatenate([self._tokens[at : at + first], self._tokens[: count - first]])
