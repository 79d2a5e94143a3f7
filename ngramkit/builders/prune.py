"""Artifacts made smaller: what earns the most accepted tokens per byte is kept.

The published reference is CREST (arXiv:2408.04678), which keeps a datastore's most frequent n-grams
and drops where they stood. Here a datastore stays one, of passages of its documents
(`builders.passages`), and a frozen table keeps its most frequent rows (`builders.prune_frozen`).
What comes out is an ordinary artifact. Same artifact, size and answers: same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders import prune_frozen
from ngramkit.builders.passages import RULE, Passages, chosen_passages
from ngramkit.errors import UsageError
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.kernels.suffix.sort import sort_shard
from ngramkit.progress import SILENT, Reporter

SHARD_TOKENS = 1 << 25  # at most; sorting one takes 16 bytes for each
HEADER = 1024  # bytes of a file that are not arrays, at most


def prune(
    artifact: Artifact,
    out: str | Path,
    size: int,
    *,
    answers: Sequence[Array] = (),
    reporter: Reporter = SILENT,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
) -> Artifact:
    """A datastore or frozen table of at most `size` bytes, at `out`.

    `answers`, token ids, are text that drafts are for; without any, a split of a datastore's own
    documents says what is wanted, and a frozen table's counts do. Where the whole artifact fits,
    all of it is kept. Raises UsageError for other kinds, and where `size` is too small for any.
    """
    plan = {
        "kind": artifact.kind,
        "pruned": artifact.manifest.build,
        "bytes": size,
        "rule": RULE if isinstance(artifact, Datastore) else prune_frozen.RULE,
        "answers": _digest(answers),
    }
    kind = type(artifact)
    if not isinstance(artifact, Datastore | FrozenTable):
        raise UsageError(
            f"a {artifact.kind} cannot be pruned", "prune a datastore or a frozen table"
        )
    if already_built(out, plan):
        reporter.note(f"{out} is up to date")
        return kind.open(out)
    options: dict[str, Any] = {"inputs": [artifact.path], "recipe": recipe, "force": force}
    with ArtifactWriter(out, artifact.kind, plan, **options) as writer:
        if isinstance(artifact, Datastore):
            parameters, counts = _datastore(artifact, writer, size, answers, reporter)
        else:
            parameters, counts = _frozen_table(artifact, writer, size, answers, reporter)
        writer.commit(
            artifact.tokenizer,
            parameters=parameters,
            corpus={**artifact.manifest.corpus, "pruned": _provenance(artifact, plan)},
            counts={**artifact.manifest.counts, **counts},
        )
    return kind.open(out)


def _provenance(artifact: Artifact, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says of the pruning; of one pruned before, what was said of that too."""
    whole = artifact.manifest
    of: dict[str, Any] = {"build": whole.build, "bytes": whole.bytes}
    of["parameters"] = whole.parameters
    if "pruned" in whole.corpus:
        of["pruned"] = whole.corpus["pruned"]
    said = {name: plan[name] for name in ("bytes", "rule", "answers") if plan[name] is not None}
    return {**said, "of": of}


def _digest(answers: Sequence[Array]) -> str | None:
    """sha256 of all ids, in the order given; None of no answers."""
    if not len(answers):
        return None
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
    passages = chosen_passages(datastore.shards, separator, budget - shards, answers)
    if not len(passages.rows):
        raise _too_small(datastore, size, 8 * (separator + 2) + HEADER)
    fill = -(-passages.size // shards)
    reporter.stage("suffix arrays", passages.size)
    for number, part in enumerate(_cut(passages, fill)):
        name = f"shard-{number:05d}.safetensors"
        if writer.finished(name) is None:
            tokens = _tokens(datastore, part)
            writer.write(name, sort_shard(tokens, separator))
        reporter.advance(part.size)
    documents = int(np.count_nonzero(~passages.joined))
    return {"shard_tokens": fill}, {"documents": documents, "tokens": int(passages.lengths.sum())}


def _room(datastore: Datastore, size: int) -> tuple[int, int]:
    """How many tokens fit into `size` bytes, separators included, and in how many shards."""
    separator = datastore.separator
    each = token_dtype(separator).itemsize + 4
    buckets = 8 * (separator + 2) + HEADER
    held = sum(len(shard.tokens) for shard in datastore.shards)
    shards = max(-(-min(size // each, held) // SHARD_TOKENS), 1)
    tokens = (size - shards * buckets) // each
    if tokens <= shards:
        raise _too_small(datastore, size, buckets)
    return tokens, shards


def _too_small(artifact: Artifact, size: int, empty: int) -> UsageError:
    return UsageError(
        f"nothing of {artifact.path} fits into {size:,} B",
        f"a {artifact.kind} takes more than {empty:,} B",
        option="bytes",
    )


def _cut(passages: Passages, fill: int) -> list[Passages]:
    """One part per shard, each of about `fill` tokens."""
    ends = np.cumsum(passages.lengths + ~passages.joined)
    parts = []
    for shard in range(int((ends[-1] - 1) // fill) + 1):
        parts.append(passages.kept((ends - 1) // fill == shard))
    return parts


def _tokens(datastore: Datastore, passages: Passages) -> Array:
    """The passages of one shard, a separator behind each that the next does not continue."""
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
    arrays = prune_frozen.pruned(table, size - HEADER, answers)
    if not len(arrays["leaders"]):
        raise _too_small(table, size, HEADER)
    writer.write(TABLE, arrays)
    counts = {name: len(arrays[name]) for name in ("leaders", "followers")}
    return dict(table.manifest.parameters), counts
