"""llama.cpp's n-gram cache, as `--lookup-cache-static` and `--lookup-cache-dynamic` read it.

No header; one record after another, everything int32 in the byte order of the machine:

    ngram    4 token ids, the context; unused places are -1 and stand at the end
    n        how many pairs follow, at least 1
    n times  a token that followed the ngram, and how often, at least 1

`-lcs` (static) looks up ngrams of exactly 2 tokens, `-lcd` (dynamic) ngrams of 1 to 4. Of a dynamic
cache only what llama.cpp's rule can draft from is written, see `exchange.llama_cpp`. Counts of an
ngram that was seen more than 4,634 times are scaled down to that, so that llama.cpp's products of
two counts do not overflow; all others are exact. Records are written in the order of their ngrams,
pairs by count, then by token.

    [7 8] was followed by 9 three times, by 5 once:  7 8 -1 -1  2  9 3  5 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.builders.frozen import narrow
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import InputError, UsageError
from ngramkit.exchange.files import whole_file
from ngramkit.exchange.ngrams import Ngrams, longest_order, ngrams_of
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.container import Array, sha256_of
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.kernels.ngram_cache import KEY, measure, split
from ngramkit.progress import SILENT, Reporter
from ngramkit.untrusted import open_plain

RECORD, PAIR = 4 * (KEY + 1), 8  # bytes


@dataclass(frozen=True)
class Cache:
    """A whole file. Pairs of record i are pairs[offsets[i] : offsets[i + 1]]."""

    keys: npt.NDArray[np.int32]  # int32[n, 4], unused places -1
    offsets: npt.NDArray[np.int64]  # int64[n + 1], in pairs
    pairs: npt.NDArray[np.int32]  # int32[m, 2], token and count

    @property
    def orders(self) -> npt.NDArray[np.int64]:
        """int64[n]: how many ids each key holds."""
        return np.asarray((self.keys >= 0).sum(axis=1), np.int64)


@dataclass(frozen=True)
class Written:
    ngrams: int
    pairs: int
    bytes: int
    left_out: int = 0  # n-grams: those that llama.cpp would not draft from, and those not wanted


def write_cache(
    path: Path, pieces: Iterable[Ngrams], *, force: bool = False, inputs: Iterable[Path] = ()
) -> Written:
    """Writes every piece; a piece holds all continuations of its ngrams. Raises as `whole_file`."""
    ngrams = pairs = 0
    with whole_file(path, is_cache, force=force, inputs=inputs) as file:
        for piece in pieces:
            words, records = _words(piece)
            file.write(words.tobytes())
            ngrams += records
            pairs += len(piece.counts)
        size = file.tell()
    return Written(ngrams, pairs, size)


def _words(piece: Ngrams) -> tuple[npt.NDArray[np.int32], int]:
    piece = scaled(piece)
    starts, owner = piece.groups()
    order = piece.rows.shape[1] - 1
    sizes = np.diff(np.append(starts, len(owner)))
    keys = np.full((len(starts), KEY + 1), -1, np.int32)
    keys[:, :order] = piece.rows[starts, :order]
    keys[:, KEY] = sizes
    words = np.empty(keys.size + 2 * len(owner), np.int32)
    heads = (KEY + 1) * np.arange(len(starts)) + 2 * starts
    words[heads[:, None] + np.arange(KEY + 1)] = keys
    places = (KEY + 1) * (owner + 1) + 2 * np.arange(len(owner))
    words[places] = piece.rows[:, order]
    words[places + 1] = piece.counts
    return words, len(starts)


def read_cache(path: Path) -> Cache:
    """Raises InputError where the file is missing, cut short or of another format."""
    try:
        with open_plain(path, error=InputError) as file:
            raw = np.fromfile(file, np.uint8)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    if not len(raw) or len(raw) % 4:
        raise _foreign(path, f"its {len(raw):,} bytes are not whole 32-bit words")
    words = raw.view(np.int32)
    records, pairs, bad = measure(words)
    if bad >= 0:
        raise _foreign(path, f"the record at byte {4 * bad:,} makes no sense")
    cache = Cache(
        np.empty((records, KEY), np.int32), np.zeros(records + 1, np.int64),
        np.empty((pairs, 2), np.int32),
    )  # fmt: skip
    split(words, cache.keys, cache.offsets, cache.pairs)
    return cache


def is_cache(path: Path) -> bool:
    """Whether the file is one record after another."""
    words = np.asarray(np.memmap(path, np.int32, "r"))
    return int(measure(words)[2]) < 0


def _foreign(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} is no llama.cpp n-gram cache: {why}",
        "give a file that llama-lookup-create or `ngramkit export --to llama.cpp` wrote whole",
    )


def import_cache(
    path: Path,
    tokenizer: TextTokenizer,
    out: Path,
    *,
    order: int | None = None,
    force: bool = False,
) -> FrozenTable:
    """A frozen table of the file's n-grams of `order` tokens, each with its next tokens.

    `order` may be left out where the file has only one. Raises UsageError where it is needed or not
    there, InputError where the file is no cache or its ids are not the tokenizer's.
    """
    cache = read_cache(path)
    chosen = _one_order(path, cache, order)
    highest = int(max(cache.keys.max(), cache.pairs[:, 0].max()))
    if highest >= tokenizer.record.vocabulary:
        raise InputError(
            f"{path} holds the id {highest}, outside the vocabulary of {tokenizer.record.id} "
            f"({tokenizer.record.vocabulary:,} tokens)",
            "give the model that the file was made with",
            option="model",
        )
    corpus = {"id": path.name, "format": "llama.cpp", "sha256": sha256_of(path)}
    plan = {
        "kind": FrozenTable.kind,
        "corpus": corpus,
        "order": chosen,
        "tokenizer": tokenizer.record.fingerprint,
    }
    if already_built(out, plan):
        return FrozenTable.open(out)
    arrays = _table(cache, chosen, token_dtype(tokenizer.record.vocabulary))
    sizes = np.diff(arrays["follower_offsets"].astype(np.int64))
    with ArtifactWriter(out, FrozenTable.kind, plan, inputs=[path], force=force) as writer:
        writer.write(TABLE, arrays)
        writer.commit(
            tokenizer.record,
            parameters={
                "leader_len": chosen,
                "leaders": len(sizes),
                "follower_len": 1,
                "followers": int(sizes.max()),
            },
            corpus=corpus,
            counts={"leaders": len(sizes), "followers": len(arrays["followers"])},
            foreign=True,
        )
    return FrozenTable.open(out)


def _one_order(path: Path, cache: Cache, order: int | None) -> int:
    found = np.unique(cache.orders).tolist()
    if order is None and len(found) > 1:
        raise UsageError(
            f"{path} holds n-grams of {', '.join(map(str, found))} tokens",
            "choose an order",
            option="order",
        )
    if order is not None and order not in found:
        raise UsageError(
            f"{path} has no n-grams of {order} tokens", f"it has {', '.join(map(str, found))}"
        )
    return int(order or found[0])


def _table(cache: Cache, order: int, dtype: np.dtype[np.uint16 | np.uint32]) -> dict[str, Array]:
    """The arrays of a frozen table, from records in any order."""
    wanted = cache.orders == order
    owner = np.repeat(np.arange(len(cache.keys)), np.diff(cache.offsets))
    pairs = wanted[owner]
    place = np.empty(len(cache.keys), np.int64)
    rows = np.flatnonzero(wanted)
    rows = rows[np.lexsort(cache.keys[rows, :order].T[::-1])]
    place[rows] = np.arange(len(rows))
    leader, tokens = place[owner[pairs]], cache.pairs[pairs, 0]
    counts = cache.pairs[pairs, 1].astype(np.int64)
    best = np.lexsort((tokens, -counts, leader))
    sizes = np.bincount(leader, minlength=len(rows))
    seen = np.bincount(leader, counts, len(rows)).astype(np.int64)  # exact up to 2**53
    return {
        "leaders": cache.keys[rows, :order].astype(dtype),
        "leader_counts": narrow(seen),
        "follower_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
        "followers": tokens[best][:, None].astype(dtype),
        "follower_counts": narrow(counts[best]),
    }


# What llama.cpp's lookup can do with an n-gram cache: what it drafts from, and with which counts.
#
# Read in its common/ngram-cache.cpp (as vendored in llama-cpp-python 0.3.36):
#
# - A static cache drafts a token where its 2 tokens of context were seen twice and the token has
# half
#   of that; what else it holds still weighs the drafts of other caches.
# - A dynamic cache drafts from 1, 2, 3, 4 tokens of context where they were seen 4, 3, 2, 2 times
#   and a token has 75, 66, 66, 66 % of that. Of which that is not so never drafts anything.
# - Between the candidates of an n-gram it chooses by count x 100 x the static cache's count, in
#   int32. Both caches' counts are scaled where an n-gram was seen more than MOST times, so that no
#   product overflows, nor one with what the context's own cache counts, up to MOST.

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


# An artifact as llama.cpp's n-gram cache: which n-grams go in, and what loading them will cost.

STATIC_ORDERS = (2,)
DYNAMIC_ORDERS = (1, 2, 3, 4)
LOADED = 864e6 / 57  # bytes a second: what llama.cpp took to load a cache of 864 MB


def export_cache(
    artifact: Artifact,
    path: Path,
    *,
    dynamic: bool = False,
    min_count: int = 1,
    max_ngrams: int | None = None,
    memory: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> Written:
    """Writes the static cache of a datastore or frozen table, or the dynamic one, of a model bigram
    too.

    A dynamic cache holds the orders that the artifact knows, up to 4. `min_count`, `max_ngrams`:
    see `lookup_rule.Selection`; the latter counts twice. `memory`: bytes for counting. Raises
    UsageError where the artifact knows nothing that llama.cpp would draft from, or `path` exists.
    """
    if isinstance(artifact, ModelBigram) and not dynamic:
        raise UsageError(
            f"{artifact.path} is a {artifact.kind}: llama.cpp's static cache drafts only what has "
            "half of the mass after two tokens, and a model that was shown one is hardly ever so "
            "sure where text goes on",
            "export a datastore or a frozen-table",
        )
    known = [n for n in DYNAMIC_ORDERS if n <= longest_order(artifact)]
    orders = known if dynamic else STATIC_ORDERS
    selection = Selection(dynamic=dynamic, min_count=min_count, max_ngrams=max_ngrams)

    def pieces() -> Iterable[Ngrams]:
        return chain(*(ngrams_of(artifact, n, memory) for n in orders))

    if isinstance(artifact, Datastore):
        _announce(artifact.manifest.counts["tokens"], selection, orders, reporter)
    if max_ngrams is not None:
        selection.look(pieces())
    wanted = _some(selection.of(pieces()), artifact, min_count)
    done = write_cache(path, wanted, force=force, inputs=[artifact.path])
    if done.bytes >= LOADED:
        reporter.note(f"llama.cpp reads these {done.bytes / 1e6:,.0f} MB {_load(done.bytes)}")
    return replace(done, left_out=selection.left_out)


def _announce(tokens: int, selection: Selection, orders: Sequence[int], reporter: Reporter) -> None:
    """What is counted, and how large it may become, where that is much."""
    most = sum(PAIR * tokens + RECORD * selection.most(tokens, order) for order in orders)
    reporter.note(
        f"counting n-grams of {', '.join(map(str, orders))} tokens in {tokens:,}: at most "
        f"{most / 1e6:,.0f} MB, which llama.cpp would read {_load(most)}"
    )


def _load(size: int) -> str:
    return f"in about {max(size / LOADED, 1):,.0f} s at each start (57 s for 864 MB were measured)"


def _some(pieces: Iterable[Ngrams], artifact: Artifact, least: int) -> Iterator[Ngrams]:
    """The same pieces; raises UsageError where there is nothing in them."""
    empty = True
    for piece in pieces:
        empty = empty and not len(piece.rows)
        yield piece
    if empty:
        raise UsageError(
            f"{artifact.path} holds no n-gram that llama.cpp would draft from"
            + (f" and that was seen {least:,} times" if least > 1 else ""),
            "lower min_count" if least > 1 else "export a datastore of more text",
            option="min_count",
        )
