"""Corpus to token store (`ngramkit.formats.tokens`).

Documents become ids batch by batch, in the corpus's order: on this machine from memory, on a
cluster out of files that tasks write, one for each part of the corpus (`builders.token_parts`). A
shard ends with the document that fills it, whatever the batches, parts or workers were. A killed
build finds the finished shards and goes on behind the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from ngramkit.builders.executors import Executor, executing
from ngramkit.builders.sources import Source, Text, open_text
from ngramkit.builders.stages import StageRunner
from ngramkit.builders.token_parts import encode_parts
from ngramkit.corpus.deduplication import Deduplicated
from ngramkit.corpus.document import Document, Position
from ngramkit.corpus.encoding import Packed, encode_documents, open_encoder, use_cores
from ngramkit.corpus.open import AnyCorpus, CorpusWords, is_artifact, open_corpus
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.errors import InputError, UsageError
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.manifest import build_id
from ngramkit.formats.outputs import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.models import chosen_model
from ngramkit.progress import SILENT, Reporter
from ngramkit.public import public_with
from ngramkit.remote.fetch import fetch
from ngramkit.remote.publishing import written
from ngramkit.text import many

SHARD_TOKENS = 1 << 24


@public_with(open_corpus, CorpusWords)
def tokenize(
    corpus: Text,
    model: str | TextTokenizer | None = None,
    out: str | Path | None = None,
    *,
    eos: bool = True,
    shard_tokens: int = SHARD_TOKENS,
    workers: int | None = None,
    executor: str | Executor = "local",
    ray_address: str | None = None,
    reporter: Reporter = SILENT,
    force: bool = False,
    **options: Unpack[CorpusWords],
) -> TokenStore:
    """Tokenise a corpus once: the input of every builder.

    `corpus` is an opened one, or what `open_corpus` takes, with its options: a name, files, texts
    that you hold (a list, a generator, a Series, a table, a dataset); a list of corpora and weights
    is a mixture, `["a", ("b", 0.3)]`. `model` is a short name, a Hub id (or ID@REVISION), a folder
    or a loaded tokenizer, by default the chosen one. `eos` ends every document with the tokenizer's
    EOS, if it has one; `workers` bounds the threads. A shard ends with the document that fills
    `shard_tokens`.

    The store is written to `out`, a folder or a URL (`ngramkit.remote.publishing`), by default
    under artifacts/; one of the same plan is opened as it is. `executor` is "local", or "ray" for
    the nodes of the cluster at `ray_address`, see `ngramkit.builders.executors`; the bytes are the
    same. Raises InputError where the corpus gives no document, or none with text.
    """
    with executing(executor, ray_address, workers, reporter) as runner:
        text = open_text(corpus, reporter, **options)
        tokenizer = model
        if not isinstance(tokenizer, TextTokenizer):
            tokenizer = load_tokenizer(chosen_model(tokenizer).name)
        build = partial(_build, text, tokenizer, eos, shard_tokens, workers, runner)
        return written(build, out, reporter=reporter, force=force)


def token_store(
    source: Source,
    model: str | None,
    eos: bool,
    executor: Executor,
    reporter: Reporter,
    **options: Unpack[CorpusWords],
) -> TokenStore:
    """Return the token store that `source` is, or tokenise the text that it names.

    Raises UsageError where `options`, which choose text, are given for tokens.
    """
    if isinstance(source, TokenStore) or (isinstance(source, str | Path) and is_artifact(source)):
        for name in options:
            raise UsageError(f"{name} means nothing to a token store", "leave it out", option=name)
        if isinstance(source, TokenStore):
            return source
        return TokenStore.open(fetch(source, reporter=reporter).path)
    return tokenize(source, model, eos=eos, executor=executor, reporter=reporter, **options)


def tokens_plan(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    *,
    eos: bool = True,
    shard_tokens: int = SHARD_TOKENS,
) -> dict[str, Any]:
    """Return everything that decides a token store's bytes, its manifest included."""
    return {
        "kind": TokenStore.kind,
        "corpus": corpus.record(),
        "tokenizer": asdict(tokenizer.record),
        "parameters": {"eos": eos, "shard_tokens": shard_tokens},
    }


def default_path(model: str, plan: Mapping[str, Any]) -> Path:
    """Return artifacts/CORPUS-MODEL-tokens-XXXXXXXX, of a mixture CORPUS-CORPUS-...

    The digits are the plan's, so plans never collide.
    """
    return default_place(corpus_name(plan["corpus"]), model, "tokens", build_id(plan)[:8])


def _build(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    eos: bool,
    shard_tokens: int,
    workers: int | None,
    executor: Executor,
    out: Path | None,
    *,
    reporter: Reporter,
    force: bool,
) -> TokenStore:
    plan = tokens_plan(corpus, tokenizer, eos=eos, shard_tokens=shard_tokens)
    path = out or default_path(tokenizer.record.id, plan)
    if already_built(path, plan):
        reporter.note(f"up to date: {path}")
        return TokenStore.open(path)
    inputs = corpus.places
    with ArtifactWriter(path, TokenStore.kind, plan, inputs=inputs, force=force) as writer:
        record = tokenizer.record
        ending = record.eos if eos else None
        dtype = token_dtype(record.vocabulary)
        cutter = ShardCutter(writer, dtype, shard_tokens, positions=executor.local)
        if executor.local:
            use_cores(workers)
            batches = _encode_here(corpus, tokenizer, ending, cutter, reporter)
        else:
            stages = StageRunner(writer, executor, reporter)
            done = cutter.counts["documents"]
            batches = encode_parts(corpus, tokenizer, ending, stages, done)
        cutter.cut(batches)
        _require_text(corpus, tokenizer, eos, cutter.counts)
        facts: dict[str, Any] = {}
        if cutter.licenses:
            facts["licenses"] = dict(sorted(cutter.licenses.items()))
        if isinstance(corpus, Deduplicated):
            facts["left_out"] = dict(corpus.left_out)
        if corpus.skipped.records:
            facts["bad_records"] = corpus.skipped.records
            bad = many(corpus.skipped.records, "bad record")
            reporter.note(f"skipped {bad}; the first: {corpus.skipped.first}")
        writer.commit(
            record,
            parameters=plan["parameters"],
            corpus={**plan["corpus"], **facts},
            counts=cutter.counts,
        )
    return TokenStore.open(path)


def _require_text(
    corpus: AnyCorpus, tokenizer: TextTokenizer, eos: bool, counts: Mapping[str, int]
) -> None:
    """Raise InputError where there is no document, or every document is empty."""
    documents, skipped = counts["documents"], corpus.skipped
    if not documents and skipped.records:
        bad = many(skipped.records, "bad record")
        raise InputError(
            f"{corpus.id} gives no documents but {bad}; the first: {skipped.first}",
            "check column",
            option="column",
        )
    if not documents:
        raise InputError(
            f"{corpus.id} gives no documents",
            "loosen sample, licenses, exclude, dedup or weights"
            if corpus.narrowed
            else "check corpus and split",
            option=("sample", "licenses", "exclude", "corpus", "split"),
        )
    if counts["tokens"] == documents * (eos and tokenizer.record.eos is not None):
        raise InputError(
            f"{corpus.id} gives no text: its {many(documents, 'document')} are empty",
            "choose another column",
            option="column",
        )


def _encode_here(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    ending: int | None,
    cutter: ShardCutter,
    reporter: Reporter,
) -> Iterator[Packed]:
    """Yield the documents behind the cutter's last one, encoded by this process."""
    reporter.stage("tokenize", corpus.selection.limit, "documents")
    reporter.advance(cutter.position.kept, **cutter.counts)
    encoder = open_encoder(tokenizer.backend, reporter)
    documents = corpus.documents(cutter.position)
    for packed in encode_documents(documents, encoder, tokenizer.record.vocabulary, ending):
        yield packed
        reporter.advance(len(packed.documents), **cutter.counts)


class ShardCutter:
    """A writer of shards that gathers packed documents until they fill `shard_tokens`.

    It begins behind the shards that a killed build left. With `positions`, documents say where in
    the corpus they are, and `position` is where to read on; shards without are written anew.
    """

    def __init__(
        self, writer: ArtifactWriter, dtype: npt.DTypeLike, shard_tokens: int, *, positions: bool
    ) -> None:
        self.counts = {"documents": 0, "tokens": 0}
        self.licenses: Counter[str] = Counter()
        self.position = Position()
        self._writer = writer
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._positions = positions
        self._tokens: list[Array] = []  # gathered for the next shard
        self._lengths: list[Array] = []
        self._room = shard_tokens
        self._shard = 0
        self._resume()

    def _resume(self) -> None:
        while (facts := self._writer.finished(self._name)) is not None:
            if self._positions:
                if "position" not in facts:
                    break
                self.position = Position(**facts["position"])
            self.counts = {name: facts[name] for name in self.counts}
            self.licenses = Counter(facts["licenses"])
            self._shard += 1

    @property
    def _name(self) -> str:
        return f"shard-{self._shard:05d}.safetensors"

    def cut(self, batches: Iterable[Packed]) -> None:
        """Write shards of all the batches, of which the last may be smaller."""
        for packed in batches:
            self._add(packed)
        if self._lengths:
            self._flush()

    def _add(self, packed: Packed) -> None:
        documents, tokens, lengths = packed
        while len(documents):
            ends = np.cumsum(lengths)
            n = min(int(np.searchsorted(ends, self._room)) + 1, len(ends))
            end = int(ends[n - 1])
            self._take(documents[:n], tokens[:end], lengths[:n])
            if self._room <= 0:
                self._flush()
            documents, tokens, lengths = documents[n:], tokens[end:], lengths[n:]

    def _take(self, documents: Sequence[Document], tokens: Array, lengths: Array) -> None:
        self._tokens.append(tokens)
        self._lengths.append(lengths)
        self._room -= len(tokens)
        self.counts["documents"] += len(documents)
        self.counts["tokens"] += len(tokens)
        if self._positions:
            self.position = documents[-1].end
        for document in documents:
            self.licenses.update(document.licenses)

    def _flush(self) -> None:
        """Write what is gathered as one shard."""
        lengths = np.concatenate(self._lengths)
        offsets = np.zeros(len(lengths) + 1, np.uint64)
        np.cumsum(lengths, out=offsets[1:])
        tokens = np.concatenate(self._tokens).astype(self._dtype, copy=False)
        self._writer.write(
            self._name,
            {"tokens": tokens, "documents": offsets},
            **self.counts,
            licenses=dict(self.licenses),
            **({"position": self.position.to_json()} if self._positions else {}),
        )
        self._tokens, self._lengths, self._room = [], [], self._shard_tokens
        self._shard += 1
