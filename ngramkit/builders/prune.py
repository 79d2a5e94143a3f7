"""Artifacts made smaller: what earns the most accepted tokens per byte is kept.

The published reference is CREST (arXiv:2408.04678), which keeps a datastore's most frequent n-grams
and drops where they stood. Here the result is an ordinary artifact. Same artifact, size and
answers: same bytes.

A datastore keeps passages: at most `PASSAGE` tokens of one document each; documents are cut evenly.
The worth of a passage is the n-grams of wanted text that it holds and no passage kept before it
does, per token (kernels.passages); so many kinds are kept rather than many of one. Wanted text is
the training split, which is some of the datastore's documents, and recorded answers of the kind
that drafts are for, which weigh more. Passages of the training split itself are kept last. N-grams
are short, since longer ones belong to the subjects of a corpus, and other text has other subjects.
docs/benchmarks.md has what was measured.

A frozen table keeps the rows of most worth per byte. A follower's worth is its count in the table
plus its count after that leader in `answers`, which are scaled so that they weigh as much as the
table. A leader's best follower pays for the leader's own row too. Without answers this is CREST's
rule: the most frequent n-grams stay.
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
from ngramkit.formats.resumable_writer import ArtifactWriter, already_built
from ngramkit.formats.safetensors import Array

SHARD_TOKENS = 1 << 25  # at most; sorting one takes 16 bytes for each
HEADER = 1024  # bytes of a file that are not arrays, at most
# The rules as manifests name them, with another number for any other choice.
FROZEN_RULE = "most frequent followers per byte, 1"
DATASTORE_RULE = "most new n-grams per token, 2"
SCALE = 1 << 20  # of a frozen table's worth per byte, in whole numbers
PASSAGE = 64  # tokens at most
ORDERS = (2, 3)  # lengths of the n-grams that a passage is worth something for
ANSWER = 8  # the worth of an n-gram of the answers, beside one of the split alone
SPLIT, MOST_TRAINED = 16, 1 << 21  # one document of so many, up to so many tokens of them
MIXED = np.uint64(0xBF58476D1CE4E5B9)


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
    """Prune a datastore or frozen table to at most `size` bytes, at `out`.

    `answers`, token ids, are text of the kind that drafts are for. Without any, a datastore is
    judged by a split of its own documents, a frozen table by its counts. An artifact that fits is
    kept whole. Raises UsageError for other kinds, and where `size` is too small for any.
    """
    manifest, kind = artifact.manifest, type(artifact)
    rule = {
        "bytes": size,
        "rule": DATASTORE_RULE if isinstance(artifact, Datastore) else FROZEN_RULE,
        **({"answers": _digest(answers)} if len(answers) else {}),
    }
    plan = {"kind": artifact.kind, "pruned": manifest.build, "answers": None, **rule}
    whole = {"build": manifest.build, "bytes": manifest.bytes, "parameters": manifest.parameters}
    if "pruned" in manifest.corpus:  # by an earlier pruning
        whole["pruned"] = manifest.corpus["pruned"]
    if not isinstance(artifact, Datastore | FrozenTable):
        raise UsageError(
            f"{a_kind(artifact.kind)} cannot be pruned", "prune a datastore or a frozen table"
        )
    if already_built(out, plan, reporter):
        return kind.open(out)
    with ArtifactWriter(
        out, artifact.kind, plan, inputs=[artifact.path], recipe=recipe, force=force
    ) as writer:
        if isinstance(artifact, Datastore):
            parameters, counts = _datastore(artifact, writer, size, answers, reporter)
            amount = "tokens"
        else:
            parameters, counts = _frozen_table(artifact, writer, size, answers, reporter)
            amount = "followers"
        if counts[amount] == manifest.counts.get(amount):
            reporter.note(f"nothing had to be pruned: all of {artifact.path} fits")
        writer.commit(
            artifact.tokenizer,
            parameters=parameters,
            corpus={**artifact.manifest.corpus, "pruned": {**rule, "of": whole}},
            counts={**artifact.manifest.counts, **counts},
        )
    return kind.open(out)


def _digest(answers: Sequence[Array]) -> str:
    """Return the sha256 of all ids, in the order given."""
    digest = hashlib.sha256()
    for answer in answers:
        digest.update(len(answer).to_bytes(8, "little") + answer.astype("<u4").tobytes())
    return digest.hexdigest()


def _datastore(
    datastore: Datastore,
    writer: ArtifactWriter,
    size: int,
    answers: Sequence[Array],
    reporter: Reporter,
) -> tuple[dict[str, Any], dict[str, int]]:
    separator = datastore.separator
    budget, shards = _room(datastore, size)
    reporter.stage("choosing passages", None)
    passages = choose_passages(datastore.shards, separator, budget - shards, answers)
    if not len(passages.rows):
        raise _too_small(datastore, size, 8 * (separator + 2) + HEADER)
    fill = -(-passages.size // shards)
    reporter.stage("suffix arrays", passages.size)
    from ngramkit.kernels.suffix.sort import sort_shard

    ends = np.cumsum(passages.lengths + ~passages.joined)
    for number in range(int((ends[-1] - 1) // fill) + 1):
        part = passages.keep((ends - 1) // fill == number)
        name = f"shard-{number:05d}.safetensors"
        if writer.finished(name) is None:
            tokens = _tokens(datastore, part)
            writer.write(name, sort_shard(tokens, separator))
        reporter.advance(part.size)
    documents = int(np.count_nonzero(~passages.joined))
    return {"shard_tokens": fill}, {"documents": documents, "tokens": int(passages.lengths.sum())}


def _room(datastore: Datastore, size: int) -> tuple[int, int]:
    """Return how many tokens fit into `size` bytes, separators included, in how many shards."""
    separator = datastore.separator
    token = token_dtype(separator).itemsize + 4  # bytes, its place in the suffix array included
    buckets = 8 * (separator + 2) + HEADER
    whole = sum(len(shard.tokens) for shard in datastore.shards)
    shards = max(-(-min(size // token, whole) // SHARD_TOKENS), 1)
    tokens = (size - shards * buckets) // token
    if tokens <= shards:
        raise _too_small(datastore, size, buckets)
    return tokens, shards


def _too_small(artifact: Artifact, size: int, empty: int) -> UsageError:
    return UsageError(
        f"nothing of {artifact.path} fits into {size:,} B",
        f"a {artifact.kind} takes more than {empty:,} B",
        option="bytes",
    )


def _tokens(datastore: Datastore, passages: Passages) -> Array:
    """Return a shard's tokens: a separator behind each passage that the next does not continue."""
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
    arrays = prune_table(table, size - HEADER, answers)
    if not len(arrays["leaders"]):
        raise _too_small(table, size, HEADER)
    writer.write(TABLE, arrays)
    counts = {name: len(arrays[name]) for name in ("leaders", "followers")}
    return dict(table.manifest.parameters), counts


# Rows of a frozen table.


def prune_table(table: FrozenTable, size: int, answers: Sequence[Array] = ()) -> dict[str, Array]:
    """Return the arrays of a table of at most `size` bytes; without leaders where none fits.

    Followers are kept by worth per byte, a leader's best before its others; ties go to the earlier
    leader. Counts of leaders stay what they were in the corpus.
    """
    sizes: Array = np.diff(table.follower_offsets.astype(np.int64))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    worth = _worth(table, owner, answers)
    row = table.followers.itemsize * table.follower_len + table.follower_counts.itemsize
    head = table.leaders.itemsize * table.leader_len + table.leader_counts.itemsize + 8
    best_first = np.lexsort((-worth, owner))
    costs = np.full(len(worth), row, np.int64)
    first = np.cumsum(sizes) - sizes
    costs[first] += head
    rates = worth[best_first] * SCALE // costs
    rates = np.minimum(rates, np.repeat(rates[first], sizes))  # the best of a leader is none's last
    order = np.argsort(-rates, kind="stable")
    fitting = np.searchsorted(np.cumsum(costs[order]), size - 8, side="right")
    kept = np.zeros(len(worth), bool)
    kept[best_first[order[:fitting]]] = True
    left = np.bincount(owner[kept], minlength=len(sizes))
    leaders = left > 0
    return {
        "leaders": table.leaders[leaders],
        "leader_counts": table.leader_counts[leaders],
        "follower_offsets": np.concatenate([[0], np.cumsum(left[leaders])]).astype(np.uint64),
        "followers": table.followers[kept],
        "follower_counts": table.follower_counts[kept],
    }


def _worth(table: FrozenTable, owner: Array, answers: Sequence[Array]) -> Array:
    """Return the worth of followers: counts, and as much again by the answers. int64[F]."""
    counts = table.follower_counts.astype(np.int64)
    length = table.leader_len + table.follower_len
    texts = [np.asarray(answer, table.leaders.dtype) for answer in answers]
    windows = sum(max(len(text) - length + 1, 0) for text in texts)
    if not windows:
        return counts
    from ngramkit.kernels.passages import new_wanted, text_table, want, wanted_rows

    wanted = new_wanted(windows, (length,))
    rows = np.array([(i, 0, len(text)) for i, text in enumerate(texts)], np.int64)
    want(wanted, text_table(texts), rows, 1, True)
    grams = np.hstack([table.leaders[owner], table.followers])
    return np.asarray(counts + wanted_rows(wanted, grams) * max(int(counts.sum()) // windows, 1))


# Passages of a datastore.


@dataclass(frozen=True)
class Passages:
    """Stretches of documents, in the corpus's order."""

    rows: Array  # int64[n, 3]: shard, begin, end in its tokens
    joined: Array  # bool[n], whether a row goes on where the one before it ends
    training: Array  # bool[n], whether its document is of the training split

    def keep(self, chosen: Array) -> Passages:
        """Return those that are `chosen`, bool[n]."""
        joined = self.joined.copy()
        joined[1:] &= chosen[:-1]
        return Passages(self.rows[chosen], joined[chosen], self.training[chosen])

    @property
    def lengths(self) -> Array:
        """The lengths in tokens, int64[n]."""
        return np.asarray(self.rows[:, 2] - self.rows[:, 1])

    @property
    def size(self) -> int:
        """The tokens of a stream, with a separator behind each that the next does not continue."""
        return int(self.lengths.sum() + np.count_nonzero(~self.joined))


def choose_passages(
    shards: Sequence[DatastoreShard], separator: int, budget: int, answers: Sequence[Array] = ()
) -> Passages:
    """Choose what to keep of these shards in `budget` tokens, separators included.

    `answers` are token ids of text that drafts are for. Room that is left when nothing more is
    worth anything is filled with other passages, drawn by the hash of their numbers.
    Memory: at most 144 bytes per token of the training split and the answers, 2 per token of the
    corpus.
    """
    documents = _documents(shards, separator)
    passages = _cut_passages(documents)
    if passages.size <= budget:
        return passages
    from ngramkit.kernels.passages import choose, new_wanted, text_table, want

    trained = documents.rows[documents.training]
    texts = [shard.tokens for shard in shards]
    given = [np.asarray(answer, texts[0].dtype) for answer in answers]
    rows = np.array([(len(texts) + i, 0, len(a)) for i, a in enumerate(given)], np.int64)
    split = int((trained[:, 2] - trained[:, 1]).sum())
    total = sum(map(len, given))
    table = new_wanted(split + total, ORDERS)
    where = text_table([*texts, *given])
    want(table, where, trained, 1, False)
    want(table, where, rows.reshape(-1, 3), ANSWER, False)

    candidates = passages.keep(~passages.training)
    rows = choose(table, where, candidates.rows, candidates.joined, budget)
    chosen = np.zeros(len(passages.rows), bool)
    chosen[np.flatnonzero(~passages.training)[rows]] = True
    # Where there is room, more is chosen, of the training split last.
    others = np.flatnonzero(~chosen)
    order = others[np.lexsort((_drawn(others), passages.training[others]))]
    costs = np.cumsum(passages.lengths[order] + 1)
    left = budget - passages.keep(chosen).size
    chosen[order[: np.searchsorted(costs, left, side="right")]] = True
    return passages.keep(chosen)


def _documents(shards: Sequence[DatastoreShard], separator: int) -> Passages:
    """Return every document as one row; empty ones have none."""
    rows_of = []
    for index, shard in enumerate(shards):
        last, end = (int(at) for at in shard.first_token[-2:])
        ends = np.sort(shard.suffix_array[last:end]).astype(np.int64)  # of the separators
        begins = np.concatenate([[0], ends[:-1] + 1])
        rows_of.append(np.column_stack([np.full(len(ends), index), begins, ends]))
    rows = np.concatenate(rows_of)
    rows = rows[rows[:, 1] < rows[:, 2]]
    documents = Passages(rows, np.zeros(len(rows), bool), np.zeros(len(rows), bool))
    drawn = _drawn(np.arange(len(rows))) % np.uint64(SPLIT) == 0
    enough = np.cumsum(np.where(drawn, documents.lengths, 0)) > MOST_TRAINED
    return replace(documents, training=drawn & ~enough)


def _drawn(numbers: Array) -> Array:
    """Return a hash of each number, uint64[n]."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * MIXED
    return np.asarray((mixed ^ mixed >> np.uint64(31)) * MIXED >> np.uint64(40))


def _cut_passages(documents: Passages) -> Passages:
    """Cut documents into as few even parts as have at most PASSAGE tokens."""
    lengths = documents.lengths
    parts = -(-lengths // PASSAGE)
    owner = np.repeat(np.arange(len(lengths)), parts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    first = documents.rows[owner, 1]
    begins = first + place * lengths[owner] // parts[owner]
    ends = first + (place + 1) * lengths[owner] // parts[owner]
    rows = np.column_stack([documents.rows[owner, 0], begins, ends])
    return Passages(rows, place > 0, documents.training[owner])
