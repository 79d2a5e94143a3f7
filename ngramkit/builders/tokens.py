"""Build a token store (`ngramkit.formats.tokens`) from a corpus.

A shard ends with the document that fills it, whatever the batches, parts or workers. This process
saves encoded documents every few seconds, so a build resumes after them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import ArtifactError, InputError, reason, require_between
from ngramkit.basics.machine import parse_size
from ngramkit.basics.models import chosen_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.builders.corpus_parts import encode_parts
from ngramkit.builders.tasks import Executor, StageRunner, open_executor
from ngramkit.corpus.deduplication import DUPLICATES, EVALUATION, Deduplicated
from ngramkit.corpus.document import Position
from ngramkit.corpus.encoding import EncodedBatch, encode_documents, use_cores
from ngramkit.corpus.gigatoken import ComparedEncoder
from ngramkit.corpus.naming import default_artifact_paths, planned_corpus, without_checksum
from ngramkit.corpus.open import (
    AnyCorpus,
    CorpusOptions,
    Openable,
    is_artifact,
    open_with,
    refuse_late_options,
    refuse_text_options,
)
from ngramkit.corpus.selection import OPTED_OUT, UNLICENSED
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer
from ngramkit.formats.artifact import Artifact, token_dtype
from ngramkit.formats.manifest import Manifest, build_id, is_private_corpus, read_manifest
from ngramkit.formats.outputs import ARTIFACTS
from ngramkit.formats.replacing import BusyError, require_writable
from ngramkit.formats.resumable_writer import (
    SCRATCH,
    ArtifactWriter,
    Build,
    already_built,
    in_progress,
)
from ngramkit.formats.safetensors import Array, open_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore
from ngramkit.remote.fetch import fetch
from ngramkit.remote.publishing import (
    build_at,
    manifest_at,
    require_out,
    require_same_or_force,
)

SHARD_TOKENS = 1 << 24
SAVE_SECONDS = 5.0
TOKENS_ELSEWHERE = "tokenize to another folder first and give it as tokens."
NOTED_AS = {
    UNLICENSED: "their licences are not listed",
    OPTED_OUT: "they opted out",
    DUPLICATES: "duplicates",
    EVALUATION: "they contain evaluation texts",
}

# A corpus, or the input of `open_corpus`.
Text = AnyCorpus | Openable
# A token store, its folder or URL, or a corpus.
TokenSource = TokenStore | Text


def tokenize(
    corpus: Text,
    model: str | Path | TextTokenizer | None = None,
    out: str | Path | None = None,
    *,
    eos: bool = True,
    shard_tokens: int = SHARD_TOKENS,
    workers: int | None = None,
    executor: str | Executor = "local",
    ray_address: str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
    split: str | None = None,
    column: str | None = None,
    revision: str | None = None,
    language: str | None = None,
    join_turns: bool = False,
    name: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    limit: int | None = None,
    licenses: Sequence[str] = (),
    exclude: Path | str | Sequence[Path | str] | None = None,
    dedup: str | None = None,
    max_document: int | str | None = None,
    skip_bad: bool = False,
    private: bool = False,
) -> TokenStore:
    """Tokenise a corpus: the input of every builder.

    `corpus` is an open corpus, or an input of `open_corpus` with its options: a name, files, texts
    in memory, or a mixture such as `["a", ("b", 0.3)]`. `model` is a short name, a Hub id (or
    ID@REVISION), a folder or a loaded tokenizer, by default the default model. `eos` ends every
    document with the tokenizer's EOS, if it has one. `workers` bounds the threads. A shard ends
    with the document that fills `shard_tokens`.

    `out` is a folder or a URL, by default under artifacts/; a finished store of the same plan is
    opened. `executor` is "local", or "ray" for the cluster at `ray_address`
    (`ngramkit.builders.tasks`), which gives the same bytes. Raises InputError if the corpus has no
    document, or none with text.
    """
    text = CorpusOptions(
        split=split, column=column, revision=revision, language=language, join_turns=join_turns,
        name=name, sample=sample, seed=seed, limit=limit, licenses=licenses, exclude=exclude,
        dedup=dedup, max_document=max_document, skip_bad=skip_bad, private=private,
    )  # fmt: skip
    shard_tokens, workers = check_types(int, shard_tokens=shard_tokens, workers=workers)
    check_types(bool, eos=eos)
    check_types(Reporter, reporter=reporter)
    require_between("shard_tokens", shard_tokens, 1)
    require_out(out, TokenStore.kind, force=force)
    with open_executor(executor, ray_address, workers, reporter) as runner:
        opened, tokenizer = _open_corpus_and_tokenizer(corpus, text, model, reporter)
        plan = tokens_plan(opened, tokenizer, eos=eos, shard_tokens=shard_tokens)
        build = _token_build(opened, tokenizer, plan, runner, reporter, workers)
        place = out or existing_or_default_store_path(tokenizer.record.id, plan)
        return build_at(build, place, reporter=reporter, force=force)


def _open_corpus_and_tokenizer(
    corpus: Text,
    options: CorpusOptions,
    model: str | Path | TextTokenizer | None,
    reporter: Reporter,
) -> tuple[AnyCorpus, TextTokenizer]:
    """Open both; texts in memory are copied, so the tokenizer is loaded before them."""
    if isinstance(corpus, AnyCorpus):
        refuse_late_options(options.given())
    elif isinstance(corpus, str | Path):
        corpus = open_with(corpus, options, reporter)
    if not isinstance(model, TextTokenizer):
        model = load_tokenizer(chosen_model(model, reporter).name)
    if not isinstance(corpus, AnyCorpus):
        corpus = open_with(corpus, options, reporter)
    return corpus, model


@dataclass(frozen=True)
class PlannedStore:
    """A token store before its text is read."""

    corpus: Mapping[str, Any]
    tokenizer: TokenizerRecord
    build: str

    def is_source_of(self, manifest: Manifest) -> bool:
        """Return whether an artifact was built from this corpus with this tokenizer."""
        same = build_id(self.corpus) == build_id(planned_corpus(manifest.corpus))
        return same and self.tokenizer.fingerprint == manifest.tokenizer.fingerprint


@contextmanager
def token_store(
    source: TokenSource,
    model: str | Path | None,
    eos: bool,
    executor: Executor,
    reporter: Reporter,
    options: CorpusOptions,
    *,
    kind: str,
    out: str | Path | None,
    is_same: Callable[[PlannedStore, Manifest], bool],
    force: bool,
) -> Iterator[tuple[TokenStore, str | Path]]:
    """Yield the tokens of `source`, and the place of the artifact of `kind` to build from them.

    `source` is a token store, or a corpus to tokenise. Raises before a text is read if the place
    holds something else; `is_same` returns False for an artifact of `kind` that would be replaced.
    Errors of the block get a note that names a new store.
    """
    if isinstance(source, TokenStore) or (isinstance(source, str | Path) and is_artifact(source)):
        refuse_text_options(
            [*options.given(), *["model"] * (model is not None), *["eos"] * (not eos)]
        )
        if not isinstance(source, TokenStore):
            source = TokenStore.open(fetch(source, reporter=reporter).path)
        manifest = source.manifest
        planned = PlannedStore(planned_corpus(manifest.corpus), source.tokenizer, manifest.build)
        yield source, out or existing_or_default_artifact_path(planned, kind, source.path.name)
        return
    corpus, tokenizer = _open_corpus_and_tokenizer(source, options, model, reporter)
    plan = tokens_plan(corpus, tokenizer, eos=eos)
    path = existing_or_default_store_path(tokenizer.record.id, plan)
    planned = PlannedStore(plan["corpus"], tokenizer.record, build_id(plan))
    place = out or existing_or_default_artifact_path(planned, kind)
    if not already_built(path, plan):
        require_same_or_force(place, kind, partial(is_same, planned), force=force)
        _require_room_for_tokens(path)
    build = _token_build(corpus, tokenizer, plan, executor, reporter)
    try:
        store = build.at(path, reporter=reporter, force=True)  # its name has the plan's digest
    except BusyError as error:
        error.hint, error.option = f"Wait for it, or {TOKENS_ELSEWHERE}", ("tokens",)
        raise
    try:
        yield store, place
    except BaseException as error:
        error.add_note(f"the tokens are kept in {store.path}: the same text is not tokenised again")
        raise


def parameters_of_tokens(*made_of: Artifact) -> dict[str, Any]:
    """Return what the manifest of an artifact records of its tokens, if it is not the default."""
    with_eos = any(each.manifest.parameters.get("eos", True) for each in made_of)
    return {} if with_eos else {"eos": False}


def require_unreplaced(store: TokenStore, writer: ArtifactWriter) -> None:
    """Raise ArtifactError if other tokens are at the store's path, where tasks have read them."""
    if read_manifest(store.path) != store.manifest:
        writer.abandon()
        raise ArtifactError(
            f"cannot read {store.where}: it was replaced after it was opened", "Open it again."
        )


def _require_room_for_tokens(path: Path) -> None:
    hint = TOKENS_ELSEWHERE.capitalize()
    try:
        require_writable(path)
    except InputError as error:
        raise InputError(str(error), hint, option="tokens") from error
    except OSError as error:
        message = f"cannot write {path}: {reason(error)}"
        raise InputError(message, hint, option="tokens") from error


def tokens_plan(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    *,
    eos: bool = True,
    shard_tokens: int = SHARD_TOKENS,
) -> dict[str, Any]:
    """Return everything that decides a token store's bytes and manifest."""
    return {
        "kind": TokenStore.kind,
        "corpus": corpus.record(),
        "tokenizer": asdict(tokenizer.record),
        "parameters": {"eos": eos, "shard_tokens": shard_tokens},
    }


def existing_or_default_store_path(
    model: str, plan: Mapping[str, Any], folder: Path = ARTIFACTS
) -> Path:
    """Return `folder`/CORPUS-SELECTION-MODEL-tokens-XXXXXXXX, with the digits of the plan."""
    parts = (model, "tokens", build_id(plan)[:8])
    places = default_artifact_paths(plan["corpus"], *parts, folder=folder)
    kept = (path for path in places if already_built(path, plan) or in_progress(path, plan))
    return next(kept, places[0])


def existing_or_default_artifact_path(
    store: PlannedStore, kind: str, otherwise: str = "corpus"
) -> Path:
    """Return artifacts/CORPUS-SELECTION-MODEL-KIND."""
    places = default_artifact_paths(store.corpus, store.tokenizer.id, kind, otherwise=otherwise)
    found = ((path, manifest_at(path)) for path in places)
    return next((path for path, made in found if made and store.is_source_of(made)), places[0])


def parse_memory(memory: int | str | None) -> int | None:
    """Return bytes of a number or a text like "4G"."""
    if isinstance(memory, str):
        return parse_size(memory)
    if memory is not None:
        require_between("memory", memory, 1)
    return memory


def _token_build(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    plan: Mapping[str, Any],
    executor: Executor,
    reporter: Reporter,
    workers: int | None = None,
) -> Build[TokenStore]:
    def write(writer: ArtifactWriter) -> None:
        record, parameters = tokenizer.record, plan["parameters"]
        ending = record.eos if parameters["eos"] else None  # of every document
        dtype = token_dtype(record.vocabulary)
        cutter = ShardCutter(writer, dtype, parameters["shard_tokens"], positions=executor.local)
        if kept := cutter.counts["documents"]:
            tokens = counted(cutter.counts["tokens"], "token")
            reporter.note(
                f"resuming after {counted(kept, 'document')}, {tokens}, of an earlier run"
            )
        if executor.local:
            use_cores(workers)
            batches = _encode_here(corpus, tokenizer, ending, cutter, reporter)
        else:
            stages = StageRunner(writer, executor, reporter)
            done = cutter.counts["documents"]
            batches = encode_parts(corpus, tokenizer, ending, stages, done)
        cutter.cut(batches)
        try:
            _require_text(corpus, ending, cutter.counts)
        except InputError:
            writer.abandon()
            raise
        facts = dict(plan["corpus"])
        if _has_changed(corpus, facts):  # such as a session that goes on
            note = "changed while it was read: the artifact has no checksum of its text"
            reporter.note(f"{corpus.id} {note}")
            facts = without_checksum(facts)
        if cutter.licenses:
            facts["licenses"] = dict(sorted(cutter.licenses.items()))
        left_out = corpus.skipped.counts.left_out()
        if isinstance(corpus, Deduplicated):
            left_out |= corpus.left_out
        if left_out or isinstance(corpus, Deduplicated):
            facts["left_out"] = left_out
        for what, number in left_out.items():
            reporter.note(f"left out {counted(number, 'document')} ({NOTED_AS[what]})")
        if number := corpus.skipped.counts.bad:
            facts["bad_records"] = number
            first = corpus.skipped.first  # "" if an earlier run skipped it
            bad = counted(number, "bad record")
            reporter.note(f"skipped {bad}{first and f'; the first: {first}'}")
        writer.commit(record, parameters=parameters, corpus=facts, counts=cutter.counts)

    private = is_private_corpus(plan["corpus"])
    return Build(kind=TokenStore, plans=[plan], write=write, inputs=corpus.places, private=private)


def _has_changed(corpus: AnyCorpus, record: Mapping[str, Any]) -> bool:
    try:
        return corpus.record() != record
    except (InputError, OSError):  # a file was removed
        return True


def _require_text(corpus: AnyCorpus, ending: int | None, counts: Mapping[str, int]) -> None:
    documents, skipped = counts["documents"], corpus.skipped
    if not documents and skipped.counts.bad:
        bad = counted(skipped.counts.bad, "bad record")
        raise InputError(
            f"cannot tokenize {corpus.id}: it has only {bad}; the first: {skipped.first}",
            "Check column.",
            option="column",
        )
    if not documents:
        raise InputError(
            f"cannot tokenize {corpus.id}: it has no documents",
            "Check corpus and split, or loosen sample, licenses, exclude or weights.",
            option=("sample", "licenses", "exclude", "corpus", "split"),
        )
    if counts["tokens"] == documents * (ending is not None):
        raise InputError(
            f"cannot tokenize {corpus.id}: it has no text in {counted(documents, 'document')}",
            "Check its content, or choose another column.",
            option="column",
        )


def _encode_here(
    corpus: AnyCorpus,
    tokenizer: TextTokenizer,
    ending: int | None,
    cutter: ShardCutter,
    reporter: Reporter,
) -> Iterator[EncodedBatch]:
    limit, (read, size) = corpus.selection.limit, corpus.progress
    by_bytes = limit is None and size is not None
    reporter.stage("tokenize", size if by_bytes else limit, "bytes" if by_bytes else "documents")
    reporter.advance(0 if by_bytes else cutter.position.kept, **cutter.counts)
    encoder = ComparedEncoder(tokenizer.backend, reporter)
    documents = corpus.documents(cutter.position)
    for packed in encode_documents(documents, encoder, tokenizer.record.vocabulary, ending):
        yield packed
        amount = corpus.progress[0] - read if by_bytes else len(packed.documents)
        read += amount
        reporter.advance(amount, **cutter.counts)


class _Gathered(NamedTuple):
    """Documents of the next shard, and totals up to their end."""

    tokens: Array  # uint16 | uint32 [n]
    lengths: Array  # int64[documents], in tokens
    counts: dict[str, int]
    licenses: Counter[str]
    position: Position


class ShardCutter:
    """A writer of encoded documents as shards of `shard_tokens`.

    With `positions`, collected documents are saved too, and reading resumes at `position`.
    Otherwise a build resumes after its last shard.
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
        self._shard = 0
        self._gathered: list[_Gathered] = []  # for the next shard
        self._room = shard_tokens  # tokens that it lacks
        self._kept = 0  # how many of these are saved
        self._files = 0  # number of files of saved documents
        self._last_kept = time.monotonic()
        while self._resume_after(writer.finished(self._name)):
            self._shard += 1
        while positions:
            facts = writer.finished(self._scratch)
            if facts is None or facts.get(SCRATCH) != self._name:  # of an earlier shard
                break
            arrays = open_arrays(writer.partial / self._scratch)
            tokens, lengths = (np.array(arrays[name]) for name in ("tokens", "lengths"))
            self._resume_after(facts)
            self._gather(tokens, lengths.astype(np.int64))
            self._files += 1
        self._kept = len(self._gathered)

    def _resume_after(self, facts: Mapping[str, Any] | None) -> bool:
        """Set counts and position after a file; return False if a needed position is missing."""
        if facts is None or (self._positions and "position" not in facts):
            return False
        if self._positions:
            self.position = Position(**facts["position"])
        self.counts = {name: facts[name] for name in self.counts}
        self.licenses = Counter(facts["licenses"])
        return True

    @property
    def _name(self) -> str:
        return f"shard-{self._shard:05d}.safetensors"

    @property
    def _scratch(self) -> str:
        return f"gathered-{self._files:05d}.safetensors"

    def cut(self, batches: Iterable[EncodedBatch]) -> None:
        """Write all batches as shards; after an error, save the collected documents."""
        try:
            for documents, tokens, lengths in batches:
                while len(documents):
                    if self._room <= 0:
                        self._write_shard()
                    ends = np.cumsum(lengths)
                    n = min(int(np.searchsorted(ends, self._room)) + 1, len(ends))
                    end = int(ends[n - 1])
                    self.counts["documents"] += n
                    self.counts["tokens"] += end
                    if self._positions:
                        self.position = documents[n - 1].end
                    for document in documents[:n]:
                        self.licenses.update(document.licenses)
                    self._gather(tokens[:end], lengths[:n])
                    documents, tokens, lengths = documents[n:], tokens[end:], lengths[n:]
                if time.monotonic() - self._last_kept >= SAVE_SECONDS:
                    self._save_gathered()
            if self._gathered:
                self._write_shard()
        except BaseException:
            with suppress(OSError, MemoryError):  # the first error matters more
                self._save_gathered()
            raise

    def _gather(self, tokens: Array, lengths: Array) -> None:
        so_far = (dict(self.counts), Counter(self.licenses), self.position)
        self._gathered.append(_Gathered(tokens, lengths, *so_far))
        self._room -= len(tokens)

    def _save_gathered(self) -> None:
        fresh = self._gathered[self._kept :]
        self._last_kept = time.monotonic()
        if self._positions and fresh:
            lengths = np.concatenate([each.lengths for each in fresh]).astype(np.uint64)
            self._write(self._scratch, fresh, {"lengths": lengths}, **{SCRATCH: self._name})
            self._kept += len(fresh)
            self._files += 1

    def _write_shard(self) -> None:
        lengths = np.concatenate([each.lengths for each in self._gathered])
        offsets = np.zeros(len(lengths) + 1, np.uint64)
        np.cumsum(lengths, out=offsets[1:])
        self._write(self._name, self._gathered, {"documents": offsets})
        self._gathered, self._room = [], self._shard_tokens
        self._kept = self._files = 0
        self._shard += 1  # last: an interrupt must not save the documents for the next shard
        self._last_kept = time.monotonic()

    def _write(
        self, name: str, gathered: Sequence[_Gathered], arrays: Mapping[str, Array], **marks: str
    ) -> None:
        tokens = np.concatenate([each.tokens for each in gathered]).astype(self._dtype, copy=False)
        last = gathered[-1]
        facts = {**last.counts, "licenses": dict(last.licenses), **marks}
        if self._positions:
            facts["position"] = last.position._asdict()
        self._writer.write(name, {"tokens": tokens, **arrays}, **facts)
