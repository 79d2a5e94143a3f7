"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ngramkit_cli.output import Output

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what --out holds.")]
WHICH_MODEL = "Default: NGRAMKIT_MODEL, else the one of `ngramkit use`, else demo."
ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A causal language model: a name from `ngramkit models`, a Hub id (ID@REVISION) or a "
        f"folder. {WHICH_MODEL}",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N questions.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID[@REVISION]|PATH",
        help="The model (here: its tokenizer): a short name, a Hub id, a folder or a GGUF file "
        f"(PATH.gguf, hf:ID:FILE.gguf). {WHICH_MODEL}",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR|URL",
        help="The artifact's folder; a URL is s3://, gs:// or hf://buckets/ID/... Default: under "
        "artifacts/.",
    ),
]


def the_model(given: str | None, out: Output) -> str:
    """The model's name; says it, and why where nobody asked for it."""
    from ngramkit.models import DEFAULT, chosen_model, described

    chosen = chosen_model(given)
    known = "" if chosen.name == DEFAULT else described(chosen.name)
    out.say(f"model: {chosen.name}{known and f' = {known}'}{chosen.why and f' ({chosen.why})'}")
    return chosen.name
