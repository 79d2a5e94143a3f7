"""Past requests, always searchable: a circular token buffer and suffix arrays over it.

Requests that were there at first, those that came since, and the newest of these have different
suffix arrays, so that what the ones are worth says nothing of the others.

What was added last lies in a short tail whose suffix array is made at once (a few milliseconds).
When the tail has grown to `rebuild_tokens`, or there is one `rebuild_seconds` after the last time,
suffix arrays over the whole buffer are made in the background, while drafting goes on with the old
ones; all are then replaced together. What is found is the same before and after: only what the
circular buffer has overwritten goes with the rebuild, and of more than `newest_tokens` the older
half are no longer the newest. (`shards` is one attribute, set at once: whoever drafts sees the old
ones or the new ones.)

A process may fork at any time: the child has what was there, and builds for itself. A fork waits
while the stream or the shards change, not while the background sorts or saves. (Of a file lock that
is held meanwhile, filelock keeps the child free.)

Knows nothing of drafting. One thread adds; `shards` may be read at any time.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from ngramkit.drafters.base import described
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
    """`shards` are datastore shards by origin, none at first.

    With a `history`, begins with what is in it; `remember` adds there, `refresh` takes in what
    other processes have added. Without one, the `tokenizer` must be given. The newest `capacity`
    tokens are searched. `rebuild_seconds`, of `clock`, are looked at when requests begin and end.
    `background` False rebuilds in the caller's time, so that what is found never depends on timing;
    `read_only` remembers in memory alone; while `forgetful`, an attribute, nothing is remembered.

    Raises UsageError for a capacity below one, or where neither history nor tokenizer is given.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        tokenizer: TokenizerRecord | None = None,
        capacity: int = CAPACITY,
        rebuild_tokens: int = REBUILD,
        rebuild_seconds: float = math.inf,
        newest_tokens: int = NEWEST,
        background: bool = True,
        read_only: bool = False,
        forgetful: bool = False,
        clock: Callable[[], float] = time.monotonic,
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
        self._rebuild_seconds = rebuild_seconds
        self._newest_tokens = newest_tokens
        self._clock = clock
        self._background = background
        self._read_only = read_only
        self.forgetful = forgetful
        self._settle()
        self._clear()
        _LIVING.add(self)
        if history is not None:
            self._load(history)

    def _settle(self) -> None:
        """Nobody is building."""
        self._swap = threading.Lock()  # held to change the stream or the shards
        self._builder: threading.Thread | None = None
        self._building = False  # whether that thread will look again for what was added

    def __repr__(self) -> str:
        return f"<PastRequests {self.tokens:,} tokens, {described((), self.tokenizer)}>"

    @property
    def tokens(self) -> int:
        """How many tokens, separators included, are searchable."""
        return sum(len(shard.tokens) for shard in itertools.chain(*self.shards))

    @property
    def sorted_end(self) -> int:
        """Up to where in the stream of all requests the last rebuild went."""
        return self._sorted_end

    def remember(self, tokens: Array, prompt: int) -> None:
        """Adds a finished request, `prompt` of its tokens being prompt."""
        if self.forgetful:
            return
        if self._history is not None and not self._read_only:
            self._history.append(tokens, prompt)
            self.refresh()
            return
        inside = (tokens >= 0) & (tokens < self.separator)
        kept = len(tokens) if inside.all() else int(inside.argmin())
        self._add([tokens[:kept]], self._mark)

    def refresh(self) -> None:
        """Takes in what was added to the history since the last call, by anybody."""
        if self._history is not None:
            requests, restarted = self._history.news()
            if requests or restarted:
                tokens = [request.tokens for request in requests]
                self._add(tokens, self._history.mark, restarted=restarted)
        self._rebuild_if_due()

    def wait(self) -> None:
        """Until no rebuild is running."""
        if self._builder is not None:
            self._builder.join()

    def _clear(self) -> None:
        self.shards = Shards()
        self._stream = TokenRing(self._capacity, token_dtype(self.separator))
        self._opened = self._newest = 0  # where in the stream each origin begins
        self._ends: list[int] = []  # of the newest requests
        self._sorted = Shards()  # at most one each, over the stream up to `_sorted_end`
        self._sorted_end = 0
        self._sorted_at = self._clock()
        self._mark: Mark | None = None  # where in the history the stream ends

    def _load(self, history: History) -> None:
        shard = history.load_index(self._capacity)
        if shard is not None:
            self._stream.add(shard.tokens)
            self._sorted, self._sorted_end = Shards(earlier=(shard,)), self._stream.end
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
                self._opened = self._newest = self._stream.end
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
        added = self._stream.end - self._sorted_end
        late = self._clock() - self._sorted_at >= self._rebuild_seconds
        return added >= self._rebuild_tokens or (late and added > 0)

    def _publish(self) -> None:
        """New shards: the sorted ones as they are, the tail's made now; a bounded tail, as a first
        load of a long history, or a slow rebuild, may leave much to the background."""
        begin = max(self._sorted_end, self._stream.end - 2 * self._rebuild_tokens)
        tails = self._parted(self._stream.since(begin), self._newest)
        self.shards = Shards(
            *(
                s + sorted_shards(t, self.separator)
                for s, t in zip(self._sorted, tails, strict=True)
            )
        )

    def _parted(self, tokens: Array, newest: int) -> list[Array]:
        """The stream's last `tokens` by origin; `newest`: where in the stream those begin."""
        begin = self._stream.end - len(tokens)
        return np.split(tokens, [max(self._opened - begin, 0), max(newest - begin, 0)])

    def _rebuild(self) -> None:
        """Again and again, until only a short tail was added meanwhile; then saves the index."""
        try:
            while self._building:
                shards, end, mark = self._rebuilt()
        except BaseException:
            self._building = False
            raise
        if self._history is not None and mark is not None and not self._read_only:
            shard = joined(shards, self.separator)
            # Without its index a history is only slower to load: a full disk may go unsaid here.
            with contextlib.suppress(OSError):
                self._history.save_index(shard, mark, complete=end < self._capacity)

    def _rebuilt(self) -> tuple[Shards, int, Mark | None]:
        """A suffix array per origin over the whole buffer; where in the stream and in the history
        they end."""
        with self._swap:
            stream, end, mark, newest = self._stream, self._stream.end, self._mark, self._aged()
            earlier, *others = self._parted(stream.since(0), newest)
            kept = self._sorted.earlier if self._sorted_end >= self._opened else ()
        if sum(len(shard.tokens) for shard in kept) != len(earlier):  # else it is as it was
            kept = sorted_shards(earlier, self.separator)
        shards = Shards(kept, *(sorted_shards(each, self.separator) for each in others))
        with self._swap:
            if stream is self._stream:  # else the history was rewritten meanwhile
                self._sorted, self._sorted_end = shards, end
                self._sorted_at = self._clock()
                self._newest, self._ends = newest, [e for e in self._ends if e > newest]
                self._publish()
            self._building = self._due
        return shards, end, mark

    def _aged(self) -> int:
        """Where in the stream the newest requests begin after a rebuild."""
        if self._stream.end - self._newest <= self._newest_tokens:
            return self._newest
        limit = self._stream.end - self._newest_tokens // 2
        return max((end for end in self._ends if end <= limit), default=self._newest)


_LIVING: WeakSet[PastRequests] = WeakSet()


class _Fork:
    """Holds everything still while the process forks: what the child gets is whole."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._held: list[PastRequests] = []

    def before(self) -> None:
        self._one_at_a_time.acquire()
        for each in list(_LIVING):
            each._swap.acquire()
            self._held.append(each)

    def in_parent(self) -> None:
        while self._held:
            self._held.pop()._swap.release()
        self._one_at_a_time.release()

    def in_child(self) -> None:
        """The thread that was building is not here."""
        for each in self._held:
            each._settle()
        self.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(
        before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child
    )


# Suffix arrays over past requests, by where the requests came from.


class Shards(NamedTuple):
    """By origin: none, one (sorted), or two (sorted, and a tail)."""

    earlier: tuple[DatastoreShard, ...] = ()  # there at first, or after the log was rewritten
    session: tuple[DatastoreShard, ...] = ()  # added since, by anybody, but for
    newest: tuple[DatastoreShard, ...] = ()  # the last of these


def sorted_shards(tokens: Array, separator: int) -> tuple[DatastoreShard, ...]:
    """One shard over requests that each end with `separator`, or none of no tokens."""
    return (DatastoreShard(**sort_shard(tokens, separator)),) if len(tokens) else ()


def joined(shards: Shards, separator: int) -> DatastoreShard:
    """What a later process loads: all of it is then earlier."""
    each = [shard for part in shards for shard in part]
    if len(each) == 1:
        return each[0]
    return sorted_shards(np.concatenate([shard.tokens for shard in each]), separator)[0]


# The newest tokens of an endless stream, in a buffer of fixed size.


class TokenRing:
    """The last `capacity` tokens of an endless stream. `end` counts all that were ever added.

    Capacity 4, after [1, 2, 3] and [4, 5]: since(0) is [2, 3, 4, 5], since(3) is [4, 5].
    """

    def __init__(self, capacity: int, dtype: np.dtype[np.uint16] | np.dtype[np.uint32]) -> None:
        self.end = 0
        self._tokens = np.empty(capacity, dtype)

    def add(self, tokens: Array) -> None:
        capacity = len(self._tokens)
        kept = tokens[-capacity:]
        begin = (self.end + len(tokens) - len(kept)) % capacity
        first = min(len(kept), capacity - begin)
        self._tokens[begin : begin + first] = kept[:first]
        self._tokens[: len(kept) - first] = kept[first:]
        self.end += len(tokens)

    def since(self, begin: int) -> Array:
        """A copy of the stream from `begin`, or from the oldest token that is still there."""
        capacity = len(self._tokens)
        begin = max(begin, self.end - capacity, 0)
        at, count = begin % capacity, self.end - begin
        first = min(count, capacity - at)
        return np.concatenate([self._tokens[at : at + first], self._tokens[: count - first]])
