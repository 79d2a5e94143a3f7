"""The command line: corpus -> tokens -> artifact -> drafter -> decode."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ngramkit_cli import streams
from ngramkit_cli.command import App
from ngramkit_cli.commands import Commands

app = App(
    name="ngramkit",
    cls=Commands,
    help="corpus -> tokens -> artifact -> drafter -> decode\n\n"
    "Builds, ships and runs the lookup artifacts of training-free speculative decoding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if `wanted`."""
    if wanted:
        from ngramkit import __version__

        streams.write(f"ngramkit {__version__}")
        raise typer.Exit


@app.callback()
def ngramkit(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line: the entry point `ngramkit`."""
    # Libraries start Pythons too (multiprocessing's tracker): none may look for modules in the
    # working folder, which may be a stranger's.
    os.environ["PYTHONSAFEPATH"] = "1"
    streams.prepare()
    app()
