"""What llama.cpp's lookup can do with an n-gram cache: what it drafts from, and with which counts.

Read in its common/ngram-cache.cpp (as vendored in llama-cpp-python 0.3.36):

- A static cache drafts a token where its 2 tokens of context were seen twice and the token has half
  of that; what else it holds still weighs the drafts of other caches.
- A dynamic cache drafts from 1, 2, 3, 4 tokens of context where they were seen 4, 3, 2, 2 times
  and a token has 75, 66, 66, 66 % of that. Of which that is not so never drafts anything.
- Between the candidates of an n-gram it chooses by count x 100 x the static cache's count, in
  int32. Both caches' counts are scaled where an n-gram was seen more than MOST times, so that no
  product overflows, nor one with what the context's own cache counts, up to MOST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ngramkit.exchange.ngrams import Ngrams

MOST = 4634  # 100 * MOST * MOST < 2**31
# By order, of dynamic caches: how often an n-gram was seen at least, and a token's percent of that.
SEEN = {1: 4, 2: 3, 3: 2, 4: 2}
PERCENT = {1: 75, 2: 66, 3: 66, 4: 66}
Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def by_count(piece: Ngrams) -> Ngrams:
    """Continuations of an n-gram by count, ties to the lower token; n-grams stay where they are."""
    _, owner = piece.groups()
    order = np.lexsort((piece.rows[:, -1], -piece.counts, owner))
    return Ngrams(piece.rows[order], piece.counts[order])


def seen(piece: Ngrams) -> Counts:
    """int64[groups]: how often each n-gram was followed by anything."""
    starts, _ = piece.groups()
    found: Counts = np.add.reduceat(piece.counts, starts) if len(starts) else piece.counts
    return found


def scaled(piece: Ngrams) -> Ngrams:
    """Of n-grams seen more than MOST times, counts that sum to MOST; continuations too rare for a
    count of 1 are left out, but no more of them than their share. By count, as `by_count`."""
    piece = by_count(piece)
    starts, owner = piece.groups()
    total = seen(piece)
    if not len(total) or total.max() <= MOST:
        return piece
    running = np.cumsum(piece.counts)
    before = running[starts] - piece.counts[starts]
    # What is rounded off one goes to the next, so that shares stay what they are.
    upto = (running - before[owner]) * MOST // total[owner]
    parts = np.diff(upto, prepend=0)
    parts[starts] = upto[starts]
    counts = np.where(total[owner] > MOST, parts, piece.counts)
    kept = counts > 0
    return by_count(Ngrams(piece.rows[kept], counts[kept]))


def drafts(piece: Ngrams) -> Mask:
    """bool[groups]: whether a dynamic cache would ever draft from each n-gram."""
    order = piece.rows.shape[1] - 1
    starts, _ = piece.groups()
    if not len(starts):
        return np.zeros(0, bool)
    total, most = seen(piece), np.maximum.reduceat(piece.counts, starts)
    found: Mask = (total >= SEEN[order]) & (100 * most >= PERCENT[order] * total)
    return found


class Selection:
    """Which n-grams are exported; for a `dynamic` cache only those that can draft.

    min_count: how often an n-gram was seen, at least. max_ngrams: so many of the most frequent, of
    equally frequent ones those that come first; None: all. `left_out` counts what is not exported.
    """

    def __init__(self, *, dynamic: bool, min_count: int = 1, max_ngrams: int | None = None) -> None:
        self._dynamic, self._least, self._most = dynamic, min_count, max_ngrams
        self._room: int | None = None  # for n-grams seen exactly `_least` times
        self.left_out = 0

    def most(self, tokens: int, order: int) -> int:
        """How many n-grams of so many tokens of context a text of `tokens` may give, at most."""
        found = tokens // max(self._least, SEEN[order] if self._dynamic else 1)
        return found if self._most is None else min(found, self._most)

    def look(self, pieces: Iterable[Ngrams]) -> None:
        """Needed before `of` where max_ngrams is given: the same pieces, looked through once."""
        found: Counter[int] = Counter()
        for piece in pieces:
            often, usable, _ = self._usable(piece)
            values, how_many = np.unique(often[usable], return_counts=True)
            found.update(dict(zip(values.tolist(), how_many.tolist(), strict=True)))
        room = self._most or 0
        if sum(found.values()) <= room:
            return
        for count in sorted(found, reverse=True):
            self._least, self._room = count, room
            if found[count] >= room:
                return
            room -= found[count]

    def of(self, pieces: Iterable[Ngrams]) -> Iterator[Ngrams]:
        """What is exported of them, scaled."""
        for piece in pieces:
            often, kept, ready = self._usable(piece)
            if self._room is not None:
                last = np.flatnonzero(kept & (often == self._least))
                kept[last[self._room :]] = False
                self._room -= min(len(last), self._room)
            self.left_out += len(kept) - int(kept.sum())
            rows = kept[ready.groups()[1]]
            yield Ngrams(ready.rows[rows], ready.counts[rows])

    def _usable(self, piece: Ngrams) -> tuple[Counts, Mask, Ngrams]:
        """(how often each n-gram was seen, whether it may be exported, all of them scaled)."""
        often, ready = seen(piece), scaled(piece)
        kept: Mask = often >= self._least
        return often, kept & drafts(ready) if self._dynamic else kept, ready
