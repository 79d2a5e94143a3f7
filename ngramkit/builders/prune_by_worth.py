"""Prune artifacts: keep what brings the most accepted tokens per byte.

A datastore keeps passages: evenly cut parts of documents. A passage's worth is its number of new
n-grams of wanted text per token (kernels.prune_passages). Wanted text is the training split, some
of the datastore's documents, and recorded answers, which weigh more.

A follower's worth in a frozen table is its count plus its scaled count in `answers`; both weigh the
same in total. A leader's best follower also pays for the leader's row. Without answers this is the
rule of CREST (arXiv:2408.04678).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import UsageError
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.datastore import Datastore, DatastoreShard
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array
from ngramkit.remote.publishing import build_at

MAX_SHARD_TOKENS = 1 << 25  # sorting takes 16 bytes for each
HEADER_BYTES = 1024  # upper bound
# The rules' names in manifests. A changed rule gets another number.
FROZEN_RULE = "most frequent followers per byte, 1"
DATASTORE_RULE = "most new n-grams per token, 2"
PASSAGE_TOKENS = 64
COUNTED_ORDERS = (2, 3)  # lengths of the counted n-grams
ANSWER_WORTH = 8  # worth of an n-gram of the answers, relative to one of the split
TRAINED_ONE_IN, MAX_TRAINED_TOKENS = 16, 1 << 21  # the training split


def prune_artifact(
    artifact: Artifact,
    out: str | Path,
    size: int,
    *,
    answers: Sequence[Array] = (),
    reporter: Reporter = SILENT,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
) -> Artifact:
    """Prune a datastore or frozen table to at most `size` bytes, at `out`, a path or a URL.

    `answers` are token ids of the text to draft for. An artifact that fits is kept whole. Raises
    UsageError for other kinds, and for a `size` that is too small.
    """
    manifest = artifact.manifest
    rule = {
        "bytes": size,
        "rule": DATASTORE_RULE if isinstance(artifact, Datastore) else FROZEN_RULE,
        **({"answers": _digest_of_answers(answers)} if len(answers) else {}),
    }
    plan = {"kind": artifact.kind, "pruned": manifest.build, "answers": None, **rule}
    whole = {"build": manifest.build, "bytes": manifest.bytes, "parameters": manifest.parameters}
    if "pruned" in manifest.corpus:  # by an earlier pruning
        whole["pruned"] = manifest.corpus["pruned"]
    if not isinstance(artifact, Datastore | FrozenTable):
        raise UsageError(
            f"cannot prune {a_kind(artifact.kind)}", "Prune a datastore or a frozen table."
        )

    def write(writer: ArtifactWriter) -> None:
        if isinstance(artifact, Datastore):
            parameters, counts = _write_datastore(artifact, writer, size, answers, reporter)
            amount = "tokens"
        else:
            parameters, counts = _frozen_table(artifact, writer, size, answers, reporter)
            amount = "followers"
        if counts[amount] == manifest.counts.get(amount):
            reporter.note(f"nothing was pruned: {artifact.where} fits")
        writer.commit(
            artifact.tokenizer,
            parameters=parameters,
            corpus={**artifact.manifest.corpus, "pruned": {**rule, "of": whole}},
            counts={**artifact.manifest.counts, **counts},
        )

    build = Build(
        kind=type(artifact),
        plans=[plan],
        write=write,
        inputs=[artifact.path],
        recipe=recipe,
        private=manifest.private,
    )
    return build_at(build, out, reporter=reporter, force=force)


def _digest_of_answers(answers: Sequence[Array]) -> str:
    digest = hashlib.sha256()
    for answer in answers:
        digest.update(len(answer).to_bytes(8, "little") + answer.astype("<u4").tobytes())
    return digest.hexdigest()


def _write_datastore(
    datastore: Datastore,
    writer: ArtifactWriter,
    size: int,
    answers: Sequence[Array],
    reporter: Reporter,
) -> tuple[dict[str, Any], dict[str, int]]:
    separator = datastore.separator
    budget, shards = _tokens_that_fit(datastore, size)
    reporter.stage("choosing passages", None)
    passages = choose_passages(datastore.shards, separator, budget - shards, answers)
    if not len(passages.rows):
        raise _too_small(datastore, size, _least_bytes(separator))
    fill = -(-passages.size // shards)
    reporter.stage("suffix arrays", passages.size)
    from ngramkit.kernels.suffix.sort import sort_shard

    ends = np.cumsum(passages.lengths + ~passages.joined)
    for number in range(int((ends[-1] - 1) // fill) + 1):
        part = passages.keep((ends - 1) // fill == number)
        name = f"shard-{number:05d}.safetensors"
        if writer.finished(name) is None:
            tokens = _tokens_of_shard(datastore, part)
            writer.write(name, sort_shard(tokens, separator))
        reporter.advance(part.size)
    documents = int(np.count_nonzero(~passages.joined))
    return {"shard_tokens": fill}, {"documents": documents, "tokens": int(passages.lengths.sum())}


def _tokens_that_fit(datastore: Datastore, size: int) -> tuple[int, int]:
    """Return the tokens, with separators, that fit into `size` bytes, and the number of shards."""
    separator = datastore.separator
    token, buckets = _bytes_of_token(separator), _bytes_of_buckets(separator)
    whole = sum(len(shard.tokens) for shard in datastore.shards)
    shards = max(-(-min(size // token, whole) // MAX_SHARD_TOKENS), 1)
    tokens = (size - shards * buckets) // token
    if tokens <= shards:
        raise _too_small(datastore, size, _least_bytes(separator))
    return tokens, shards


def _bytes_of_token(separator: int) -> int:
    return token_dtype(separator).itemsize + 4  # with its place in the suffix array


def _bytes_of_buckets(separator: int) -> int:
    return 8 * (separator + 2) + HEADER_BYTES  # of a shard


def _least_bytes(separator: int) -> int:
    """Return the size of a datastore with room for any one passage."""
    return _bytes_of_buckets(separator) + (PASSAGE_TOKENS + 2) * _bytes_of_token(separator)


def _too_small(artifact: Artifact, size: int, least: int) -> UsageError:
    return UsageError(
        f"cannot prune {artifact.where} to {size:,} B",
        f"Give at least {least:,} B.",
        option="bytes",
    )


def _tokens_of_shard(datastore: Datastore, passages: Passages) -> Array:
    """Return a shard's tokens, with separators."""
    separator = datastore.separator
    tokens = np.full(passages.size, separator, token_dtype(separator))
    first = np.flatnonzero(~passages.joined)
    last = np.append(first[1:], len(passages.rows)) - 1
    at = 0
    for shard, begin, end in zip(
        passages.rows[first, 0].tolist(),
        passages.rows[first, 1].tolist(),
        passages.rows[last, 2].tolist(),
        strict=True,
    ):
        tokens[at : at + end - begin] = datastore.shards[shard].tokens[begin:end]
        at += end - begin + 1
    return tokens


def _frozen_table(
    table: FrozenTable,
    writer: ArtifactWriter,
    size: int,
    answers: Sequence[Array],
    reporter: Reporter,
) -> tuple[dict[str, Any], dict[str, int]]:
    reporter.stage("choosing followers", None)
    arrays = prune_table(table, size - HEADER_BYTES, answers)
    if not len(arrays["leaders"]):
        raise _too_small(table, size, HEADER_BYTES + 8 + sum(_row_bytes(table)))
    writer.write(TABLE, arrays)
    counts = {name: len(arrays[name]) for name in ("leaders", "followers")}
    return dict(table.manifest.parameters), counts


# Rows of a frozen table.


def prune_table(table: FrozenTable, size: int, answers: Sequence[Array] = ()) -> dict[str, Array]:
    """Return the arrays of a table of at most `size` bytes, without leaders if none fits."""
    sizes: Array = np.diff(table.follower_offsets.astype(np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    kept = _most_worth_per_byte(table, sizes, owner, _follower_worth(table, owner, answers), size)
    left = np.bincount(owner[kept], minlength=len(sizes))
    leaders = left > 0
    return {
        "leaders": table.leaders[leaders],
        "leader_counts": table.leader_counts[leaders],
        "follower_offsets": np.concatenate([[0], np.cumsum(left[leaders])]).astype(np.uint64),
        "followers": table.followers[kept],
        "follower_counts": table.follower_counts[kept],
    }


def _most_worth_per_byte(
    table: FrozenTable, sizes: Array, owner: Array, worth: Array, size: int
) -> Array:
    """Mark the followers to keep in `size` bytes: bool[F]."""
    row, head = _row_bytes(table)
    sizes = sizes[sizes > 0]
    best_first = np.lexsort((-worth, owner))
    costs = np.full(len(worth), row, np.int64)
    first = np.cumsum(sizes) - sizes
    costs[first] += head
    rates = worth[best_first] * (1 << 20) // costs  # in whole numbers
    rates = np.minimum(rates, np.repeat(rates[first], sizes))  # a leader's best comes first
    order = np.argsort(-rates, kind="stable")
    fitting = np.searchsorted(np.cumsum(costs[order]), size - 8, side="right")
    kept = np.zeros(len(worth), bool)
    kept[best_first[order[:fitting]]] = True
    return kept


def _row_bytes(table: FrozenTable) -> tuple[int, int]:
    """Return the bytes of a follower, and of a leader."""
    row = table.followers.itemsize * table.follower_len + table.follower_counts.itemsize
    head = table.leaders.itemsize * table.leader_len + table.leader_counts.itemsize + 8
    return row, head


def _follower_worth(table: FrozenTable, owner: Array, answers: Sequence[Array]) -> Array:
    """Return the worth of followers: int64[F]."""
    counts = table.follower_counts.astype(np.int64)
    length = table.leader_len + table.follower_len
    texts = [np.asarray(answer, table.leaders.dtype) for answer in answers]
    windows = sum(max(len(text) - length + 1, 0) for text in texts)
    if not windows:
        return counts
    from ngramkit.kernels.prune_passages import new_wanted, raise_worth, text_table, wanted_rows

    wanted = new_wanted(windows, (length,))
    rows = np.array([(i, 0, len(text)) for i, text in enumerate(texts)], np.int64)
    raise_worth(wanted, text_table(texts), rows, 1, True)
    grams = np.hstack([table.leaders[owner], table.followers])
    return np.asarray(counts + wanted_rows(wanted, grams) * max(int(counts.sum()) // windows, 1))


# Passages of a datastore.


@dataclass(frozen=True)
class Passages:
    rows: Array  # int64[n, 3]: shard, begin, end in its tokens
    joined: Array  # bool[n], whether a row continues the previous one
    training: Array  # bool[n], whether its document is of the training split

    def keep(self, chosen: Array) -> Passages:
        joined = self.joined.copy()
        joined[1:] &= chosen[:-1]
        return Passages(self.rows[chosen], joined[chosen], self.training[chosen])

    @property
    def lengths(self) -> Array:
        return np.asarray(self.rows[:, 2] - self.rows[:, 1])

    @property
    def size(self) -> int:
        return int(self.lengths.sum() + np.count_nonzero(~self.joined))


def choose_passages(
    shards: Sequence[DatastoreShard], separator: int, budget: int, answers: Sequence[Array] = ()
) -> Passages:
    """Choose the passages to keep in `budget` tokens, with separators.

    Takes at most 144 bytes per token of the training split and the answers, and 2 per token of the
    corpus.
    """
    documents = _find_documents(shards, separator)
    passages = _cut_passages(documents)
    if passages.size <= budget:
        return passages
    from ngramkit.kernels.prune_passages import (
        choose_best_per_token,
        new_wanted,
        raise_worth,
        text_table,
    )

    trained = documents.rows[documents.training]
    texts = [shard.tokens for shard in shards]
    given = [np.asarray(answer, texts[0].dtype) for answer in answers]
    rows = np.array([(len(texts) + i, 0, len(a)) for i, a in enumerate(given)], np.int64)
    split = int((trained[:, 2] - trained[:, 1]).sum())
    total = sum(map(len, given))
    table = new_wanted(split + total, COUNTED_ORDERS)
    where = text_table([*texts, *given])
    raise_worth(table, where, trained, 1, False)
    raise_worth(table, where, rows.reshape(-1, 3), ANSWER_WORTH, False)

    candidates = passages.keep(~passages.training)
    rows = choose_best_per_token(table, where, candidates.rows, candidates.joined, budget)
    chosen = np.zeros(len(passages.rows), bool)
    chosen[np.flatnonzero(~passages.training)[rows]] = True
    # Fill the remaining room, with the training split last.
    others = np.flatnonzero(~chosen)
    order = others[np.lexsort((_mixed_hashes(others), passages.training[others]))]
    costs = np.cumsum(passages.lengths[order] + 1)
    left = budget - passages.keep(chosen).size
    chosen[order[: np.searchsorted(costs, left, side="right")]] = True
    return passages.keep(chosen)


def _find_documents(shards: Sequence[DatastoreShard], separator: int) -> Passages:
    rows_of = []
    for index, shard in enumerate(shards):
        last, end = (int(at) for at in shard.first_token[-2:])
        ends = np.sort(shard.suffix_array[last:end]).astype(np.int64)  # of the separators
        begins = np.concatenate([[0], ends[:-1] + 1])
        rows_of.append(np.column_stack([np.full(len(ends), index), begins, ends]))
    rows = np.concatenate(rows_of)
    rows = rows[rows[:, 1] < rows[:, 2]]
    documents = Passages(rows, np.zeros(len(rows), bool), np.zeros(len(rows), bool))
    drawn = _mixed_hashes(np.arange(len(rows))) % np.uint64(TRAINED_ONE_IN) == 0
    enough = np.cumsum(np.where(drawn, documents.lengths, 0)) > MAX_TRAINED_TOKENS
    return replace(documents, training=drawn & ~enough)


def _mixed_hashes(numbers: Array) -> Array:
    factor = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * factor
    return np.asarray((mixed ^ mixed >> np.uint64(31)) * factor >> np.uint64(40))


def _cut_passages(documents: Passages) -> Passages:
    """Cut documents into the fewest even parts of at most PASSAGE_TOKENS."""
    lengths = documents.lengths
    parts = -(-lengths // PASSAGE_TOKENS)
    owner = np.repeat(np.arange(len(lengths)), parts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    first = documents.rows[owner, 1]
    begins = first + place * lengths[owner] // parts[owner]
    ends = first + (place + 1) * lengths[owner] // parts[owner]
    rows = np.column_stack([documents.rows[owner, 0], begins, ends])
    return Passages(rows, place > 0, documents.training[owner])
