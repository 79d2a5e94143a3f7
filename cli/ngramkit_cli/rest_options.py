"""Options of the drafter rest alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit.errors import UsageError

if TYPE_CHECKING:
    from ngramkit_cli.artifact_options import DrafterChoice

MaxMatch = Annotated[
    int | None,
    typer.Option("--max-match", min=1, help="rest: the longest match, in tokens. Default: 16."),
]
MinMatch = Annotated[
    int | None,
    typer.Option("--min-match", min=1, help="rest: the shortest match, in tokens. Default: 1."),
]
Continuation = Annotated[
    int | None,
    typer.Option("--continuation", min=1, help="rest: how deep a draft goes. Default: 10."),
]


def bound(choices: Sequence[DrafterChoice], **bounds: int | None) -> None:
    """Hands the bounds that were given to every rest drafter.

    Raises UsageError where there is none: the bounds would change nothing.
    """
    given = {name: value for name, value in bounds.items() if value is not None}
    drafters = [choice for choice in choices if choice.name == "rest"]
    if given and not drafters:
        option = next(iter(given)).replace("_", "-")
        raise UsageError(
            f"--{option} means nothing for the drafter {choices[0].name}",
            "leave it out, or use --drafter rest",
        )
    for choice in drafters:
        choice.parameters.update(given)
