"""corpus -> tokens: builds the kind `tokens`, see ngramkit.formats.tokens.

Where a shard ends depends on its documents alone, never on batches or workers. A killed run finds
the finished shards and goes on behind the last one. Knows a corpus only as documents in a fixed
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.builders.stages import Apart
from ngramkit.builders.token_parts import tokenize_apart
from ngramkit.corpus.document import Document, Position
from ngramkit.corpus.encoders import open_encoder
from ngramkit.corpus.encoding import Packed, encoded, use_cores
from ngramkit.corpus.open import AnyCorpus
from ngramkit.corpus.sifting import Sifted
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.errors import InputError
from ngramkit.executors.base import Executor
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array
from ngramkit.formats.manifest import build_id
from ngramkit.formats.places import corpus_name, default_place
from ngramkit.formats.tokens import TokenStore
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.progress import SILENT, Reporter
from ngramkit.words import many

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
    (`builders.token_parts`); the bytes are the same. A shard ends with the document that fills
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
    """How many documents a sifted corpus left out, and why."""
    return {"left_out": dict(corpus.left_out)} if isinstance(corpus, Sifted) else {}


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
    for packed in encoded(documents, encoder, record.vocabulary, record.eos if eos else None):
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
        # Files without a position were made out of parts (builders.token_parts).
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
