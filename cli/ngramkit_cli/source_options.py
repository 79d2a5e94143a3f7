"""Options that name what a drafter drafts from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ngramkit.drafters.sources import Sources

WHERE = "PATH|URL|hf://USER/NAME@REV"
DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:OPTION=VALUE,...]",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8. Default: blend.",
    ),
]
DrafterNames = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:OPTION=VALUE,...]",
        help="A drafter of `ngramkit drafters`, as rest:max_match=8; may be repeated.",
    ),
]


@dataclass(frozen=True)
class SourceOptions:
    """The artifacts to draft from, an option each; without any, those that fit under artifacts/."""

    datastore: Annotated[
        list[str] | None,
        typer.Option(metavar=WHERE, help="May be repeated. Default: all that fit."),
    ] = None
    frozen_table: Annotated[
        str | None, typer.Option(metavar=WHERE, help="Default: the largest that fits.")
    ] = None
    bigram: Annotated[
        str | None,
        typer.Option(metavar=WHERE, help="A model's bigram table. Default: its own, if built."),
    ] = None
    unigram: Annotated[
        str | None,
        typer.Option(metavar=WHERE, help="A model's unigram table. Default: its own, if built."),
    ] = None
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Past requests, for the drafters that learn from them; decode makes it where "
            "there is none. Default: nothing outlives the command.",
        ),
    ] = None
    history_tokens: Annotated[
        int, typer.Option(min=1, help="How many of its newest are searched.")
    ] = 4_000_000
    no_store: Annotated[bool, typer.Option("--no-store", help="Do not remember this request.")] = (
        False
    )

    def sources(self) -> Sources:
        from ngramkit.drafters.sources import PastUse, Sources

        return Sources(
            datastores=self.datastore or (),
            frozen_table=self.frozen_table,
            bigram=self.bigram,
            unigram=self.unigram,
            past=PastUse(self.history, self.history_tokens, store=not self.no_store),
        )
