"""`ngramkit export`, `ngramkit import` and `ngramkit merge`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit.errors import UsageError
from ngramkit_cli.options import Debug, Force, Json, Model, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.store_options import Memory, memory_bytes

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer
    from ngramkit.formats.artifact import Artifact


class Target(StrEnum):
    LLAMA_CPP = "llama.cpp"
    REST_IDX = "rest-idx"
    PARQUET = "parquet"
    JSONL = "jsonl"
    TRANSFORMERS = "transformers"


class Origin(StrEnum):
    LLAMA_CPP = "llama.cpp"
    REST_IDX = "rest-idx"


SUFFIXES = {
    Target.LLAMA_CPP: ".bin",
    Target.REST_IDX: ".idx",
    Target.PARQUET: ".parquet",
    Target.JSONL: ".jsonl",
    Target.TRANSFORMERS: "-transformers",
}

Source = Annotated[str, typer.Argument(metavar="PATH|hf://USER/NAME", help="The artifact.")]
To = Annotated[Target, typer.Option("--to", help="The format.")]
From = Annotated[Origin, typer.Option("--from", help="The file's format.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="PATH", help="What to write. Default: beside the artifact."),
]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        help="Where to find the artifact's tokenizer, for formats with text. Default: the model "
        "that it names.",
    ),
]
Dynamic = Annotated[
    bool,
    typer.Option("--dynamic", help="llama.cpp: for -lcd, contexts of 1 to 4 tokens, not for -lcs."),
]
U32 = Annotated[bool, typer.Option("--u32", help="rest-idx: 32-bit ids, for a patched REST.")]
Order = Annotated[
    int | None,
    typer.Option(min=1, max=4, help="llama.cpp: take the n-grams with this many context tokens."),
]


def export(
    source: Source,
    to: To,
    out_path: Out = None,
    model: OwnModel = None,
    dynamic: Dynamic = False,
    u32: U32 = False,
    memory: Memory = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write an artifact as another engine or a data tool reads it.

    Example: ngramkit export artifacts/python-stdlib-demo-datastore --to llama.cpp
    """
    with Output("export", json=json, debug=debug) as out:
        from ngramkit.formats.kinds import open_artifact

        _refuse_options(to, dynamic=dynamic, u32=u32)
        artifact = open_artifact(out.fetch(source))
        path = out_path or artifact.path.with_name(artifact.path.name + SUFFIXES[to])
        options = {"force": force, "reporter": out.reporter}
        if to is Target.LLAMA_CPP:
            counts = _llama_cpp(artifact, path, dynamic, memory_bytes(memory), force)
        elif to is Target.REST_IDX:
            from ngramkit.exchange.rest_idx import export_rest_idx

            counts = {"bytes": export_rest_idx(_datastore(artifact), path, u32=u32, **options)}
        elif to is Target.TRANSFORMERS:
            from ngramkit.exchange.transformers import export_folder

            counts = {"bytes": export_folder(artifact, path, force=force)}
        else:
            counts = _with_text(artifact, to, path, _tokenizer(artifact, model), options)
        said = ", ".join(f"{value:,} {name}" for name, value in counts.items())
        out.say(f"{path}: {said}")
        out.result(path, source=str(artifact.path), to=to.value, **counts)


def _refuse_options(to: Target, *, dynamic: bool, u32: bool) -> None:
    if dynamic and to is not Target.LLAMA_CPP:
        raise UsageError(f"--dynamic means nothing with --to {to.value}", "leave it out")
    if u32 and to is not Target.REST_IDX:
        raise UsageError(f"--u32 means nothing with --to {to.value}", "leave it out")


def _llama_cpp(
    artifact: Artifact, path: Path, dynamic: bool, memory: int | None, force: bool
) -> dict[str, int]:
    from ngramkit.exchange.llama_cpp import export_cache

    return vars(export_cache(artifact, path, dynamic=dynamic, memory=memory, force=force))


def _with_text(
    artifact: Artifact, to: Target, path: Path, tokenizer: TextTokenizer, options: dict[str, Any]
) -> dict[str, int]:
    if to is Target.PARQUET:
        from ngramkit.exchange.parquet import export_parquet

        rows, size = export_parquet(artifact, tokenizer, path, **options)
        return {"rows": rows, "bytes": size}
    from ngramkit.exchange.jsonl import export_jsonl

    documents, size = export_jsonl(_datastore(artifact), tokenizer, path, **options)
    return {"documents": documents, "bytes": size}


def _tokenizer(artifact: Artifact, model: str | None) -> TextTokenizer:
    from ngramkit.corpus.tokenizer import load_tokenizer

    return load_tokenizer(model or artifact.tokenizer.id)


def _datastore(artifact: Artifact) -> Any:
    from ngramkit.formats.datastore import Datastore

    if not isinstance(artifact, Datastore):
        raise UsageError(
            f"{artifact.path} is a {artifact.kind}, which holds no documents", "export a datastore"
        )
    return artifact


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    origin: From,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Default: under artifacts/, by the file's name."),
    ] = None,
    model: Model = None,
    order: Order = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Make an artifact of another engine's file: a frozen table or a datastore.

    Example: ngramkit import lookup.bin --from llama.cpp --model vicuna-7b
    """
    with Output("import", json=json, debug=debug) as out:
        from ngramkit.corpus.tokenizer import load_tokenizer

        if order is not None and origin is not Origin.LLAMA_CPP:
            raise UsageError(f"--order means nothing with --from {origin.value}", "leave it out")
        tokenizer = load_tokenizer(the_model(model, out))
        artifact: Artifact
        if origin is Origin.LLAMA_CPP:
            from ngramkit.exchange.llama_cpp import import_cache

            path = out_dir or _imported(file, "frozen")
            artifact = import_cache(file, tokenizer, path, order=order, force=force)
        else:
            from ngramkit.exchange.rest_idx import import_rest_idx

            path = out_dir or _imported(file, "datastore")
            artifact = import_rest_idx(file, tokenizer, path, reporter=out.reporter, force=force)
        _done(artifact, out)


def _imported(file: Path, kind: str) -> Path:
    return Path("artifacts") / f"{file.stem}-{kind}"


def merge(
    sources: Annotated[
        list[str], typer.Argument(metavar="A B ...", help="Artifacts of one kind and tokenizer.")
    ],
    out_dir: Annotated[Path, typer.Option("--out", metavar="DIR", help="The artifact to write.")],
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Make one artifact of several: datastores side by side, frozen tables with counts added.

    Example: ngramkit merge artifacts/chat-frozen artifacts/web-frozen --out artifacts/both-frozen
    """
    with Output("merge", json=json, debug=debug) as out:
        from ngramkit.builders import merge as builder
        from ngramkit.formats.kinds import open_artifact

        parts = [open_artifact(out.fetch(source)) for source in sources]
        artifact = builder.merge(parts, out_dir, reporter=out.reporter, force=force)
        if artifact.kind == "frozen-table":
            out.say("counts are exact only for n-grams that every part had kept")
        _done(artifact, out)


def _done(artifact: Artifact, out: Output) -> None:
    counts, size = artifact.manifest.counts, artifact.manifest.bytes
    said = ", ".join(f"{value:,} {name}" for name, value in counts.items())
    out.say(f"{artifact.path}: a {artifact.kind}, {said}, {size:,} bytes")
    out.result(artifact.path, kind=artifact.kind, **counts, bytes=size)
