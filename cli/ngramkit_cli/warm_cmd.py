"""`ngramkit warm`: kernels compiled beforehand, as when an image is built."""

from __future__ import annotations

from typing import Annotated

import typer

import ngramkit
from ngramkit.text import many
from ngramkit_cli.output import Output

Name = Annotated[
    str,
    typer.Option(
        "--drafter",
        metavar="NAME",
        help="Only what this drafter needs; all: every drafter, building and verifying.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="ENGINE",
        help="What a server's process needs: vllm, sglang, llama-cpp or tensorrt-llm.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes at a time. Default: every core.")
]


def warm(
    *, drafter: Name = "all", engine: Engine = None, workers: Workers = None, out: Output
) -> None:
    """Compile the kernels now, so that no command has to: for images and new machines.

    Example: ngramkit warm --engine vllm
    """
    done = ngramkit.warm(drafter, engine=engine, workers=workers, reporter=out.reporter)
    fresh = sum(map(len, done.compiled.values()))
    what = f"{fresh:,} compiled" if fresh else "nothing to compile"
    out.say(f"{done.folder}: {many(done.kernels, 'kernel')}, {what} in {done.seconds:.1f} s")
    out.result(done.folder, compiled=done.compiled, kernels=done.kernels, processes=done.processes)
