"""Options of `ngramkit replay` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
OracleFolder = Annotated[
    Path | None,
    typer.Option(
        "--oracle",
        metavar="DIR",
        help="Answers of ngramkit record, with what the model held likely, which drafters are told "
        "as decoding tells them. With --model, it is asked for what is not on record.",
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


def parse_budgets(text: str) -> list[int]:
    """Numbers of nodes, each once. Raises UsageError where `text` is none."""
    from ngramkit.errors import UsageError

    try:
        budgets = [int(part) for part in text.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 1:
        raise UsageError(f"--budget {text!r} is not a list of numbers of nodes", "like 8,16,64")
    return list(dict.fromkeys(budgets))
