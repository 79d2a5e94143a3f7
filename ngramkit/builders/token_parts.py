"""A corpus tokenised by tasks that share no memory, to the bytes that one machine writes.

First each part of the corpus (a file, some row groups of a large one, a shard of a Hub dataset)
becomes a file of ids and lengths, in any order. Their lengths say where shards end, as in
`builders.tokens`: with the document that fills them. Then each shard is copied out of the parts
that it spans. A sample is drawn by the index of a document in its corpus, so then the documents of
every part are counted first. A limit counts documents that are kept: parts are begun in order until
it is reached. Of a sifted corpus, which documents are kept is found first (`token_sifting`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ngramkit.builders.stages import BASE_MEMORY, Apart, Stage, Written
from ngramkit.builders.token_sifting import sift
from ngramkit.builders.token_tasks import (
    MEMORY,
    Cut,
    Ids,
    Part,
    copy_shard,
    count_part,
    encode_part,
    open_part,
)
from ngramkit.corpus.document import Corpus
from ngramkit.corpus.mixing import Mixture
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.sifting import Sifted
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.executors.base import Task
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.writer import SCRATCH

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
    if isinstance(corpus, Sifted):
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
