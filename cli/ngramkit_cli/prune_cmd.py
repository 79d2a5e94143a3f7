"""`ngramkit prune`: an artifact made smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ngramkit
from ngramkit_cli import completion
from ngramkit_cli.options import Force, takes_urls
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import AnsweredQuestions, TemplateOfQuestions

Source = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT",
        help="A datastore or a frozen table.",
        autocompletion=completion.artifacts("datastore", "frozen-table"),
    ),
]
Bytes = Annotated[
    str, typer.Option("--bytes", metavar="SIZE", help="The most it may take, like 2G or 64M.")
]
OutFolder = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR|URL", help="Default: beside the artifact, NAME-SIZE."),
]
Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers",
        metavar="FILE",
        help="Recorded answers of the kind that drafts are for, as `ngramkit replay` takes them. "
        "Default: the artifact's own text.",
    ),
]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        help="Where to find the artifact's tokenizer, for --answers. Default: the model that it "
        "names.",
        autocompletion=completion.models,
    ),
]


@takes_urls
def prune(
    *,
    source: Source,
    size: Bytes,
    out_dir: OutFolder = None,
    answers: Answers = None,
    questions: AnsweredQuestions = None,
    template: TemplateOfQuestions = "auto",
    model: OwnModel = None,
    force: Force = False,
    out: Output,
) -> None:
    """Make a datastore or frozen table smaller: keep what earns most per byte.

    Example: ngramkit prune artifacts/python-stdlib-demo-datastore --bytes 4M
    """
    artifact = ngramkit.prune(
        source,
        size,
        out_dir,
        answers=answers,
        questions=questions,
        model=model,
        template=template,
        reporter=out.reporter,
        force=force,
    )
    out.made(artifact, from_bytes=artifact.manifest.corpus["pruned"]["of"]["bytes"])
