"""`ngramkit export` and `ngramkit import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import ngramkit
from ngramkit.basics.terminal_text import counts_text
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import (
    FORCE,
    MEMORY,
    MODEL,
    artifact_argument,
    model_option,
    takes_urls,
    the_model,
)

FORMATS = "llama.cpp|ik_llama.cpp|exllamav3|rest-idx|parquet|jsonl|datasets|transformers"
ORIGINS = "llama.cpp|rest-idx"


@dataclass(frozen=True)
class ExportOptions:
    source: str = artifact_argument("PATH|hf://USER/NAME", "The artifact.")
    to: str = typer.Option(
        ..., metavar=FORMATS, help="The format.", autocompletion=lambda: FORMATS.split("|")
    )
    out: Path | None = typer.Option(
        None,
        metavar="PATH",
        help="File or folder to write. Default: next to the artifact, or artifacts/ if fetched.",
    )
    model: str | None = model_option(
        "Where to find the artifact's tokenizer, for formats with text; for exllamav3, the folder "
        "of the model that it loads. Default: the model that the artifact names.",
        "ID|PATH",
    )
    dynamic: bool = typer.Option(
        False, "--dynamic", help="llama.cpp: for -lcd, contexts of 1 to 4 tokens, not for -lcs."
    )
    min_count: int | None = typer.Option(
        None, min=1, help="llama.cpp: leave out n-grams that were seen less often. Default: 1."
    )
    max_ngrams: int | None = typer.Option(
        None, min=1, help="llama.cpp: only so many n-grams, the most frequent. Default: all."
    )
    gguf: str | None = typer.Option(
        None,
        metavar="FILE",
        help="llama.cpp: the model it will run; refuse where its tokenizer is not the artifact's.",
    )
    u32: bool = typer.Option(False, "--u32", help="rest-idx: 32-bit ids, for a patched REST.")
    memory: Any = MEMORY
    force: bool = FORCE


@takes_urls
def export(*, options: ExportOptions, out: Output) -> None:
    """Write an artifact in the format of another engine or data tool.

    Example: ngramkit export artifacts/python-stdlib-demo-datastore --to llama.cpp
    """
    done = ngramkit.export(**vars(options), reporter=out.reporter)
    out.show(f"{done.path}: {counts_text(done.counts)}")
    out.result(done.path, source=str(done.source), to=done.to, private=done.private, **done.counts)


@takes_urls
def import_(
    *,
    file: Path = typer.Argument(metavar="FILE", help="The file to read."),
    origin: str = typer.Option(
        ...,
        "--from",
        metavar=ORIGINS,
        help="The file's format.",
        autocompletion=lambda: ORIGINS.split("|"),
    ),
    out_dir: str | None = typer.Option(
        None, "--out", metavar="DIR|URL", help="Default: under artifacts/, by the file's name."
    ),
    model: str | None = MODEL,
    order: int | None = typer.Option(
        None, min=1, max=4, help="llama.cpp: take the n-grams with this many context tokens."
    ),
    force: bool = FORCE,
    out: Output,
) -> None:
    """Create an artifact from another engine's file: a frozen table or a datastore.

    Example: ngramkit import lookup.bin --from llama.cpp --model vicuna-7b
    """
    artifact = ngramkit.import_(
        file,
        origin,
        out_dir,
        model=the_model(model, out),
        order=order,
        force=force,
        reporter=out.reporter,
    )
    out.made(artifact)
