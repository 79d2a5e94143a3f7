"""corpus -> tokens: builds the kind `tokens`, see ngramkit.formats.tokens.

Where a shard ends depends on its documents alone, never on batches or workers. A killed run finds
the finished shards and goes on behind the last one. Knows a corpus only as documents in a fixed
order.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.builders.executors import Executor, Task
from ngramkit.builders.stages import BASE_MEMORY, Apart, Stage, Written, require_shared, write_file
from ngramkit.corpus.decontamination import EvaluationTexts
from ngramkit.corpus.deduplication import DIGEST, Deduplicated, digest, sketch, sketched
from ngramkit.corpus.document import Corpus, Document, Position
from ngramkit.corpus.encoding import Encoder, Packed, encode_documents, open_encoder, use_cores
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.errors import InputError
from ngramkit.formats.artifact import Layout, require, require_layout, token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.manifest import build_id
from ngramkit.formats.outputs import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import SCRATCH, ArtifactWriter, already_built
from ngramkit.progress import SILENT, Reporter
from ngramkit.text import many

SHARD_TOKENS = 1 << 24


def build_tokens(
    corpus: AnyCorpus,
    model: str | TextTokenizer,
    out: str | Path | None = None,
    *,
    eos: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    shard_tokens: int = SHARD_TOKENS,
    reporter: Reporter = SILENT,
    force: bool = False,
) -> TokenStore:
    """Tokenises `corpus` with the tokenizer of `model` into `out` (default: `default_path`).

    `model` is a name, or its tokenizer.

    A store of the same plan is opened as it is. `eos` ends every document with the tokenizer's
    EOS, if it has one; `workers` bounds the encoding threads (default: every core). Where the
    tasks of `executor` share no memory, each encodes a part of the corpus
    (`builders.tokens`); the bytes are the same. A shard ends with the document that fills
    `shard_tokens`. Raises InputError where the corpus gives no document, or none with text.
    """
    tokenizer = load_tokenizer(model) if isinstance(model, str) else model
    plan = tokens_plan(corpus, tokenizer, eos=eos, shard_tokens=shard_tokens)
    path = Path(out or default_path(tokenizer.record.id, plan))
    if already_built(path, plan):
        reporter.note(f"up to date: {path}")
        return TokenStore.open(path)
    read = corpus.places
    with ArtifactWriter(path, TokenStore.kind, plan, inputs=read, force=force) as writer:
        if executor is None or executor.local:
            use_cores(workers)
            cutter = ShardCutter(writer, token_dtype(tokenizer.record.vocabulary), shard_tokens)
            _fill(cutter, corpus, tokenizer, eos, reporter)
            counts, found = cutter.counts, cutter.licenses
        else:
            apart = Apart(writer, executor, reporter)
            counts, found = tokenize_apart(corpus, tokenizer, eos, shard_tokens, apart)
        if not counts["documents"]:
            raise _empty(corpus)
        if counts["tokens"] == counts["documents"] * (eos and tokenizer.record.eos is not None):
            raise InputError(
                f"{corpus.id} gives no text: its {many(counts['documents'], 'document')} are empty",
                "choose another column",
                option="column",
            )
        licenses = {"licenses": dict(sorted(found.items()))} if found else {}
        writer.commit(
            tokenizer.record,
            parameters=plan["parameters"],
            corpus={**plan["corpus"], **licenses, **_left_out(corpus)},
            counts=counts,
        )
    return TokenStore.open(path)


def _left_out(corpus: AnyCorpus) -> dict[str, Any]:
    """How many documents a deduplicated corpus left out, and why."""
    return {"left_out": dict(corpus.left_out)} if isinstance(corpus, Deduplicated) else {}


def tokens_plan(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    *,
    eos: bool = True,
    shard_tokens: int = SHARD_TOKENS,
) -> dict[str, Any]:
    """Everything that decides a token store's bytes, its manifest included."""
    return {
        "kind": TokenStore.kind,
        "corpus": corpus.record(),
        "tokenizer": asdict(tokenizer.record),
        "parameters": {"eos": eos, "shard_tokens": shard_tokens},
    }


def default_path(model: str, plan: Mapping[str, Any]) -> Path:
    """artifacts/CORPUS-MODEL-tokens-XXXXXXXX, of a mixture CORPUS-CORPUS-...

    The digits are the plan's, so plans never collide."""
    return default_place(corpus_name(plan["corpus"]), model, "tokens", build_id(plan)[:8])


def _fill(
    cutter: ShardCutter,
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    eos: bool,
    reporter: Reporter,
) -> None:
    reporter.stage("tokenize", corpus.selection.limit, "documents")
    reporter.advance(cutter.position.kept, **cutter.counts)
    record = tokenizer.record
    encoder = open_encoder(tokenizer.backend, reporter)
    documents = corpus.documents(cutter.position)
    for packed in encode_documents(
        documents, encoder, record.vocabulary, record.eos if eos else None
    ):
        cutter.add(packed)
        reporter.advance(len(packed.documents), **cutter.counts)
    cutter.flush()


def _empty(corpus: AnyCorpus) -> InputError:
    return InputError(
        f"{corpus.id} gives no documents",
        "loosen sample, licenses, exclude, dedup or weights"
        if corpus.narrowed
        else "check corpus and split",
        option=("sample", "licenses", "exclude", "corpus", "split"),
    )


class ShardCutter:
    """Gathers packed documents and writes a shard whenever `shard_tokens` are full."""

    def __init__(self, writer: ArtifactWriter, dtype: npt.DTypeLike, shard_tokens: int) -> None:
        self._writer = writer
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._tokens: list[Array] = []
        self._lengths: list[Array] = []
        self._gathered = 0  # tokens
        self._shard = 0
        self.documents = 0
        self.tokens = 0
        self.licenses: Counter[str] = Counter()
        self.position = Position()
        self._resume()

    @property
    def counts(self) -> dict[str, int]:
        return {"documents": self.documents, "tokens": self.tokens}

    def _resume(self) -> None:
        # Files without a position were made out of parts (builders.tokens).
        while "position" in (facts := self._writer.finished(self._name) or {}):
            self.documents, self.tokens = facts["documents"], facts["tokens"]
            self.licenses = Counter(facts["licenses"])
            self.position = Position(**facts["position"])
            self._shard += 1

    @property
    def _name(self) -> str:
        return f"shard-{self._shard:05d}.safetensors"

    def add(self, packed: Packed) -> None:
        documents, tokens, lengths = packed
        while len(documents):
            ends = np.cumsum(lengths)
            room = self._shard_tokens - self._gathered
            n = min(int(np.searchsorted(ends, room)) + 1, len(documents))
            cut = int(ends[n - 1])
            self._take(documents[:n], tokens[:cut], lengths[:n])
            if self._gathered >= self._shard_tokens:
                self.flush()
            documents, tokens, lengths = documents[n:], tokens[cut:], lengths[n:]

    def _take(self, documents: Sequence[Document], tokens: Array, lengths: Array) -> None:
        self._tokens.append(tokens)
        self._lengths.append(lengths)
        self._gathered += len(tokens)
        self.documents += len(documents)
        self.tokens += len(tokens)
        self.position = documents[-1].end
        for document in documents:
            self.licenses.update(document.licenses)

    def flush(self) -> None:
        """Writes what is gathered, if anything, as one shard."""
        if not self._lengths:
            return
        lengths = np.concatenate(self._lengths)
        offsets = np.zeros(len(lengths) + 1, np.uint64)
        np.cumsum(lengths, out=offsets[1:])
        tokens = np.concatenate(self._tokens).astype(self._dtype, copy=False)
        self._writer.write(
            self._name,
            {"tokens": tokens, "documents": offsets},
            **self.counts,
            licenses=dict(self.licenses),
            position=self.position.to_json(),
        )
        self._tokens, self._lengths, self._gathered = [], [], 0
        self._shard += 1


# What the tasks of `builders.tokens` do: count documents, encode them, copy them to shards.
#
# A part file holds the ids of a part of a corpus one document after another (tokens, u16 or u32
# [n]) and how many each has (lengths, u64 [documents]).

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
        for packed in encode_documents(documents, encoder, ids.vocabulary, ids.ending):
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


# A corpus tokenised by tasks that share no memory, to the bytes that one machine writes.
#
# First each part of the corpus (a file, some row groups of a large one, a shard of a Hub dataset)
# becomes a file of ids and lengths, in any order. Their lengths say where shards end, as in
# `builders.tokens`: with the document that fills them. Then each shard is copied out of the parts
# that it spans. A sample is drawn by the index of a document in its corpus, so then the documents
# of every part are counted first. A limit counts documents that are kept: parts are begun in order
# until it is reached. Of a deduplicated corpus, which documents are kept is found first
# (`token_sifting`).

TOKENIZER = "tokenizer.safetensors"


def tokenize_apart(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    eos: bool,
    shard_tokens: int,
    apart: Apart,
) -> tuple[dict[str, int], Counter[str]]:
    """Writes all shards; returns the store's counts, and how many documents have each licence."""
    record = tokenizer.record
    text = np.frombuffer(tokenizer.backend.to_str().encode(), np.uint8)
    apart.writer.write(TOKENIZER, {"json": text}, **{SCRATCH: record.fingerprint})
    where = str(apart.writer.partial.absolute() / TOKENIZER)
    ids = Ids(where, record.fingerprint, record.vocabulary, record.eos if eos else None)
    limit = corpus.selection.limit
    if isinstance(corpus, Deduplicated):
        parts = sift(corpus, list(_parts(corpus.corpus, apart)), apart)
        limit = None
    else:
        parts = list(_parts(corpus, apart))
    tasks = [_encoding(number, len(parts), part, limit, ids, apart)
             for number, part in enumerate(parts)]  # fmt: skip
    apart.run(Stage("tokenize", tasks, "parts", True, _Enough(tasks, limit, apart)))
    tasks = _within(tasks, limit, parts, ids, apart)

    shards = list(cuts([(task.file, _lengths(apart, task)) for task in tasks], shard_tokens))
    dtype = token_dtype(record.vocabulary)
    copying = []
    for number, shard in enumerate(shards):
        name = f"shard-{number:05d}.safetensors"
        title = f"tokens {number + 1} of {len(shards)}, {apart.writer.path.name}"
        size = sum(cut.end - cut.begin for cut in shard)
        need = BASE_MEMORY + size * (2 * dtype.itemsize + 1)
        given = (apart.folder, shard, dtype.str, name)
        copying.append(Task(title, name, copy_shard, given, need, size))
    apart.run(Stage("token shards", copying))
    facts = [apart.facts(task.file) for task in tasks]
    licenses = Counter[str]()
    for each in facts:
        licenses.update(each["licenses"])
    counts = {name: sum(each[name] for each in facts) for name in ("documents", "tokens")}
    return counts, licenses


def _parts(corpus: Corpus | Mixture, apart: Apart) -> Iterator[Part]:
    """In order; where documents are sampled, once those of every part before are counted."""
    before = 0
    for one in corpus.corpora if isinstance(corpus, Mixture) else [corpus]:
        alone = list(one.pieces())
        firsts = [0] * len(alone)
        if one.selection.share != 1.0:
            counting = []
            for number, part in enumerate(alone, before):
                name = f"rows-{number:05d}.safetensors"
                title = f"documents of part {number + 1}, {apart.writer.path.name}"
                given = (part, apart.folder, name)
                counting.append(Task(title, name, count_part, given, MEMORY, 1, (number,)))
            apart.run(Stage("counting documents", counting, "parts", True))
            found = [apart.facts(task.file)["documents"] for task in counting]
            firsts = np.cumsum([0, *found])[:-1].tolist()
        before += len(alone)
        yield from map(Part, alone, firsts)


def _encoding(
    number: int, parts: int, part: Part, limit: int | None, ids: Ids, apart: Apart
) -> Task[Written]:
    name = f"part-{number:05d}.safetensors"
    title = f"tokenize part {number + 1} of {parts}, {apart.writer.path.name}"
    kept = apart.facts(part.kept).get(SCRATCH)
    key = (number, part.first, limit, kept)
    return Task(title, name, encode_part, (part, limit, ids, apart.folder, name), MEMORY, 1, key)


class _Enough:
    """Whether the parts up to the first that is missing hold `limit` documents."""

    def __init__(self, tasks: Sequence[Task[Written]], limit: int | None, apart: Apart) -> None:
        self._left = iter(tasks)
        self._next = next(self._left, None)
        self._limit = limit
        self._apart = apart
        self._documents = 0

    def __call__(self) -> bool:
        if self._limit is None:
            return False
        while self._next is not None and (facts := self._apart.facts(self._next.file)):
            self._documents += facts["documents"]
            self._next = next(self._left, None)
        return self._documents >= self._limit


def _within(
    tasks: list[Task[Written]], limit: int | None, parts: Sequence[Part], ids: Ids, apart: Apart
) -> list[Task[Written]]:
    """The parts that hold the first `limit` documents; the last is done anew, without the others'.

    Its licences could not be told apart otherwise."""
    before = 0
    for number, task in enumerate(tasks if limit is not None else []):
        assert limit is not None
        documents = apart.facts(task.file)["documents"]
        if before + documents == limit:
            return tasks[: number + 1]
        if before + documents > limit:
            last = _encoding(number, len(tasks), parts[number], limit - before, ids, apart)
            apart.run(Stage("the last part", [last], "parts", True))
            return [*tasks[:number], last]
        before += documents
    return tasks


def _lengths(apart: Apart, task: Task[Written]) -> Array:
    return open_part(apart.writer.partial / task.file)["lengths"]


def cuts(parts: Sequence[tuple[str, Array]], shard_tokens: int) -> Iterator[list[Cut]]:
    """For each shard what it takes of the part files, given the lengths of their documents.

    A shard ends with the document that fills it."""
    shard: list[Cut] = []
    room = shard_tokens
    for file, lengths in parts:
        ends = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
        first = 0
        while first < len(lengths):
            begin = int(ends[first])
            last = min(int(np.searchsorted(ends, begin + room)), len(lengths))
            end = int(ends[last])
            shard.append(Cut(file, first, last, begin, end))
            room -= end - begin
            first = last
            if room <= 0:
                yield shard
                shard, room = [], shard_tokens
    if shard:
        yield shard


# Which documents of a sifted corpus are kept, where tasks that share no memory read its parts.
#
# Each part is read once for what decides: whether a document holds a text of an evaluation set,
# its digest, with minhash its sketch. From these alone the process that runs the build decides,
# part after part in order (`corpus.deduplication`), and writes down for each part which of
# its documents are kept. Then parts are encoded, as those of any corpus.

MARKS: Layout = {
    "held": (("uint8",), 1),  # whether a document holds a text of an evaluation set
    "digests": (("uint8",), 2),
    "sketches": (("uint8",), 1),  # one behind another
    "ends": (("uint64",), 1),  # of each document's sketch
}
EVALUATION = "evaluation.safetensors"


def sift(corpus: Deduplicated, parts: Sequence[Part], apart: Apart) -> list[Part]:
    """The parts that hold what is kept, in order, each with the file that says what that is.

    `corpus.left_out` counts the other documents, up to the last that is kept.
    """
    texts = _put_down(corpus.evaluation, apart)
    rensa = version("rensa") if corpus.dedup == "minhash" else None
    tasks = []
    for number, part in enumerate(parts):
        name = f"marks-{number:05d}.safetensors"
        title = f"documents of part {number + 1} of {len(parts)}, {apart.writer.path.name}"
        given = (part, corpus.dedup, rensa, texts, apart.folder, name)
        key = (number, part.first)
        tasks.append(Task(title, name, mark_part, given, MEMORY, 1, key))
    choosing = _Choosing(corpus, tasks, apart)
    apart.run(Stage("choosing documents", tasks, "parts", True, choosing))
    choosing()
    files = choosing.files
    return [part._replace(kept=file) for part, file in zip(parts, files, strict=False)]


class Texts(NamedTuple):
    """The file with the texts of evaluation sets, and the checksum of the texts."""

    file: str
    sha256: str


def _put_down(evaluation: EvaluationTexts | None, apart: Apart) -> Texts | None:
    if evaluation is None:
        return None
    sha256 = evaluation.record()["sha256"]
    text = np.frombuffer(json.dumps(evaluation.texts).encode(), np.uint8)
    apart.writer.write(EVALUATION, {"json": text}, **{SCRATCH: sha256})
    return Texts(str(Path(apart.folder) / EVALUATION), sha256)


class _Choosing:
    """Decides, as far as parts have been read without a gap; says whether the limit is reached."""

    def __init__(self, corpus: Deduplicated, tasks: Sequence[Task[Written]], apart: Apart) -> None:
        self.files: list[str] = []  # of the parts that are decided
        self._deduplicator = corpus.deduplicator()
        self._tasks = tasks
        self._apart = apart

    def __call__(self) -> bool:
        while not self._deduplicator.full and len(self.files) < len(self._tasks):
            task = self._tasks[len(self.files)]
            if not self._apart.facts(task.file):
                break
            self._decide(task)
        return self._deduplicator.full

    def _decide(self, task: Task[Written]) -> None:
        marks = _Marks.read(self._apart.writer.partial / task.file)
        kept = np.zeros(len(marks.held), np.uint8)
        for row in range(len(kept)):
            if self._deduplicator.full:
                break
            digest_of, likeness = marks.digests[row].tobytes, partial(marks.sketch, row)
            kept[row] = self._deduplicator.keeps(bool(marks.held[row]), digest_of, likeness)
        name = task.file.replace("marks", KEPT)
        scratch = hashlib.sha256(kept.tobytes()).hexdigest()
        self._apart.writer.write(name, {KEPT: kept}, **{SCRATCH: scratch})
        self.files.append(name)


class _Marks(NamedTuple):
    """What is known of a part's documents, see MARKS."""

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
        """A rensa.RMinHash."""
        begin = int(self.ends[row - 1]) if row else 0
        return sketched(self.sketches[begin : int(self.ends[row])].tobytes())


def mark_part(
    part: Part, dedup: str | None, rensa: str | None, texts: Texts | None, folder: str, name: str
) -> Written:
    """A task: what is to be known of a part's documents. Sketches are gathered on the disk."""
    if rensa is not None:
        _require_rensa(rensa)
    evaluation = None if texts is None else _evaluation(texts)
    held, digests, ends = bytearray(), bytearray(), [0]
    with tempfile.TemporaryFile() as spool:
        for text in (document.text for document in documents_of(part, None)):
            held.append(evaluation is not None and evaluation.stand_in(text))
            digests += bytes(DIGEST) if dedup is None else digest(text)
            # What is left out in any case needs none.
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


@lru_cache(maxsize=2)
def _evaluation(texts: Texts) -> EvaluationTexts:
    """Once for each process, and for other texts in a file of that name."""
    text = open_arrays(require_shared(Path(texts.file)))["json"].tobytes()
    return EvaluationTexts(tuple(json.loads(text)))


def _require_rensa(wanted: str) -> None:
    try:
        found = version("rensa")
    except PackageNotFoundError:
        found = "none"
    if found != wanted:
        raise InputError(
            f"{platform.node()} has rensa {found}, the build was begun with {wanted}",
            f"pip install rensa=={wanted} on every node",
        )
