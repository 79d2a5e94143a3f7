"""llama.cpp's n-gram cache, as `--lookup-cache-static` and `--lookup-cache-dynamic` read it.

No header; one record after another, everything int32 in the byte order of the machine:

    ngram    4 token ids, the context; unused places are -1 and stand at the end
    n        how many pairs follow, at least 1
    n times  a token that followed the ngram, and how often, at least 1

`-lcs` (static) looks up ngrams of exactly 2 tokens, `-lcd` (dynamic) ngrams of 1 to 4. Of a dynamic
cache only what llama.cpp's rule can draft from is written, see `exchange.lookup_rule`. Counts of an
ngram that was seen more than 4,634 times are scaled down to that, so that llama.cpp's products of
two counts do not overflow; all others are exact. Records are written in the order of their ngrams,
pairs by count, then by token.

    [7 8] was followed by 9 three times, by 5 once:  7 8 -1 -1  2  9 3  5 1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.builders.frozen import narrow
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import InputError, UsageError
from ngramkit.exchange.files import whole_file
from ngramkit.exchange.lookup_rule import scaled
from ngramkit.exchange.ngrams import Ngrams
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array, sha256_of
from ngramkit.formats.files import open_plain
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.kernels.ngram_cache import KEY, measure, split

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
