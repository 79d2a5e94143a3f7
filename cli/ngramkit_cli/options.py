"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what --out holds.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        envvar="NGRAMKIT_MODEL",
        help="The model (here: its tokenizer): a short name, a Hub id or a folder.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The artifact's folder. Default: under artifacts/."),
]


def said_model(model: str) -> str:
    """The line that says which model is used, and why where nobody asked for it."""
    if model == os.environ.get("NGRAMKIT_MODEL"):
        return f"model: {model} (NGRAMKIT_MODEL)"
    return f"model: {model}{' (default)' if model == 'demo' else ''}"
