"""The executor of a build: this machine, or the nodes of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

EXECUTORS = "local|ray"


@dataclass(frozen=True)
class ExecutorOptions:
    """The executor options; a field is an option."""

    executor: Annotated[
        str,
        typer.Option(
            metavar=EXECUTORS,
            help="Where it runs: on this machine, or on a Ray cluster; same bytes.",
            autocompletion=lambda: EXECUTORS.split("|"),
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="auto|HOST:PORT",
            help="The Ray cluster. Default: RAY_ADDRESS, else auto, the one of this machine.",
        ),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        return vars(self)
