"""`ngramkit use`: the default model of every command."""

from __future__ import annotations

from typing import Annotated

import typer

import ngramkit
from ngramkit_cli import completion
from ngramkit_cli.output import Output

ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A short name, a Hub id, a folder or a GGUF file; demo is the embedded one. "
        "Default: show which.",
        autocompletion=completion.models,
    ),
]
Unset = Annotated[bool, typer.Option("--unset", help="Forget it: the embedded model again.")]


def use(*, model: ModelName = None, unset: Unset = False, out: Output) -> None:
    """Choose the model of every command that is not given one; it is kept for you.

    Example: ngramkit use vicuna-7b
    """
    from ngramkit.models import VARIABLE, settings_path

    now = ngramkit.use(model, unset=unset)
    out.show(f"{now.name}{now.why and f' ({now.why})'}")
    if now.why == VARIABLE and (model is not None or unset):
        out.say(f"note: {VARIABLE} is set, and goes first")
    out.result(model=now.name, why=now.why, settings=str(settings_path()))
