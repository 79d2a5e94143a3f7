"""Past requests, always searchable: a circular token buffer and suffix arrays over it.

What was added last lies in a short tail whose suffix array is made at once (a few milliseconds).
When the tail has grown to `rebuild_tokens`, one suffix array over the whole buffer is made in the
background, while drafting goes on with the old one; both are then replaced together. What is found
is the same before and after: only what the circular buffer has overwritten goes with the rebuild.
(`shards` is one attribute, set at once: whoever drafts sees the old ones or the new ones.)

Knows nothing of drafting. One thread adds; `shards` may be read at any time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import numpy as np

from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.formats.history import History
from ngramkit.formats.request_log import Mark
from ngramkit.kernels.suffix_sort import sort_shard

CAPACITY = 4_000_000  # tokens
REBUILD = 1 << 15  # tokens; sorting as many takes 5 to 20 ms


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


class PastRequests:
    """`shards` are one or two datastore shards, none at first.

    With a `history`, begins with what is in it; `remember` adds there, `refresh` takes in what
    other processes have added. `background` False rebuilds in the caller's time, so that what is
    found never depends on timing; `read_only` remembers in memory alone. Raises ValueError where
    neither history nor separator is given.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        separator: int | None = None,
        capacity: int = CAPACITY,
        rebuild_tokens: int = REBUILD,
        background: bool = True,
        read_only: bool = False,
    ) -> None:
        if history is not None:
            history = History(history.path, history.manifest)  # its own place in the log
            separator = history.separator
        if separator is None:
            raise ValueError("past requests need a history or a separator")
        self.shards: tuple[DatastoreShard, ...] = ()
        self.separator = separator
        self._history = history
        self._capacity = capacity
        self._rebuild_tokens = rebuild_tokens
        self._background = background
        self._read_only = read_only
        self._swap = threading.Lock()  # held to change the stream or the shards
        self._builder: threading.Thread | None = None
        self._building = False  # whether that thread will look again for what was added
        self._clear()
        if history is not None:
            self._load(history)

    @property
    def tokens(self) -> int:
        """How many tokens, separators included, are searchable."""
        return sum(len(shard.tokens) for shard in self.shards)

    def remember(self, tokens: Array, prompt: int) -> None:
        """Adds a finished request, `prompt` of its tokens being prompt."""
        if self._history is not None and not self._read_only:
            self._history.append(tokens, prompt)
            self.refresh()
            return
        inside = (tokens >= 0) & (tokens < self.separator)
        kept = len(tokens) if inside.all() else int(inside.argmin())
        self._add([tokens[:kept]], restarted=False, mark=self._mark)

    def refresh(self) -> None:
        """Takes in what was added to the history since the last call, by anybody."""
        if self._history is not None:
            requests, restarted = self._history.news()
            if requests or restarted:
                self._add([r.tokens for r in requests], restarted, self._history.mark)

    def wait(self) -> None:
        """Until no rebuild is running."""
        if self._builder is not None:
            self._builder.join()

    def _clear(self) -> None:
        self.shards = ()
        self._stream = TokenRing(self._capacity, token_dtype(self.separator))
        self._whole: DatastoreShard | None = None  # over the stream up to `_whole_end`
        self._whole_end = 0
        self._mark: Mark | None = None  # where in the history the stream ends

    def _load(self, history: History) -> None:
        shard = history.load_index(self._capacity)
        if shard is not None:
            self._stream.add(shard.tokens)
            self._whole, self._whole_end = shard, self._stream.end
            self.shards = (shard,)
        self.refresh()

    def _add(self, requests: Sequence[Array], restarted: bool, mark: Mark | None) -> None:
        with self._swap:
            if restarted:
                self._clear()
            for request in requests:
                self._stream.add(np.append(request, self.separator))
            self._mark = mark
            self._publish()
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
        return self._stream.end - self._whole_end >= self._rebuild_tokens

    def _publish(self) -> None:
        """New shards: the whole one as it is, the tail's made now; a bounded tail, as a first
        load of a long history, or a slow rebuild, may leave much to the background."""
        begin = max(self._whole_end, self._stream.end - 2 * self._rebuild_tokens)
        tail = self._stream.since(begin)
        shards: tuple[DatastoreShard, ...] = () if self._whole is None else (self._whole,)
        if len(tail):
            shards += (DatastoreShard(**sort_shard(tail, self.separator)),)
        self.shards = shards

    def _rebuild(self) -> None:
        """Again and again, until only a short tail was added meanwhile; then saves the index."""
        try:
            while self._building:
                shard, end, mark = self._rebuilt()
        except BaseException:
            self._building = False
            raise
        if self._history is not None and mark is not None and not self._read_only:
            # Without its index a history is only slower to load: a full disk may go unsaid here.
            with contextlib.suppress(OSError):
                self._history.save_index(shard, mark, complete=end < self._capacity)

    def _rebuilt(self) -> tuple[DatastoreShard, int, Mark | None]:
        """One index over the whole buffer; where in the stream and in the history it ends."""
        with self._swap:
            stream, end, mark = self._stream, self._stream.end, self._mark
            tokens = stream.since(0)
        shard = DatastoreShard(**sort_shard(tokens, self.separator))
        with self._swap:
            if stream is self._stream:  # else the history was rewritten meanwhile
                self._whole, self._whole_end = shard, end
                self._publish()
            self._building = self._due
        return shard, end, mark
