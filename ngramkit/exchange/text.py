"""Export of documents as text, UTF-8, one line of JSON per document that is not empty.

`jsonl` writes strings, for SGLang's `--speculative-ngram-external-corpus-path`. `datasets` writes
objects with the field `text`, for datasets, pandas and `open_corpus`. A final EOS is omitted: these
programs add their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.replacing import whole_file
from ngramkit.formats.safetensors import Array
from ngramkit.formats.tokens import TokenStore

DOCUMENTS_AT_ONCE = 1024  # documents decoded at a time
TEXT_FIELD = "text"


def export_jsonl(
    store: Datastore | TokenStore,
    tokenizer: TextTokenizer,
    path: Path,
    *,
    objects: bool = False,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    """Write the documents as strings, or as `objects`."""
    store.tokenizer.require(tokenizer.record, str(store.path))
    reporter.stage("documents", store.manifest.counts.get("documents"), "documents")
    written = 0
    is_export = is_objects if objects else is_jsonl
    private = store.manifest.private
    with whole_file(path, is_export, force=force, inputs=[store.path], private=private) as file:
        for texts in texts_of_documents(store, tokenizer):
            values = ({TEXT_FIELD: text} if objects else text for text in texts)
            lines = [json.dumps(value, ensure_ascii=False) + "\n" for value in values]
            file.write("".join(lines).encode("utf-8", "replace"))
            written += len(lines)
            reporter.advance(len(lines))
        return {"documents": written, "bytes": file.tell()}


def texts_of_documents(
    store: Datastore | TokenStore, tokenizer: TextTokenizer
) -> Iterator[list[str]]:
    """Yield the texts of documents that are not empty, in batches, without a final EOS."""
    remaining, eos = documents_of(store), store.tokenizer.eos
    while batch := list(islice(remaining, DOCUMENTS_AT_ONCE)):
        ids = [document.tolist() for document in batch]
        ids = [each[:-1] if each[-1:] == [eos] else each for each in ids]
        texts = tokenizer.backend.decode_batch(ids, skip_special_tokens=False)
        yield [text for text in texts if text]


def is_jsonl(path: Path) -> bool:
    with path.open("rb") as file:
        return isinstance(json.loads(file.readline()), str)


def is_objects(path: Path) -> bool:
    with path.open("rb") as file:
        first = json.loads(file.readline())
    return isinstance(first, dict) and first.keys() == {TEXT_FIELD}


def documents_of(store: Datastore | TokenStore) -> Iterator[Array]:
    """Yield each document's ids, EOS included; some may be empty."""
    if isinstance(store, TokenStore):
        yield from store.documents()
        return
    for shard in store.shards:
        begin = 0
        for end in np.flatnonzero(shard.tokens == store.separator).tolist():
            yield shard.tokens[begin:end]
            begin = end + 1
