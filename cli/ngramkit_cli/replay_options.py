"""Options of `ngramkit replay` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ngramkit_cli.source_options import SourceOptions

Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers",
        metavar="FILE",
        help="Recorded answers, jsonl: FastChat or Spec-Bench (with --questions), or lines with "
        "prompt and output, or with messages.",
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option("--questions", metavar="FILE", help="FastChat's or Spec-Bench's questions."),
]
RecordFolder = Annotated[
    Path | None,
    typer.Option(
        "--oracle",
        metavar="DIR",
        help="A folder of ngramkit record: its answers, and the model's top-k at verified nodes, "
        "which drafters get as evidence. With --model, the model verifies what is not on record.",
    ),
]
Budgets = Annotated[str, typer.Option("--budget", metavar="N,N,...", help="Draft nodes per pass.")]
KeepState = Annotated[
    bool,
    typer.Option("--keep-state", help="One drafter for all questions, for those that learn."),
]
Seed = Annotated[int, typer.Option("--seed", help="The questions' order with --keep-state.")]
Repeat = Annotated[
    int,
    typer.Option("--repeat", min=1, help="With --keep-state: every question comes N times."),
]
DropLeaked = Annotated[
    bool, typer.Option("--drop-leaked", help="Leave out answers that stand in a datastore.")
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the results.")]


@dataclass(frozen=True)
class ReplaySources(SourceOptions):
    """Where none is named, those under artifacts/ that fit are taken. A field is an option."""

    curve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]PATH|URL",
            help="An artifact by itself, in place of --datastore and the like; may be repeated. "
            "Tokens/step by bytes, a line for each NAME.",
        ),
    ] = None

    def sources(self) -> Any:
        """Return what drafters share; with --curve, {curve: artifacts}."""
        from ngramkit.errors import UsageError

        if self.curve is None:
            return super().sources()
        shared = ("datastore", "frozen_table", "bigram", "unigram", "history")
        given = [name for name in shared if getattr(self, name) is not None]
        if given:
            raise UsageError(
                f"curve names one artifact after another, not beside {given[0]}",
                "leave out one of them",
                option=("curve", given[0]),
            )
        return parse_curves(self.curve)


def parse_budgets(text: str) -> list[int]:
    """Parse numbers of nodes, each once. Raises UsageError for anything else."""
    from ngramkit.errors import UsageError

    try:
        budgets = [int(part) for part in text.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 1:
        raise UsageError(f"--budget {text!r} is not a list of numbers of nodes", "like 8,16,64")
    return list(dict.fromkeys(budgets))


def parse_curves(given: list[str]) -> dict[str, list[str]]:
    """Parse NAME=PATH or PATH to {curve: artifacts}; what exists as a path is no name.

    >>> parse_curves(["pruned=a/4M", "pruned=a/15M", "s3://b/x?y=1"])
    {'pruned': ['a/4M', 'a/15M'], '': ['s3://b/x?y=1']}
    """
    curves: dict[str, list[str]] = {}
    for text in given:
        name, sign, path = text.partition("=")
        named = sign and path and not set("/\\:") & set(name) and not Path(text).exists()
        curves.setdefault(name if named else "", []).append(path if named else text)
    return curves
