"""What the tasks of `builders.token_parts` do: count documents, encode them, copy them to shards.

A part file holds the ids of a part of a corpus one document after another (tokens, u16 or u32 [n])
and how many each has (lengths, u64 [documents]).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ngramkit.builders.stages import BASE_MEMORY, Written, require_shared, write_file
from ngramkit.corpus.document import Corpus, Document, Position
from ngramkit.corpus.encoders import Encoder, open_encoder
from ngramkit.corpus.encoding import encoded, use_cores
from ngramkit.formats.artifact import Layout, require_layout, token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.progress import Reporter

MEMORY = BASE_MEMORY + (1 << 30)  # bytes of a task: a tokenizer, batches of text, and their ids
KEPT = "kept"  # u8 [documents], of a part: 1 for those that are kept
PART: Layout = {"tokens": (("uint16", "uint32"), 1), "lengths": (("uint64",), 1)}


class Ids(NamedTuple):
    """How text becomes ids: the tokenizer's file and fingerprint, its size, and what ends a
    document."""

    tokenizer: str
    fingerprint: str
    vocabulary: int
    ending: int | None


class Part(NamedTuple):
    """A part of a corpus, on its own, and the index of its first document. `kept` is the file of
    the build that says which of its documents are kept, where that is not for the corpus to say."""

    corpus: Corpus
    first: int
    kept: str = ""


class Cut(NamedTuple):
    """Documents [first, last) of a part file, which are its tokens [begin, end)."""

    file: str
    first: int
    last: int
    begin: int
    end: int


def count_part(part: Corpus, folder: str, name: str) -> Written:
    """A task: how many documents a part has, kept or not."""
    _require_places(part)
    counted = getattr(part.source, "counted", lambda: None)()
    if counted is None:
        counted = sum(len(row.texts) for row in part.source.rows(0))
    arrays = {"documents": np.array([counted], np.uint64)}
    return write_file(folder, name, arrays, documents=counted)


def documents_of(part: Part, limit: int | None) -> Iterator[Document]:
    """The documents of a part that its corpus selects, `limit` at most."""
    _require_places(part.corpus)
    bounded = replace(part.corpus, selection=replace(part.corpus.selection, limit=limit))
    return bounded.documents(Position(first=part.first, number=part.first))


def _chosen(documents: Iterable[Document], path: Path) -> Iterator[Document]:
    kept = open_arrays(require_shared(path))[KEPT]
    return (document for document, keep in zip(documents, kept, strict=True) if keep)


def encode_part(part: Part, limit: int | None, ids: Ids, folder: str, name: str) -> Written:
    """A task: the ids and the lengths of the documents that are kept of a part, `limit` at most.

    Its ids are gathered on the disk, so that the part may be of any size."""
    encoder, notes = _encoder(ids.tokenizer, ids.fingerprint)
    lengths, licenses = [np.empty(0, np.int64)], Counter[str]()
    dtype, count = token_dtype(ids.vocabulary), 0
    with tempfile.TemporaryFile() as spool:
        documents = documents_of(part, limit)
        if part.kept:
            documents = _chosen(documents, Path(folder) / part.kept)
        for packed in encoded(documents, encoder, ids.vocabulary, ids.ending):
            spool.write(np.ascontiguousarray(packed.tokens, dtype).data)
            lengths.append(packed.lengths)
            count += len(packed.tokens)
            for document in packed.documents:
                licenses.update(document.licenses)
        spool.flush()
        tokens = np.memmap(spool, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)
        joined = np.concatenate(lengths)
        arrays = {"tokens": tokens, "lengths": joined.astype(np.uint64)}
        written = write_file(folder, name, arrays, documents=len(joined), tokens=count,
                             licenses=dict(sorted(licenses.items())))  # fmt: skip
    return written._replace(notes=notes.taken())


class _Notes(Reporter):
    def __init__(self) -> None:
        self._held: list[str] = []

    def note(self, text: str) -> None:
        self._held.append(text)

    def taken(self) -> list[str]:
        held, self._held = self._held, []
        return held


@lru_cache(maxsize=2)
def _encoder(tokenizer: str, fingerprint: str) -> tuple[Encoder, _Notes]:
    """Of this process, for one part after another: what it has proven, it need not prove again.

    Another build in the same place may have another tokenizer in a file of that name."""
    from tokenizers import Tokenizer

    use_cores(1)
    text = open_arrays(require_shared(Path(tokenizer)))["json"]
    notes = _Notes()
    return open_encoder(Tokenizer.from_str(text.tobytes().decode()), notes), notes


def _require_places(part: Corpus) -> None:
    for place in part.places:
        require_shared(place)


def open_part(path: Path) -> dict[str, Array]:
    """A part file's arrays, as memory maps."""
    arrays = open_arrays(require_shared(path))
    require_layout(path, arrays, PART)
    return arrays


def copy_shard(folder: str, shard: Sequence[Cut], dtype: str, name: str) -> Written:
    """A task: one shard of the store, out of part files."""
    tokens, lengths = [np.empty(0, dtype)], [np.zeros(1, np.uint64)]
    for cut in shard:
        arrays = open_part(Path(folder) / cut.file)
        tokens.append(arrays["tokens"][cut.begin : cut.end])
        lengths.append(arrays["lengths"][cut.first : cut.last])
    documents = np.cumsum(np.concatenate(lengths), dtype=np.uint64)
    return write_file(folder, name, {"tokens": np.concatenate(tokens), "documents": documents})
