"""Encode the parts of a corpus (files, row groups, shards of the Hub) in tasks.

Tasks write their documents (`PART`), and marks for exclusion (`MARKS`). The build's process reads
the parts in order, excludes documents, and starts no part after the limit.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.machine import version_of
from ngramkit.basics.progress import SILENT
from ngramkit.builders.tasks import (
    BASE_MEMORY,
    StageRunner,
    WrittenFile,
    require_shared,
    write_file,
)
from ngramkit.corpus.decontamination import EvaluationTexts
from ngramkit.corpus.deduplication import (
    DIGEST_BYTES,
    Deduplicated,
    Deduplicator,
    digest_of_text,
    minhash_sketch,
    parse_sketch,
)
from ngramkit.corpus.document import BEGINNING, Corpus, Counts, Document, Position
from ngramkit.corpus.encoding import EncodedBatch, Encoder, encode_documents, use_cores
from ngramkit.corpus.gigatoken import ComparedEncoder
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import Layout, require_layout, token_dtype
from ngramkit.formats.resumable_writer import SCRATCH
from ngramkit.formats.safetensors import Array, open_arrays

TASK_MEMORY = BASE_MEMORY + (1 << 30)  # bytes of a task with a tokenizer and batches of text
TOKENIZER = "tokenizer.safetensors"
EVALUATION = "evaluation.safetensors"
BATCH_DOCUMENTS = 4096  # documents read from a part at a time
# Per document: ids, their number, an index of licences, and the Counts before it.
PART: Layout = {
    "tokens": (("uint16", "uint32"), 1),
    "lengths": (("uint64",), 1),
    "licenses": (("uint32",), 1),
    "counts": (("uint64",), 2),
}
# The marks that decide which documents are kept.
MARKS: Layout = {
    "evaluated": (("uint8",), 1),  # 1 if it contains a text of an evaluation set
    "digests": (("uint8",), 2),  # [documents, DIGEST_BYTES]
    "sketches": (("uint8",), 1),  # MinHashes, one after another
    "ends": (("uint64",), 1),  # of each document's sketch
}


class Encoding(NamedTuple):
    tokenizer: str
    fingerprint: str
    vocabulary: int
    ending: int | None
    encode_special_tokens: bool  # a setting that tokenizers does not serialize


class Marking(NamedTuple):
    dedup: str | None
    rensa: str | None  # the version with which the build started
    texts: str | None
    sha256: str | None  # of the texts


class Part(NamedTuple):
    """A part, its first document's index, and how many to encode."""

    corpus: Corpus
    first: int
    limit: int | None


def encode_parts(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    ending: int | None,
    stages: StageRunner,
    skipped: int = 0,
) -> Iterator[EncodedBatch]:
    """Yield the documents after the first `skipped`; only their licences are set."""
    record = tokenizer.record
    corpus.skipped.begin(BEGINNING)
    text = np.frombuffer(tokenizer.backend.to_str().encode(), np.uint8)
    stages.writer.write(TOKENIZER, {"json": text}, **{SCRATCH: record.fingerprint})
    file = str(Path(stages.folder) / TOKENIZER)
    encoding = Encoding(
        file,
        record.fingerprint,
        record.vocabulary,
        ending,
        tokenizer.backend.encode_special_tokens,
    )
    if isinstance(corpus, Deduplicated):
        deduplicator, marking = corpus.deduplicator(), _marking_of(corpus, stages)
        parts = list(_split_corpus(corpus.corpus, None, stages))
    else:
        limit = corpus.selection.limit
        deduplicator, marking = Deduplicator(None, limit, Counter()), None
        parts = list(_split_corpus(corpus, limit, stages))
    tasks = [
        stages.task(
            f"tokenize part {number + 1} of {len(parts)}",
            f"part-{number:05d}",
            encode_part,
            (part, encoding, marking),
            memory=TASK_MEMORY,
            key=(number, part.first, part.limit, marking, *PART),
        )
        for number, part in enumerate(parts)
    ]
    with closing(stages.run("tokenize", tasks, "parts", scratch=True)) as finished:
        for task in finished:
            facts = stages.facts(task.file)
            encoded = EncodedPart.read(stages.writer.partial / task.file, facts, marking)
            decided = yield from encoded.keep(deduplicator, skipped)
            counts = Counts(*facts["counts"])
            if deduplicator.full:  # what follows the last document does not count
                counts = Counts(*encoded.arrays["counts"][decided - 1].tolist())
            if counts.bad:
                corpus.skipped.first = corpus.skipped.first or facts["first_bad"]
            before = corpus.skipped.counts
            corpus.skipped.counts = Counts(*map(sum, zip(before, counts, strict=True)))
            if deduplicator.full:
                return


def _split_corpus(
    corpus: Corpus | Mixture, limit: int | None, stages: StageRunner
) -> Iterator[Part]:
    before = 0
    for source in corpus.corpora if isinstance(corpus, Mixture) else [corpus]:
        pieces = list(source.pieces())
        firsts = [0] * len(pieces)
        if source.selection.share != 1.0:
            tasks = [
                stages.task(
                    f"documents of part {number + 1}",
                    f"rows-{number:05d}",
                    count_part,
                    (piece,),
                    memory=TASK_MEMORY,
                    key=(number,),
                )
                for number, piece in enumerate(pieces, before)
            ]
            counted = stages.run("counting documents", tasks, "parts", scratch=True)
            counts = [stages.facts(task.file)["documents"] for task in counted]
            firsts = np.cumsum([0, *counts])[:-1].tolist()
        before += len(pieces)
        for piece, first in zip(pieces, firsts, strict=True):
            yield Part(piece, first, limit)


def _marking_of(corpus: Deduplicated, stages: StageRunner) -> Marking:
    rensa = version_of("rensa") if corpus.dedup == "minhash" else None
    if corpus.evaluation is None:
        return Marking(corpus.dedup, rensa, None, None)
    sha256 = corpus.evaluation.record()["sha256"]
    text = np.frombuffer(json.dumps(corpus.evaluation.texts).encode(), np.uint8)
    stages.writer.write(EVALUATION, {"json": text}, **{SCRATCH: sha256})
    return Marking(corpus.dedup, rensa, str(Path(stages.folder) / EVALUATION), sha256)


class EncodedPart(NamedTuple):
    arrays: Mapping[str, Array]  # of PART, and if documents may be excluded, of MARKS
    licenses: list[list[str]]

    @classmethod
    def read(cls, path: Path, facts: Mapping[str, Any], marking: Marking | None) -> EncodedPart:
        arrays = open_arrays(require_shared(path))
        require_layout(path, arrays, PART if marking is None else {**PART, **MARKS})
        return cls(arrays, facts["licenses"])

    def keep(self, deduplicator: Deduplicator, skipped: int) -> Generator[EncodedBatch, None, int]:
        """Yield kept documents after the first `skipped`; return how many were decided."""
        kinds = [Document("", tuple(names), "") for names in self.licenses]
        lengths = self.arrays["lengths"].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        decided = 0
        for begin in range(0, len(lengths), BATCH_DOCUMENTS):
            end = min(begin + BATCH_DOCUMENTS, len(lengths))
            wanted = np.zeros(end - begin, bool)
            for row in range(begin, end):
                if deduplicator.full:
                    break
                decided = row + 1
                if self._keeps(deduplicator, row) and deduplicator.kept > skipped:
                    wanted[row - begin] = True
            if wanted.any():
                tokens = self.arrays["tokens"][ends[begin] : ends[end]]
                if not wanted.all():
                    tokens = tokens[np.repeat(wanted, lengths[begin:end])]
                numbers = self.arrays["licenses"][begin:end][wanted].tolist()
                documents = [kinds[number] for number in numbers]
                yield EncodedBatch(documents, tokens, lengths[begin:end][wanted])
        return decided

    def _keeps(self, deduplicator: Deduplicator, row: int) -> bool:
        if "digests" not in self.arrays:
            return deduplicator.keeps(False, bytes, bytes)
        digest_of_row = self.arrays["digests"][row].tobytes

        def sketch_of_row() -> Any:
            ends = self.arrays["ends"]
            begin = int(ends[row - 1]) if row else 0
            return parse_sketch(self.arrays["sketches"][begin : int(ends[row])].tobytes())

        evaluated = bool(self.arrays["evaluated"][row])
        return deduplicator.keeps(evaluated, digest_of_row, sketch_of_row)


# Tasks. Each writes the file `name` in `folder`.


def count_part(part: Corpus, folder: str, name: str) -> WrittenFile:
    for place in part.places:
        require_shared(place)
    documents = part.source.count()
    if documents is None:
        documents = sum(len(row.texts) for row in part.source.rows(0))
    arrays = {"documents": np.array([documents], np.uint64)}
    return write_file(folder, name, arrays, documents=documents)


def encode_part(
    part: Part, encoding: Encoding, marking: Marking | None, folder: str, name: str
) -> WrittenFile:
    """Write a part's arrays, collected on disk to bound memory."""
    for place in part.corpus.places:
        require_shared(place)
    encoder = _cached_encoder(encoding)
    selection = replace(part.corpus.selection, limit=part.limit)
    corpus = replace(part.corpus, selection=selection)
    documents = corpus.documents(Position(first=part.first, number=part.first))
    lengths, dtype = [np.empty(0, np.int64)], token_dtype(encoding.vocabulary)
    licenses: dict[tuple[str, ...], int] = {}
    numbers: list[int] = []  # of each document's licences
    counts: list[Counts] = []  # before each document
    with tempfile.TemporaryFile() as ids, tempfile.TemporaryFile() as sketches:
        marks = None if marking is None else _Marks(marking, sketches)
        for packed in encode_documents(documents, encoder, encoding.vocabulary, encoding.ending):
            ids.write(np.ascontiguousarray(packed.tokens, dtype).data)
            lengths.append(packed.lengths)
            for document in packed.documents:
                numbers.append(licenses.setdefault(document.licenses, len(licenses)))
                counts.append(document.end.counts)
                if marks is not None:
                    marks.add(document.text)
        tokens = _map_file(ids, dtype)
        arrays = {
            "tokens": tokens,
            "lengths": np.concatenate(lengths).astype(np.uint64),
            "licenses": np.array(numbers, np.uint32),
            "counts": np.array(counts, np.uint64).reshape(-1, len(Counts._fields)),
            **({} if marks is None else marks.arrays()),
        }
        facts = {
            "tokens": len(tokens),
            "licenses": list(licenses),
            "counts": corpus.skipped.counts,
            "first_bad": corpus.skipped.first,
        }
        return write_file(folder, name, arrays, **facts)


class _Marks:
    def __init__(self, marking: Marking, sketches: IO[bytes]) -> None:
        if marking.rensa is not None:
            _require_rensa(marking.rensa)
        self._dedup = marking.dedup
        self._evaluation = _cached_evaluation(marking.texts, marking.sha256)
        self._sketches = sketches
        self._evaluated, self._digests, self._ends = bytearray(), bytearray(), [0]

    def add(self, text: str) -> None:
        evaluated = self._evaluation is not None and self._evaluation.occur_in(text)
        self._evaluated.append(evaluated)
        self._digests += bytes(DIGEST_BYTES) if self._dedup is None else digest_of_text(text)
        # An excluded document needs no sketch.
        state = minhash_sketch(text) if self._dedup == "minhash" and not evaluated else b""
        self._sketches.write(state)
        self._ends.append(self._ends[-1] + len(state))

    def arrays(self) -> dict[str, Array]:
        return {
            "evaluated": np.frombuffer(self._evaluated, np.uint8),
            "digests": np.frombuffer(self._digests, np.uint8).reshape(-1, DIGEST_BYTES),
            "sketches": _map_file(self._sketches, np.dtype(np.uint8)),
            "ends": np.array(self._ends[1:], np.uint64),
        }


def _map_file(file: IO[bytes], dtype: np.dtype[Any]) -> Array:
    file.flush()
    return np.memmap(file, dtype, "r") if file.tell() else np.empty(0, dtype)


@lru_cache(maxsize=2)
def _cached_encoder(encoding: Encoding) -> Encoder:
    """Cache by the whole encoding: builds may share a file name."""
    from tokenizers import Tokenizer

    use_cores(1)
    text = open_arrays(require_shared(Path(encoding.tokenizer)))["json"]
    backend = Tokenizer.from_str(text.tobytes().decode())
    backend.encode_special_tokens = encoding.encode_special_tokens
    return ComparedEncoder(backend, SILENT)


@lru_cache(maxsize=2)
def _cached_evaluation(texts: str | None, sha256: str | None) -> EvaluationTexts | None:
    """Cache by `sha256` too."""
    if texts is None:
        return None
    text = open_arrays(require_shared(Path(texts)))["json"].tobytes()
    return EvaluationTexts(tuple(json.loads(text)))


def _require_rensa(wanted: str) -> None:
    installed = version_of("rensa") or "none"
    if installed != wanted:
        raise InputError(
            f"rensa must be {wanted} on {platform.node()}, as on the first node, got {installed}",
            f"Run pip install rensa=={wanted} on every node",
        )
