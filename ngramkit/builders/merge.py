"""Several artifacts of one kind and tokenizer to one.

Datastores: their shards side by side, as if the corpora had been built together. Frozen tables:
counts added, then the most frequent leaders and followers again. A table has dropped what was rare
in its own corpus, so a merged count is exact only where every part kept the n-gram; elsewhere it is
a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders.frozen import narrow
from ngramkit.errors import UsageError
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import TABLE, FrozenTable
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.progress import SILENT, Reporter


def merge(
    parts: Sequence[Artifact], out: str | Path, *, reporter: Reporter = SILENT, force: bool = False
) -> Artifact:
    """Two or more datastores or frozen tables as one artifact at `out`.

    Raises UsageError where the parts cannot be merged, ArtifactError where their tokenizers differ.
    """
    _validate(parts)
    plan = {"kind": parts[0].kind, "merged": [part.manifest.build for part in parts]}
    kind = type(parts[0])
    if already_built(out, plan):
        reporter.note(f"{out} is up to date")
        return kind.open(out)
    read = [part.path for part in parts]
    with ArtifactWriter(out, kind.kind, plan, inputs=read, force=force) as writer:
        if isinstance(parts[0], Datastore):
            parameters, counts = _datastores(parts, writer, reporter)
        else:
            parameters, counts = _frozen_tables(parts, writer)
        writer.commit(
            parts[0].tokenizer,
            parameters={**parameters, "merged": len(parts)},
            corpus=_corpus(parts),
            counts={**_sums(parts, "documents", "tokens"), **counts},
        )
    return kind.open(out)


def _validate(parts: Sequence[Artifact]) -> None:
    if len(parts) < 2:
        raise UsageError("there is only one artifact to merge", "name at least two")
    for left, right in pairwise(parts):
        if left.kind != right.kind:
            raise UsageError(
                f"{left.path} is a {left.kind} and {right.path} a {right.kind}",
                "merge artifacts of one kind",
            )
        left.tokenizer.require(right.tokenizer, str(left.path))
    if parts[0].kind not in (Datastore.kind, FrozenTable.kind):
        raise UsageError(f"a {parts[0].kind} cannot be merged", "merge datastores or frozen tables")
    if len({part.manifest.build for part in parts}) < len(parts):
        raise UsageError("one artifact is named twice", "its counts would be added to themselves")


def _corpus(parts: Sequence[Artifact]) -> dict[str, Any]:
    corpora = [part.manifest.corpus for part in parts]
    ids = [str(corpus.get("id", "unknown")) for corpus in corpora]
    licenses: dict[str, int] = {}
    for corpus in corpora:
        for licence, documents in corpus.get("licenses", {}).items():
            licenses[licence] = licenses.get(licence, 0) + documents
    found = {"licenses": dict(sorted(licenses.items()))} if licenses else {}
    return {"id": " + ".join(ids), "merged": corpora, **found}


def _sums(parts: Sequence[Artifact], *names: str) -> dict[str, int]:
    return {name: sum(part.manifest.counts.get(name, 0) for part in parts) for name in names}


def _datastores(
    parts: Sequence[Artifact], writer: ArtifactWriter, reporter: Reporter
) -> tuple[dict[str, Any], dict[str, int]]:
    stores = [part for part in parts if isinstance(part, Datastore)]
    shards = [shard for store in stores for shard in store.shards]
    reporter.stage("copying shards", len(shards), "shards")
    for number, shard in enumerate(shards):
        name = f"shard-{number:05d}.safetensors"
        if writer.finished(name) is None:
            writer.write(name, vars(shard))
        reporter.advance(1)
    return {"shard_tokens": max(len(shard.tokens) for shard in shards)}, {}


def _frozen_tables(
    parts: Sequence[Artifact], writer: ArtifactWriter
) -> tuple[dict[str, Any], dict[str, int]]:
    tables = [part for part in parts if isinstance(part, FrozenTable)]
    if len({(table.leader_len, table.follower_len) for table in tables}) > 1:
        raise UsageError(
            "the frozen tables have leaders or followers of different lengths",
            "build them with the same leader_len and follower_len",
            option=("leader_len", "follower_len"),
        )
    parameters = dict(tables[0].manifest.parameters)
    for name in ("leaders", "followers"):
        parameters[name] = max(table.manifest.parameters[name] for table in tables)
    arrays = add_tables(tables, parameters["leaders"], parameters["followers"])
    writer.write(TABLE, arrays)
    return parameters, {
        "leaders": len(arrays["leaders"]),
        "followers": len(arrays["followers"]),
    }


def add_tables(tables: Sequence[FrozenTable], leaders: int, followers: int) -> dict[str, Array]:
    """The arrays of one table: the `leaders` most frequent, each with its `followers` best."""
    stacked = np.concatenate([table.leaders for table in tables])
    union, owner = np.unique(stacked, axis=0, return_inverse=True)
    counts = np.zeros(len(union), np.int64)
    np.add.at(counts, owner, np.concatenate([table.leader_counts for table in tables]))
    kept = np.zeros(len(union), bool)
    kept[np.argsort(-counts, kind="stable")[:leaders]] = True

    owners = np.split(owner, np.cumsum([len(table.leaders) for table in tables])[:-1])
    rows = np.concatenate([_rows(table, own) for table, own in zip(tables, owners, strict=True)])
    seen = np.concatenate([table.follower_counts for table in tables]).astype(np.int64)
    rows, seen = _added(rows[kept[rows[:, 0]]], seen[kept[rows[:, 0]]])
    rows, seen = _best(rows, seen, followers)
    sizes = np.bincount(rows[:, 0], minlength=len(union))[kept]
    return {
        "leaders": union[kept],
        "leader_counts": narrow(counts[kept]),
        "follower_offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64),
        "followers": rows[:, 1:].astype(stacked.dtype),
        "follower_counts": narrow(seen),
    }


def _rows(table: FrozenTable, owner: Array) -> Array:
    """int64[F, 1 + FL]: the merged row of each follower's leader, and the follower."""
    sizes: Array = np.diff(table.follower_offsets.astype(np.int64))
    return np.column_stack([np.repeat(owner, sizes), table.followers.astype(np.int64)])


def _added(rows: Array, counts: Array) -> tuple[Array, Array]:
    """Equal rows as one, in order, their counts added."""
    order = np.lexsort(rows.T[::-1])
    rows, counts = rows[order], counts[order]
    starts = np.flatnonzero(np.append(True, np.any(rows[1:] != rows[:-1], axis=1)))
    return rows[starts], np.add.reduceat(counts, starts)


def _best(rows: Array, counts: Array, followers: int) -> tuple[Array, Array]:
    """Per leader by count, ties by ids (the order of `rows`), at most `followers`."""
    order = np.lexsort((-counts, rows[:, 0]))
    rows, counts = rows[order], counts[order]
    place = np.arange(len(rows)) - np.searchsorted(rows[:, 0], rows[:, 0])
    kept = place < followers
    return rows[kept], counts[kept]
