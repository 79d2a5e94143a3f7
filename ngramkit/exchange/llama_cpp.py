"""llama.cpp's n-gram cache, as `--lookup-cache-static` and `--lookup-cache-dynamic` read it.

Records without a header, all int32 in the machine's byte order:

    ngram    4 token ids, the context, padded with -1 at the end
    n        number of pairs, at least 1
    n times  a token that followed the ngram, and its count, at least 1

Records are sorted by ngram, pairs by count, then by token.

    [7 8] was followed by 9 three times, by 5 once:  7 8 -1 -1  2  9 3  5 1

llama.cpp's rules (common/ngram-cache.cpp, as vendored in llama-cpp-python 0.3.36):

- The static cache looks up ngrams of 2 tokens. It drafts a token if the ngram was seen twice and
  the token has half of that; its other counts weigh the drafts of other caches.
- The dynamic cache looks up ngrams of 1, 2, 3, 4 tokens. It drafts a token if the ngram was seen
  4, 3, 2, 2 times and the token has 75, 66, 66, 66 % of that. Other ngrams are not written.
- Candidates are ranked by count x 100 x the static cache's count, in int32, so counts of ngrams
  seen more than 4,634 times are scaled down to that sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.untrusted import open_plain
from ngramkit.builders.frozen import narrow_counts
from ngramkit.builders.merge import mark_changes
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.exchange.ngrams import Ngrams, longest_order, ngrams_of
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.replacing import whole_file
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, sha256_of
from ngramkit.remote.publishing import build_at

KEY_IDS = 4  # ids of an ngram
RECORD, PAIR = 4 * (KEY_IDS + 1), 8  # bytes
STATIC_ORDERS = (2,)  # tokens of an ngram
DYNAMIC_ORDERS = (1, 2, 3, 4)
MAX_COUNT = 4634  # maximum count of an ngram; 100 * MAX_COUNT * MAX_COUNT < 2**31
# Dynamic caches, by order: minimum count of an ngram, and a token's minimum percentage of it.
MIN_COUNT_BY_ORDER = {1: 4, 2: 3, 3: 2, 4: 2}
MIN_PERCENT_BY_ORDER = {1: 75, 2: 66, 3: 66, 4: 66}
LOADED_BYTES_PER_SECOND = 864e6 / 57  # bytes per second: llama.cpp loaded a cache of 864 MB in 57 s
WORDS_READ_WITHOUT_KERNELS = 1 << 18  # int32 words, read without kernels
Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def export_cache(
    artifact: Datastore | FrozenTable | ModelBigram,
    path: Path,
    *,
    dynamic: bool = False,
    min_count: int = 1,
    max_ngrams: int | None = None,
    memory: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write a static or dynamic cache of an artifact; a model bigram needs `dynamic`.

    A dynamic cache holds all orders up to 4. `min_count`, `max_ngrams`: see `NgramSelection`.
    `memory`: bytes for counting. Returns counts. Raises UsageError if llama.cpp would draft from no
    ngram, or `path` exists.
    """
    if isinstance(artifact, ModelBigram) and not dynamic:
        raise UsageError(
            f"cannot export {artifact.where} as a static cache: llama.cpp drafts from it only what "
            f"has half of the probability after two tokens, which a {artifact.kind} rarely has",
            "Export a datastore or a frozen-table.",
        )
    dynamic_orders = [n for n in DYNAMIC_ORDERS if n <= longest_order(artifact)]
    orders = dynamic_orders if dynamic else STATIC_ORDERS
    selection = NgramSelection(dynamic=dynamic, min_count=min_count, max_ngrams=max_ngrams)

    def pieces() -> Iterable[Ngrams]:
        return chain(*(ngrams_of(artifact, n, memory) for n in orders))

    if isinstance(artifact, Datastore):
        tokens = artifact.manifest.counts["tokens"]
        most = sum(PAIR * tokens + RECORD * selection.bound(tokens, order) for order in orders)
        reporter.note(
            f"counting n-grams of {', '.join(map(str, orders))} tokens in {tokens:,}: at most "
            f"{most / 1e6:,.0f} MB, which llama.cpp would read {_loading_time(most)}"
        )
    if max_ngrams is not None:
        selection.fit(pieces())
    selected = selection.select(pieces())
    first = next((piece for piece in selected if len(piece.rows)), None)
    if first is None:
        seen = f" and that was seen {min_count:,} times" if min_count > 1 else ""
        raise UsageError(
            f"cannot export {artifact.where}: it has no n-gram that llama.cpp would draft from"
            f"{seen}",
            "Lower min_count." if min_count > 1 else "Export a datastore of more text.",
            option="min_count",
        )
    written = write_cache(
        path,
        chain([first], selected),
        force=force,
        inputs=[artifact.path],
        private=artifact.manifest.private,
    )
    size = written["bytes"]
    if size >= LOADED_BYTES_PER_SECOND:
        reporter.note(f"llama.cpp reads these {size / 1e6:,.0f} MB {_loading_time(size)}")
    return {**written, "left_out": selection.left_out}


def import_cache(
    path: Path,
    tokenizer: TextTokenizer,
    out: str | Path,
    *,
    order: int | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> FrozenTable:
    """Build a frozen table from the file's ngrams of `order` tokens and their next tokens.

    Raises UsageError for a missing or wrong order, InputError for an invalid file or ids of another
    tokenizer.
    """
    words = _read_words(path)
    if orders := _orders_of_short(words):
        _require_one_order(path, orders, order)
    cache = _read_records(path, words)
    chosen = _require_one_order(path, np.unique(cache.orders).tolist(), order)
    highest = int(max(cache.keys.max(), cache.pairs[:, 0].max()))
    if highest >= tokenizer.record.vocabulary:
        raise InputError(
            f"cannot import {path}: it holds the id {highest}, outside the vocabulary of "
            f"{tokenizer.record.id} ({tokenizer.record.vocabulary:,} tokens)",
            "Give the model that the file was made with.",
            option="model",
        )
    corpus = {"id": path.name, "format": "llama.cpp", "sha256": sha256_of(path)}
    plan = {
        "kind": FrozenTable.kind,
        "corpus": corpus,
        "order": chosen,
        "tokenizer": tokenizer.record.fingerprint,
    }

    def write(writer: ArtifactWriter) -> None:
        arrays = _table_of_cache(path, cache, chosen, token_dtype(tokenizer.record.vocabulary))
        sizes = np.diff(arrays["follower_offsets"].astype(np.int64))
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

    build = Build(kind=FrozenTable, plans=[plan], write=write, inputs=[path])
    return build_at(build, out, reporter=reporter, force=force)


def _loading_time(size: int) -> str:
    seconds = max(size / LOADED_BYTES_PER_SECOND, 1)
    return f"in about {seconds:,.0f} s at each start (57 s for 864 MB were measured)"


def _require_one_order(path: Path, orders: Sequence[int], order: int | None) -> int:
    if order not in orders and (order is not None or len(orders) > 1):
        listed, got = ", ".join(map(str, orders)), "none" if order is None else order
        raise UsageError(
            f"order must be one of {listed}, the n-gram lengths of {path}, got {got}",
            "Choose one.",
            option="order",
        )
    return int(order or orders[0])


def _table_of_cache(
    path: Path, cache: NgramCache, order: int, dtype: np.dtype[np.uint16 | np.uint32]
) -> dict[str, Array]:
    """Return a frozen table's arrays. Raises InputError for an ngram or a next token twice."""
    wanted = cache.orders == order
    owner = np.repeat(np.arange(len(cache.keys)), np.diff(cache.offsets))
    pairs = wanted[owner]
    place = np.empty(len(cache.keys), np.int64)
    rows = np.flatnonzero(wanted)
    rows = rows[np.lexsort(cache.keys[rows, :order].T[::-1])]
    place[rows] = np.arange(len(rows))
    leader, tokens = place[owner[pairs]], cache.pairs[pairs, 0]
    followed = np.sort(leader << 32 | tokens)
    if not mark_changes(cache.keys[rows]).all() or np.any(followed[1:] == followed[:-1]):
        raise _not_a_cache(path, "an n-gram occurs twice")
    counts = cache.pairs[pairs, 1].astype(np.int64)
    best = np.lexsort((tokens, -counts, leader))
    sizes = np.bincount(leader, minlength=len(rows))
    totals = np.bincount(leader, counts, len(rows)).astype(np.int64)  # exact up to 2**53
    return {
        "leaders": cache.keys[rows, :order].astype(dtype),
        "leader_counts": narrow_counts(totals),
        "follower_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
        "followers": tokens[best][:, None].astype(dtype),
        "follower_counts": narrow_counts(counts[best]),
    }


# Selecting ngrams.


class NgramSelection:
    """The ngrams to export; for a `dynamic` cache only those that can draft.

    Keeps ngrams seen at least `min_count` times, and of those the `max_ngrams` most frequent.
    """

    def __init__(self, *, dynamic: bool, min_count: int = 1, max_ngrams: int | None = None) -> None:
        self._dynamic, self._least, self._most = dynamic, min_count, max_ngrams
        self._room: int | None = None  # for ngrams seen exactly `_least` times
        self.left_out = 0

    def bound(self, tokens: int, order: int) -> int:
        """Return an upper bound of the ngrams in a text."""
        bound = tokens // max(self._least, MIN_COUNT_BY_ORDER[order] if self._dynamic else 1)
        return bound if self._most is None else min(bound, self._most)

    def fit(self, pieces: Iterable[Ngrams]) -> None:
        """Find the lowest count for max_ngrams; call before `select` on the same pieces."""
        frequencies: Counter[int] = Counter()  # count -> number of ngrams
        for piece in pieces:
            often, usable = self._frequent_and_draftable(piece)
            values, numbers = np.unique(often[usable], return_counts=True)
            frequencies.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        room = self._most or 0
        if frequencies.total() <= room:
            return
        for count in sorted(frequencies, reverse=True):
            self._least, self._room = count, room
            if frequencies[count] >= room:
                return
            room -= frequencies[count]

    def select(self, pieces: Iterable[Ngrams]) -> Iterator[Ngrams]:
        for piece in pieces:
            often, kept = self._frequent_and_draftable(piece)
            if self._room is not None:
                last = np.flatnonzero(kept & (often == self._least))
                kept[last[self._room :]] = False
                self._room -= min(len(last), self._room)
            self.left_out += len(kept) - int(kept.sum())
            rows = kept[piece.groups()[1]]
            yield Ngrams(piece.rows[rows], piece.counts[rows])

    def _frequent_and_draftable(self, piece: Ngrams) -> tuple[Counts, Mask]:
        often = totals_of_leaders(piece)
        usable: Mask = often >= self._least
        return often, usable & can_draft(cap_counts(piece)) if self._dynamic else usable


def sort_by_count(piece: Ngrams) -> Ngrams:
    """Sort each ngram's continuations by count, ties to the lower token."""
    _, owner = piece.groups()
    order = np.lexsort((piece.rows[:, -1], -piece.counts, owner))
    return Ngrams(piece.rows[order], piece.counts[order])


def totals_of_leaders(piece: Ngrams) -> Counts:
    starts, _ = piece.groups()
    sums: Counts = np.add.reduceat(piece.counts, starts) if len(starts) else piece.counts
    return sums


def cap_counts(piece: Ngrams) -> Ngrams:
    """Scale ngrams seen more than MAX_COUNT times to a sum of MAX_COUNT, and sort by count."""
    piece = sort_by_count(piece)
    starts, owner = piece.groups()
    total = totals_of_leaders(piece)
    if not len(total) or total.max() <= MAX_COUNT:
        return piece
    running = np.cumsum(piece.counts)
    before = running[starts] - piece.counts[starts]
    # Differences of rounded cumulative sums, so that rounding errors do not accumulate.
    upto = (running - before[owner]) * MAX_COUNT // total[owner]
    parts = np.diff(upto, prepend=0)
    parts[starts] = upto[starts]
    counts = np.where(total[owner] > MAX_COUNT, parts, piece.counts)
    kept = counts > 0
    return sort_by_count(Ngrams(piece.rows[kept], counts[kept]))


def can_draft(piece: Ngrams) -> Mask:
    """Return whether a dynamic cache could draft from each ngram, bool[groups]."""
    order = piece.rows.shape[1] - 1
    starts, _ = piece.groups()
    if not len(starts):
        return np.zeros(0, bool)
    total, most = totals_of_leaders(piece), np.maximum.reduceat(piece.counts, starts)
    drafts: Mask = (total >= MIN_COUNT_BY_ORDER[order]) & (
        100 * most >= MIN_PERCENT_BY_ORDER[order] * total
    )
    return drafts


# Reading and writing a file.


@dataclass(frozen=True)
class NgramCache:
    """The records of a file; record i has pairs[offsets[i] : offsets[i + 1]]."""

    keys: npt.NDArray[np.int32]  # int32[n, 4], unused places -1
    offsets: npt.NDArray[np.int64]  # int64[n + 1], in pairs
    pairs: npt.NDArray[np.int32]  # int32[m, 2], token and count

    @property
    def orders(self) -> npt.NDArray[np.int64]:
        """The number of ids in each key, int64[n]."""
        return np.asarray((self.keys >= 0).sum(axis=1), np.int64)


def write_cache(
    path: Path,
    pieces: Iterable[Ngrams],
    *,
    force: bool = False,
    inputs: Iterable[Path] = (),
    private: bool = False,
) -> dict[str, int]:
    """Write pieces; return the numbers of ngrams, pairs and bytes.

    A piece must have all continuations of its ngrams.
    """
    ngrams = pairs = 0
    with whole_file(path, is_cache, force=force, inputs=inputs, private=private) as file:
        for piece in pieces:
            capped = cap_counts(piece)
            words, records = _lay_out_records(capped)
            file.write(words.tobytes())
            ngrams += records
            pairs += len(capped.counts)
        size = file.tell()
    return {"ngrams": ngrams, "pairs": pairs, "bytes": size}


def read_cache(path: Path) -> NgramCache:
    return _read_records(path, _read_words(path))


def _read_words(path: Path) -> npt.NDArray[np.int32]:
    """Read int32 words. Raises InputError unless they begin with a record."""
    try:
        with open_plain(path, error=InputError) as file:
            raw = np.fromfile(file, np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    if len(raw) % 4:
        raise _not_a_cache(path, f"its {len(raw):,} bytes are not whole 32-bit words")
    words = raw.view(np.int32)
    if not next(_key_sizes(words), 0):
        raise _not_a_cache(
            path, "it is empty" if not len(raw) else "its first record makes no sense"
        )
    return words


def _read_records(path: Path, words: npt.NDArray[np.int32]) -> NgramCache:
    from ngramkit.kernels.llama_cpp_cache import measure_records, split_records

    records, pairs, bad = measure_records(words)
    if bad >= 0:
        raise _not_a_cache(path, f"the record at byte {4 * bad:,} makes no sense")
    cache = NgramCache(
        np.empty((records, KEY_IDS), np.int32), np.zeros(records + 1, np.int64),
        np.empty((pairs, 2), np.int32),
    )  # fmt: skip
    split_records(words, cache.keys, cache.offsets, cache.pairs)
    return cache


def _orders_of_short(words: npt.NDArray[np.int32]) -> list[int]:
    """Return the key lengths of a short file without compiling a kernel, else []."""
    sizes = set(_key_sizes(words.tolist())) if len(words) <= WORDS_READ_WITHOUT_KERNELS else {0}
    return [] if 0 in sizes else sorted(sizes)


def _key_sizes(words: Sequence[int] | npt.NDArray[np.int32]) -> Iterator[int]:
    """Yield each record's key length without numba; end with 0 at an invalid record."""
    at = 0
    while at < len(words):
        key, counts = words[at : at + KEY_IDS], words[at + KEY_IDS : at + KEY_IDS + 1]
        held = sum(int(each) >= 0 for each in key)
        sound = held > 0 and all(each >= 0 for each in key[:held])
        pairs = int(counts[0]) if len(counts) else 0
        at += KEY_IDS + 1 + 2 * pairs
        if not sound or pairs <= 0 or at > len(words):
            yield 0
            return
        yield held


def is_cache(path: Path) -> bool:
    from ngramkit.kernels.llama_cpp_cache import measure_records

    words = np.asarray(np.memmap(path, np.int32, "r"))
    return int(measure_records(words)[2]) < 0


def _lay_out_records(piece: Ngrams) -> tuple[npt.NDArray[np.int32], int]:
    starts, owner = piece.groups()
    order = piece.rows.shape[1] - 1
    sizes = np.diff(np.append(starts, len(owner)))
    keys = np.full((len(starts), KEY_IDS + 1), -1, np.int32)
    keys[:, :order] = piece.rows[starts, :order]
    keys[:, KEY_IDS] = sizes
    words = np.empty(keys.size + 2 * len(owner), np.int32)
    heads = (KEY_IDS + 1) * np.arange(len(starts)) + 2 * starts
    words[heads[:, None] + np.arange(KEY_IDS + 1)] = keys
    places = (KEY_IDS + 1) * (owner + 1) + 2 * np.arange(len(owner))
    words[places] = piece.rows[:, order]
    words[places + 1] = piece.counts
    return words, len(starts)


def _not_a_cache(path: Path, why: str) -> InputError:
    return InputError(
        f"cannot read {path} as a llama.cpp n-gram cache: {why}",
        "Give a file that llama-lookup-create or `ngramkit export --to llama.cpp` wrote whole.",
    )
