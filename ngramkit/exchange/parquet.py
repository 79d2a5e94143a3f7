"""Export as rows, for DuckDB, pandas, datasets and the Hub's viewer.

A datastore or token store has one row per document that is not empty:

    text           string

A frozen table has one row per follower, in table order:

    leader_text    string        leader         list<int32>
    follower_text  string        follower       list<int32>
    count          int64         leader_count   int64

A model bigram has one row per token and candidate, best first:

    token_text     string        token          int32
    next_text      string        next           int32
    extended_text  string        extended       list<int32>
    log_prob       float32

Compressed by Zstandard. N-grams are decoded separately, so leading spaces may be missing, and the
bytes of partial characters are written as \\xNN. The metadata of a file of private texts has
`private` = `true`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import REPLACEMENT
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.exchange.text import texts_of_documents
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.replacing import whole_file
from ngramkit.formats.safetensors import Array
from ngramkit.formats.tokens import TokenStore

ROWS_PER_GROUP = 1 << 17  # rows per group
CHARACTERS_PER_GROUP = 1 << 24  # of a group of documents
ORIGIN = {b"ngramkit": b"text"}  # metadata of a file of documents


def export_parquet(
    artifact: Datastore | TokenStore | FrozenTable | ModelBigram,
    tokenizer: TextTokenizer,
    path: Path,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write the rows of an artifact of one of these kinds; return counts."""
    artifact.tokenizer.require(tokenizer.record, str(artifact.path))
    if isinstance(artifact, FrozenTable):
        groups = _frozen_groups(artifact, tokenizer)
    elif isinstance(artifact, ModelBigram):
        groups = _bigram_groups(artifact, tokenizer)
    else:
        groups = _text_groups(artifact, tokenizer)
    reporter.stage("rows", None, "rows")
    written = 0
    private = artifact.manifest.private
    mark = {b"private": b"true"} if private else {}
    with whole_file(path, is_parquet, force=force, inputs=[artifact.path], private=private) as file:
        writer: Any = None
        for group in groups:
            if writer is None:
                metadata = {**(group.schema.metadata or {}), **mark}
                schema = group.schema.with_metadata(metadata)
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(group)
            written += len(group)
            reporter.advance(len(group))
        if writer is None:
            raise InputError(f"cannot export rows: {artifact.where} has no text", "Build it again.")
        writer.close()
        return {"rows": written, "bytes": file.tell()}


def is_parquet(path: Path) -> bool:
    try:
        schema = pq.read_schema(path)
    except pa.ArrowException:
        return False
    names, ours = set(schema.names), ORIGIN.items() <= (schema.metadata or {}).items()
    return ours or {"leader_text", "follower_text"} <= names or {"token_text", "next_text"} <= names


def _text_groups(store: Datastore | TokenStore, tokenizer: TextTokenizer) -> Iterator[pa.Table]:
    schema = pa.schema([("text", pa.string())], ORIGIN)
    group: list[str] = []
    characters = 0
    for texts in texts_of_documents(store, tokenizer):
        group += texts
        characters += sum(map(len, texts))
        if len(group) >= ROWS_PER_GROUP or characters >= CHARACTERS_PER_GROUP:
            yield pa.table({"text": group}, schema)
            group, characters = [], 0
    if group:
        yield pa.table({"text": group}, schema)


def _frozen_groups(table: FrozenTable, tokenizer: TextTokenizer) -> Iterator[pa.Table]:
    offsets = table.follower_offsets.astype(np.int64)
    for begin in range(0, len(table.followers), ROWS_PER_GROUP):
        end = min(begin + ROWS_PER_GROUP, len(table.followers))
        owners = np.searchsorted(offsets, np.arange(begin, end), side="right") - 1
        first = int(owners[0])
        leaders = table.leaders[first : int(owners[-1]) + 1]
        names = np.array(_decode_rows(tokenizer, leaders), object)
        followers = table.followers[begin:end]
        yield pa.table(
            {
                "leader_text": pa.array(names[owners - first], pa.string()),
                "follower_text": pa.array(_decode_rows(tokenizer, followers), pa.string()),
                "count": pa.array(table.follower_counts[begin:end].astype(np.int64)),
                "leader_count": pa.array(table.leader_counts[owners].astype(np.int64)),
                "leader": _list_array(table.leaders[owners]),
                "follower": _list_array(followers),
            }
        )


def _bigram_groups(bigram: ModelBigram, tokenizer: TextTokenizer) -> Iterator[pa.Table]:
    size = max(ROWS_PER_GROUP // bigram.k, 1)  # tokens in one group
    for begin in range(0, len(bigram.next_tokens), size):
        tokens = np.arange(begin, min(begin + size, len(bigram.next_tokens)))
        names = np.array(_decode_rows(tokenizer, tokens[:, None]), object)
        following = bigram.next_tokens[tokens].reshape(-1, 1)
        extended = bigram.extended[tokens].reshape(-1, bigram.width)
        yield pa.table(
            {
                "token_text": pa.array(np.repeat(names, bigram.k), pa.string()),
                "next_text": pa.array(_decode_rows(tokenizer, following), pa.string()),
                "log_prob": pa.array(bigram.log_probs[tokens].reshape(-1).astype(np.float32)),
                "extended_text": pa.array(_decode_rows(tokenizer, extended), pa.string()),
                "token": pa.array(np.repeat(tokens, bigram.k).astype(np.int32)),
                "next": pa.array(following[:, 0].astype(np.int32)),
                "extended": _list_array(extended),
            }
        )


def _decode_rows(tokenizer: TextTokenizer, rows: Array) -> list[str]:
    ids = rows.tolist()
    texts: list[str] = tokenizer.backend.decode_batch(ids, skip_special_tokens=False)
    for at, text in enumerate(texts):
        if REPLACEMENT in text:
            texts[at] = tokenizer.shown(ids[at])
    return texts


def _list_array(rows: Array) -> pa.Array:
    flat = np.ascontiguousarray(rows).reshape(-1).astype(np.int32)
    offsets = np.arange(0, len(flat) + 1, rows.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, flat)
