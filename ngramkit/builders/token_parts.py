"""Corpus to token store, by tasks that share no memory: the same bytes as on one machine.

1. Where documents are sampled by their index, a task for each part counts its documents. A part is
   a file, some row groups of a large one, or a shard of a Hub dataset.
2. Where duplicates or evaluation texts are left out, a task for each part writes what decides
   (`MARKS`); from these alone the process that runs the build decides, part after part in order,
   and writes for each part which of its documents are kept.
3. A task for each part writes the ids and lengths of its documents (`PART`). A limit counts kept
   documents: parts are begun in order until it is reached.
4. The lengths say where shards end. A task for each shard copies it out of the parts it spans.

One machine does without files of parts (`ngramkit.builders.tokens`): by parts it would take twice
the processor time, and four times as much for a sample of a tenth.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngramkit.builders.executors import Task
from ngramkit.builders.stages import (
    BASE_MEMORY,
    Stage,
    StageRunner,
    Written,
    require_shared,
    write_file,
)
from ngramkit.corpus.decontamination import EvaluationTexts
from ngramkit.corpus.deduplication import DIGEST, Deduplicated, digest, sketch, sketched
from ngramkit.corpus.document import Corpus, Document, Position
from ngramkit.corpus.encoding import Encoder, encode_documents, open_encoder, use_cores
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import InputError
from ngramkit.formats.artifact import Layout, require, require_layout, token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.writer import SCRATCH
from ngramkit.progress import Reporter

MEMORY = BASE_MEMORY + (1 << 30)  # bytes of a task: a tokenizer, batches of text, and their ids
TOKENIZER = "tokenizer.safetensors"
EVALUATION = "evaluation.safetensors"
KEPT = "kept"  # u8 [documents], of a part: 1 for those that are kept
# The ids of a part, one document after another, and how many each document has.
PART: Layout = {"tokens": (("uint16", "uint32"), 1), "lengths": (("uint64",), 1)}
# What decides which of a part's documents are kept.
MARKS: Layout = {
    "held": (("uint8",), 1),  # 1 for a document that holds a text of an evaluation set
    "digests": (("uint8",), 2),  # [documents, DIGEST]
    "sketches": (("uint8",), 1),  # MinHashes, one after another
    "ends": (("uint64",), 1),  # of each document's sketch
}


class Encoding(NamedTuple):
    """The encoding of text: a tokenizer's file, fingerprint and size, and the end of a document."""

    tokenizer: str
    fingerprint: str
    vocabulary: int
    ending: int | None  # an id


class Part(NamedTuple):
    """A part of a corpus, on its own, and the index of its first document.

    `kept` is the build's file that says which of its documents are kept, where the corpus itself
    does not.
    """

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


def encode_parts(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    eos: bool,
    shard_tokens: int,
    stages: StageRunner,
) -> tuple[dict[str, int], Counter[str]]:
    """Write all shards; return the store's counts and how many documents have each licence."""
    record = tokenizer.record
    text = np.frombuffer(tokenizer.backend.to_str().encode(), np.uint8)
    stages.writer.write(TOKENIZER, {"json": text}, **{SCRATCH: record.fingerprint})
    file = str(Path(stages.folder) / TOKENIZER)
    ending = record.eos if eos else None
    encoding = Encoding(file, record.fingerprint, record.vocabulary, ending)
    limit = corpus.selection.limit
    if isinstance(corpus, Deduplicated):
        parts = choose_documents(corpus, list(_parts(corpus.corpus, stages)), stages)
        limit = None
    else:
        parts = list(_parts(corpus, stages))
    tasks = [_encoding_task(number, len(parts), part, limit, encoding, stages)
             for number, part in enumerate(parts)]  # fmt: skip
    stages.run(Stage("tokenize", tasks, "parts", True, _Enough(tasks, limit, stages)))
    if limit is not None:
        tasks = _within_limit(tasks, limit, parts, encoding, stages)

    lengths = [(task.file, open_part(stages.writer.partial / task.file)["lengths"])
               for task in tasks]  # fmt: skip
    shards = list(cuts(lengths, shard_tokens))
    dtype = token_dtype(record.vocabulary)
    copying = []
    for number, shard in enumerate(shards):
        name = f"shard-{number:05d}.safetensors"
        title = f"tokens {number + 1} of {len(shards)}, {stages.writer.path.name}"
        size = sum(cut.end - cut.begin for cut in shard)
        memory = BASE_MEMORY + size * (2 * dtype.itemsize + 1)
        given = (stages.folder, shard, dtype.str, name)
        copying.append(Task(title, name, copy_shard, given, memory, size))
    stages.run(Stage("token shards", copying))
    facts = [stages.facts(task.file) for task in tasks]
    licenses = Counter[str]()
    for each in facts:
        licenses.update(each["licenses"])
    counts = {name: sum(each[name] for each in facts) for name in ("documents", "tokens")}
    return counts, licenses


def cuts(parts: Sequence[tuple[str, Array]], shard_tokens: int) -> Iterator[list[Cut]]:
    """Yield what each shard takes of the part files, given the lengths of their documents."""
    shard: list[Cut] = []
    room = shard_tokens
    for file, lengths in parts:
        ends = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
        first = 0
        while first < len(lengths):
            begin = int(ends[first])
            last = first + filling(ends[first + 1 :], begin + room)
            end = int(ends[last])
            shard.append(Cut(file, first, last, begin, end))
            room -= end - begin
            first = last
            if room <= 0:
                yield shard
                shard, room = [], shard_tokens
    if shard:
        yield shard


def filling(ends: Array, room: int) -> int:
    """Return how many documents, which end at `ends`, go into a shard with `room` tokens left.

    The last of them is the one that fills the room.
    """
    return min(int(np.searchsorted(ends, room)) + 1, len(ends))


def _parts(corpus: Corpus | Mixture, stages: StageRunner) -> Iterator[Part]:
    """Yield the parts in order; where documents are sampled, count those of every part first."""
    before = 0
    for one in corpus.corpora if isinstance(corpus, Mixture) else [corpus]:
        pieces = list(one.pieces())
        firsts = [0] * len(pieces)
        if one.selection.share != 1.0:
            counting = []
            for number, piece in enumerate(pieces, before):
                name = f"rows-{number:05d}.safetensors"
                title = f"documents of part {number + 1}, {stages.writer.path.name}"
                given = (piece, stages.folder, name)
                counting.append(Task(title, name, count_part, given, MEMORY, 1, (number,)))
            stages.run(Stage("counting documents", counting, "parts", True))
            counts = [stages.facts(task.file)["documents"] for task in counting]
            firsts = np.cumsum([0, *counts])[:-1].tolist()
        before += len(pieces)
        yield from map(Part, pieces, firsts)


def _encoding_task(
    number: int,
    parts: int,
    part: Part,
    limit: int | None,
    encoding: Encoding,
    stages: StageRunner,
) -> Task[Written]:
    name = f"part-{number:05d}.safetensors"
    title = f"tokenize part {number + 1} of {parts}, {stages.writer.path.name}"
    kept = stages.facts(part.kept).get(SCRATCH)
    key = (number, part.first, limit, kept)
    given = (part, limit, encoding, stages.folder, name)
    return Task(title, name, encode_part, given, MEMORY, 1, key)


class _Enough:
    """A test whether the parts before the first missing one hold `limit` documents."""

    def __init__(
        self, tasks: Sequence[Task[Written]], limit: int | None, stages: StageRunner
    ) -> None:
        self._waiting = iter(tasks)
        self._next = next(self._waiting, None)
        self._limit = limit
        self._stages = stages
        self._documents = 0

    def __call__(self) -> bool:
        if self._limit is None:
            return False
        while self._next is not None and (facts := self._stages.facts(self._next.file)):
            self._documents += facts["documents"]
            self._next = next(self._waiting, None)
        return self._documents >= self._limit


def _within_limit(
    tasks: list[Task[Written]],
    limit: int,
    parts: Sequence[Part],
    encoding: Encoding,
    stages: StageRunner,
) -> list[Task[Written]]:
    """Return the tasks of the parts that hold the first `limit` documents.

    The last part is encoded again without the documents behind the limit: their licences could not
    be subtracted otherwise.
    """
    before = 0
    for number, task in enumerate(tasks):
        documents = stages.facts(task.file)["documents"]
        if before + documents == limit:
            return tasks[: number + 1]
        if before + documents > limit:
            rest = limit - before
            last = _encoding_task(number, len(tasks), parts[number], rest, encoding, stages)
            stages.run(Stage("the last part", [last], "parts", True))
            return [*tasks[:number], last]
        before += documents
    return tasks


# Which documents are kept of a corpus without duplicates or evaluation texts.


def choose_documents(
    corpus: Deduplicated, parts: Sequence[Part], stages: StageRunner
) -> list[Part]:
    """Return the parts that hold kept documents, in order, each with the file that names them.

    `corpus.left_out` counts the other documents, up to the last that is kept.
    """
    texts = _write_texts(corpus.evaluation, stages)
    rensa = version("rensa") if corpus.dedup == "minhash" else None
    tasks = []
    for number, part in enumerate(parts):
        name = f"marks-{number:05d}.safetensors"
        title = f"documents of part {number + 1} of {len(parts)}, {stages.writer.path.name}"
        given = (part, corpus.dedup, rensa, texts, stages.folder, name)
        key = (number, part.first)
        tasks.append(Task(title, name, mark_part, given, MEMORY, 1, key))
    choice = _Choice(corpus, tasks, stages)
    stages.run(Stage("choosing documents", tasks, "parts", True, choice))
    choice()
    return [part._replace(kept=file) for part, file in zip(parts, choice.files, strict=False)]


class Texts(NamedTuple):
    """The file with the texts of evaluation sets, and the checksum of the texts."""

    file: str
    sha256: str


def _write_texts(evaluation: EvaluationTexts | None, stages: StageRunner) -> Texts | None:
    if evaluation is None:
        return None
    sha256 = evaluation.record()["sha256"]
    text = np.frombuffer(json.dumps(evaluation.texts).encode(), np.uint8)
    stages.writer.write(EVALUATION, {"json": text}, **{SCRATCH: sha256})
    return Texts(str(Path(stages.folder) / EVALUATION), sha256)


class _Choice:
    """A decision, as far as parts are marked without a gap; a call returns whether it is over."""

    def __init__(
        self, corpus: Deduplicated, tasks: Sequence[Task[Written]], stages: StageRunner
    ) -> None:
        self.files: list[str] = []  # of the parts that are decided
        self._deduplicator = corpus.deduplicator()
        self._tasks = tasks
        self._stages = stages

    def __call__(self) -> bool:
        while not self._deduplicator.full and len(self.files) < len(self._tasks):
            task = self._tasks[len(self.files)]
            if not self._stages.facts(task.file):
                break
            self._decide(task)
        return self._deduplicator.full

    def _decide(self, task: Task[Written]) -> None:
        marks = _Marks.read(self._stages.writer.partial / task.file)
        kept = np.zeros(len(marks.held), np.uint8)
        for row in range(len(kept)):
            if self._deduplicator.full:
                break
            digest_of, likeness = marks.digests[row].tobytes, partial(marks.sketch, row)
            kept[row] = self._deduplicator.keeps(bool(marks.held[row]), digest_of, likeness)
        name = task.file.replace("marks", KEPT)
        scratch = hashlib.sha256(kept.tobytes()).hexdigest()
        self._stages.writer.write(name, {KEPT: kept}, **{SCRATCH: scratch})
        self.files.append(name)


class _Marks(NamedTuple):
    """The arrays of a marks file, see MARKS."""

    held: Array
    digests: Array
    sketches: Array
    ends: Array

    @classmethod
    def read(cls, path: Path) -> _Marks:
        arrays = open_arrays(require_shared(path))
        require_layout(path, arrays, MARKS)
        marks = cls(**arrays)
        documents = len(marks.held)
        fit = marks.digests.shape == (documents, DIGEST) and len(marks.ends) == documents
        require(fit, path, "its arrays do not fit each other")
        return marks

    def sketch(self, row: int) -> Any:
        """Return a document's sketch as a rensa.RMinHash."""
        begin = int(self.ends[row - 1]) if row else 0
        return sketched(self.sketches[begin : int(self.ends[row])].tobytes())


# Tasks, each of which writes the file `name` in `folder`.


def count_part(part: Corpus, folder: str, name: str) -> Written:
    """Count the documents of a part, kept or not."""
    _require_places(part)
    documents = getattr(part.source, "counted", lambda: None)()
    if documents is None:
        documents = sum(len(row.texts) for row in part.source.rows(0))
    arrays = {"documents": np.array([documents], np.uint64)}
    return write_file(folder, name, arrays, documents=documents)


def mark_part(
    part: Part, dedup: str | None, rensa: str | None, texts: Texts | None, folder: str, name: str
) -> Written:
    """Write the marks of a part's documents. Sketches are gathered on the disk."""
    if rensa is not None:
        _require_rensa(rensa)
    evaluation = None if texts is None else _evaluation(texts)
    held, digests, ends = bytearray(), bytearray(), [0]
    with tempfile.TemporaryFile() as spool:
        for text in (document.text for document in documents_of(part, None)):
            held.append(evaluation is not None and evaluation.stand_in(text))
            digests += bytes(DIGEST) if dedup is None else digest(text)
            # A document that is left out in any case needs no sketch.
            state = sketch(text) if dedup == "minhash" and not held[-1] else b""
            spool.write(state)
            ends.append(ends[-1] + len(state))
        spool.flush()
        sketches = np.memmap(spool, np.uint8, "r") if ends[-1] else np.empty(0, np.uint8)
        arrays = {
            "held": np.frombuffer(held, np.uint8),
            "digests": np.frombuffer(digests, np.uint8).reshape(-1, DIGEST),
            "sketches": sketches,
            "ends": np.array(ends[1:], np.uint64),
        }
        return write_file(folder, name, arrays, documents=len(held))


def encode_part(
    part: Part, limit: int | None, encoding: Encoding, folder: str, name: str
) -> Written:
    """Write the ids and lengths of a part's kept documents, `limit` at most.

    Ids are gathered on the disk, so that the part may be of any size.
    """
    encoder, notes = _encoder(encoding.tokenizer, encoding.fingerprint)
    lengths, licenses = [np.empty(0, np.int64)], Counter[str]()
    dtype, count = token_dtype(encoding.vocabulary), 0
    with tempfile.TemporaryFile() as spool:
        documents = documents_of(part, limit)
        if part.kept:
            documents = _kept(documents, Path(folder) / part.kept)
        for packed in encode_documents(documents, encoder, encoding.vocabulary, encoding.ending):
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
    return written._replace(notes=notes.take())


def copy_shard(folder: str, shard: Sequence[Cut], dtype: str, name: str) -> Written:
    """Write one shard of the store out of part files."""
    tokens, lengths = [np.empty(0, dtype)], [np.zeros(1, np.uint64)]
    for cut in shard:
        arrays = open_part(Path(folder) / cut.file)
        tokens.append(arrays["tokens"][cut.begin : cut.end])
        lengths.append(arrays["lengths"][cut.first : cut.last])
    documents = np.cumsum(np.concatenate(lengths), dtype=np.uint64)
    return write_file(folder, name, {"tokens": np.concatenate(tokens), "documents": documents})


def documents_of(part: Part, limit: int | None) -> Iterator[Document]:
    """Return the documents of a part that its corpus selects, `limit` at most."""
    _require_places(part.corpus)
    bounded = replace(part.corpus, selection=replace(part.corpus.selection, limit=limit))
    return bounded.documents(Position(first=part.first, number=part.first))


def open_part(path: Path) -> dict[str, Array]:
    """Return a part file's arrays, as memory maps."""
    arrays = open_arrays(require_shared(path))
    require_layout(path, arrays, PART)
    return arrays


def _kept(documents: Iterable[Document], path: Path) -> Iterator[Document]:
    kept = open_arrays(require_shared(path))[KEPT]
    return (document for document, keep in zip(documents, kept, strict=True) if keep)


class _Notes(Reporter):
    """Notes for the user, collected in a task."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def note(self, text: str) -> None:
        self._lines.append(text)

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


@lru_cache(maxsize=2)
def _encoder(tokenizer: str, fingerprint: str) -> tuple[Encoder, _Notes]:
    """Return this process's encoder, which proves gigatoken once for all of its parts.

    The fingerprint tells the tokenizers of several builds in one place apart.
    """
    from tokenizers import Tokenizer

    use_cores(1)
    text = open_arrays(require_shared(Path(tokenizer)))["json"]
    notes = _Notes()
    return open_encoder(Tokenizer.from_str(text.tobytes().decode()), notes), notes


@lru_cache(maxsize=2)
def _evaluation(texts: Texts) -> EvaluationTexts:
    text = open_arrays(require_shared(Path(texts.file)))["json"].tobytes()
    return EvaluationTexts(tuple(json.loads(text)))


def _require_places(part: Corpus) -> None:
    for place in part.places:
        require_shared(place)


def _require_rensa(wanted: str) -> None:
    try:
        installed = version("rensa")
    except PackageNotFoundError:
        installed = "none"
    if installed != wanted:
        raise InputError(
            f"{platform.node()} has rensa {installed}, the build was begun with {wanted}",
            f"pip install rensa=={wanted} on every node",
        )
