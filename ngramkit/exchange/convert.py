"""Conversion of artifacts to and from other programs' files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown, require_between
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.machine import expand_home
from ngramkit.basics.models import chosen_model, is_gguf
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result
from ngramkit.builders.tokens import parse_memory
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.outputs import ARTIFACTS, require_fit_for_output
from ngramkit.formats.replacing import clear_killed_run, exists_error, require_writable
from ngramkit.inspection import open_artifact
from ngramkit.remote.fetch import default_output
from ngramkit.remote.publishing import require_out


class ExportFormat(NamedTuple):
    ending: str  # of a file's name
    kinds: tuple[str, ...] = ("datastore",)  # of artifacts
    options: tuple[str, ...] = ()  # those that not every format has
    marks_private: bool = False  # it can hold the mark of private texts


TABLES = ("frozen-table", "model-bigram")
EXPORTS = {
    "llama.cpp": ExportFormat(
        ".bin", ("datastore", *TABLES), ("dynamic", "min_count", "max_ngrams", "gguf", "memory")
    ),
    "ik_llama.cpp": ExportFormat("-suffix.bin"),
    "exllamav3": ExportFormat(".sam", options=("memory", "model"), marks_private=True),
    "rest-idx": ExportFormat(".idx", options=("u32",)),
    "parquet": ExportFormat(
        ".parquet", ("datastore", "tokens", *TABLES), ("model",), marks_private=True
    ),
    "jsonl": ExportFormat(".jsonl", ("datastore", "tokens"), ("model",)),
    "datasets": ExportFormat("-text.jsonl", ("datastore", "tokens"), ("model",)),
    "transformers": ExportFormat("-transformers", ("datastore", *TABLES), marks_private=True),
}
IMPORT_KINDS = {"llama.cpp": "frozen", "rest-idx": "datastore"}


@dataclass(frozen=True)
class Exported(Result):
    path: Path
    source: Path
    to: str
    counts: Mapping[str, int]  # written bytes, rows, ...
    private: bool = False  # made of private texts


def export(
    source: str | Path | Artifact,
    to: str,
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    dynamic: bool = False,
    min_count: int | None = None,
    max_ngrams: int | None = None,
    gguf: str | Path | None = None,
    u32: bool = False,
    memory: int | str | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
) -> Exported:
    """Write an artifact in another program's format.

    Args:
        to: A key of EXPORTS.
        out: Default: next to the artifact, or in artifacts/ if it was downloaded.
        model: Whose tokenizer decodes text (default: the artifact's); for exllamav3 the folder of
            the model that it loads.
        dynamic, min_count, max_ngrams: See `exchange.llama_cpp`.
        memory: Most bytes in memory, or "4G", for llama.cpp and exllamav3.
        gguf: File that llama.cpp will run (PATH.gguf, hf:ID:FILE.gguf), to check its tokenizer.
        u32: See `exchange.rest_idx`.

    Raises UsageError for an unknown format or an unsupported artifact or option, ArtifactError for
    a `gguf` with another tokenizer.
    """
    check_types(bool, dynamic=dynamic, u32=u32, force=force)
    if to not in EXPORTS:
        raise UsageError(f"unknown format {to!r}", hint_for_unknown(to, EXPORTS), option="to")
    given = {"dynamic": dynamic, "min_count": min_count, "max_ngrams": max_ngrams, "gguf": gguf}
    given |= {"u32": u32, "memory": memory, "model": model}
    _refuse_options("to", to, {n: v for n, v in given.items() if n not in EXPORTS[to].options})
    for name, count in (("min_count", min_count), ("max_ngrams", max_ngrams)):
        if count is not None:
            require_between(name, count, 1)
    memory = parse_memory(memory)
    artifact = source if isinstance(source, Artifact) else open_artifact(source, reporter=reporter)
    if artifact.kind not in EXPORTS[to].kinds:
        raise UsageError(
            f"cannot export {artifact.where} to {to}: it is {a_kind(artifact.kind)}",
            f"Export {' or '.join(map(a_kind, EXPORTS[to].kinds))}.",
        )
    if out:
        path = expand_home(out)
    else:
        beside = default_output(source)
        path = beside.with_name(beside.name + EXPORTS[to].ending)
        path.parent.mkdir(exist_ok=True)
    require_fit_for_output(path)
    clear_killed_run(path)
    if os.path.lexists(path) and not force:
        raise exists_error(path)
    require_writable(path)
    if gguf is not None:
        if not is_gguf(str(gguf)):
            raise UsageError(
                f"gguf must be a GGUF file, got {gguf}",
                "Give PATH.gguf or hf:ID:FILE.gguf.",
                option="gguf",
            )
        artifact.tokenizer.require(load_tokenizer(str(gguf)).record, str(artifact.path))
    made: Any = artifact  # of one of the format's kinds
    options: dict[str, Any] = {"reporter": reporter, "force": force}
    if to == "llama.cpp":
        from ngramkit.exchange.llama_cpp import export_cache

        options |= {"min_count": min_count or 1, "max_ngrams": max_ngrams, "memory": memory}
        counts = export_cache(made, path, dynamic=dynamic, **options)
    elif to == "rest-idx":
        from ngramkit.exchange.rest_idx import export_rest_idx

        counts = export_rest_idx(made, path, u32=u32, **options)
    elif to == "ik_llama.cpp":
        from ngramkit.exchange.ik_llama_cpp import export_corpus

        counts = export_corpus(made, path, **options)
    elif to == "exllamav3":
        from ngramkit.exchange.exllamav3 import export_automaton

        folder = model or artifact.tokenizer.id
        counts = export_automaton(made, folder, path, memory=memory, **options)
    elif to == "transformers":
        from ngramkit.exchange.transformers import export_folder

        counts = export_folder(artifact, path, force=force)
    elif to == "parquet":
        from ngramkit.exchange.parquet import export_parquet

        tokenizer = load_tokenizer(model or artifact.tokenizer.id)
        counts = export_parquet(made, tokenizer, path, **options)
    else:
        from ngramkit.exchange.text import export_jsonl

        tokenizer = load_tokenizer(model or artifact.tokenizer.id)
        counts = export_jsonl(made, tokenizer, path, objects=to == "datasets", **options)
    private = artifact.manifest.private
    if private and not EXPORTS[to].marks_private:
        reporter.note(f"{path} holds private texts, and a {to} file cannot be marked private")
    return Exported(path, artifact.path, to, counts, private)


def _refuse_options(parameter: str, format: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(
                f"cannot use {name} with {parameter}={format}",
                "Leave it out.",
                option=(name, parameter),
            )


def import_(
    file: str | Path,
    origin: str,
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    order: int | None = None,
    reporter: Reporter = NOTEBOOK_BARS,
    force: bool = False,
) -> Artifact:
    """Build a frozen table or a datastore from another engine's file.

    Args:
        origin: The file's format, a key of IMPORT_KINDS.
        out: Default: in artifacts/, named after the file.
        model: Whose tokenizer made the file's ids.
        order: Context length of the n-grams to take from a llama.cpp cache.

    Raises UsageError for an unknown format, InputError for an invalid file.
    """
    if origin not in IMPORT_KINDS:
        raise UsageError(
            f"unknown format {origin!r}", hint_for_unknown(origin, IMPORT_KINDS), option="origin"
        )
    if origin != "llama.cpp":
        _refuse_options("origin", origin, {"order": order})
    file = expand_home(file)
    if not os.path.lexists(file):
        raise InputError(f"cannot read {file}: there is no such file", "Check the path.")
    path = out if out is not None else ARTIFACTS / f"{file.stem}-{IMPORT_KINDS[origin]}"
    require_out(path, force=force)
    tokenizer = load_tokenizer(chosen_model(model).name)
    if origin == "llama.cpp":
        from ngramkit.exchange.llama_cpp import import_cache

        return import_cache(file, tokenizer, path, order=order, reporter=reporter, force=force)
    from ngramkit.exchange.rest_idx import import_rest_idx

    return import_rest_idx(file, tokenizer, path, reporter=reporter, force=force)
