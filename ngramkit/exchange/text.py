"""Export of a datastore's documents as text: one JSON string per line, UTF-8.

For SGLang's `--speculative-ngram-external-corpus-path`. A final EOS is omitted, because SGLang adds
its own separator.
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

BATCH = 1024  # documents decoded at a time


def export_jsonl(
    store: Datastore,
    tokenizer: TextTokenizer,
    path: Path,
    *,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> dict[str, int]:
    store.tokenizer.require(tokenizer.record, str(store.path))
    reporter.stage("documents", store.manifest.counts.get("documents"), "documents")
    written = 0
    with whole_file(path, is_jsonl, force=force, inputs=[store.path]) as file:
        remaining = documents(store)
        while batch := list(islice(remaining, BATCH)):
            ids = [document.tolist() for document in batch]
            ids = [each[:-1] if each[-1:] == [store.tokenizer.eos] else each for each in ids]
            texts = tokenizer.backend.decode_batch(ids, skip_special_tokens=False)
            lines = [json.dumps(text, ensure_ascii=False) + "\n" for text in texts if text]
            file.write("".join(lines).encode("utf-8", "replace"))
            written += len(lines)
            reporter.advance(len(batch))
        return {"documents": written, "bytes": file.tell()}


def is_jsonl(path: Path) -> bool:
    with path.open("rb") as file:
        return isinstance(json.loads(file.readline()), str)


def documents(store: Datastore) -> Iterator[Array]:
    """Yield each document's ids, EOS included; some may be empty."""
    for shard in store.shards:
        begin = 0
        for end in np.flatnonzero(shard.tokens == store.separator).tolist():
            yield shard.tokens[begin:end]
            begin = end + 1
