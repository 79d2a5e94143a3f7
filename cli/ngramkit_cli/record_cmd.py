"""`ngramkit record`: answers and the model's top-k on the way, for replays without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ngramkit
from ngramkit.text import many
from ngramkit_cli import decode_options as opt
from ngramkit_cli.options import DrafterNames, SourceOptions, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import QuestionOptions

OutFolder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="New, or a record that this adds to.")
]


def record(
    *,
    asking: QuestionOptions,
    drafter: DrafterNames = None,
    model: opt.Model = None,
    sources: SourceOptions,
    max_new_tokens: opt.NewTokens = 256,
    running: opt.RunOptions,
    out_path: OutFolder,
    out: Output,
) -> None:
    """Record a model's answers and its top-k at verified nodes, for replays without it.

    The model answers the questions with drafts; its 16 likeliest tokens at every node that it
    verifies are kept. ngramkit replay --oracle DIR gives them to drafters as decoding does.

    Default: --drafter blend --budget 64. Interrupted, it goes on where it was when it is run again.

    Example: ngramkit record --questions question.jsonl --model smollm2-135m --out evidence
    """
    recording = ngramkit.record(
        asking.questions,
        the_model(model, out),
        out=out_path,
        drafters=drafter or (),
        **sources.words(),
        template=asking.template,
        max_new_tokens=max_new_tokens,
        **running.words(),
        limit=asking.limit,
        reporter=out.reporter,
    )
    out.say(
        f"{recording.path}: {many(recording.answers, 'answer')} of "
        f"{many(recording.tokens, 'token')} added, {many(recording.rows, 'context')}",
        f"next: ngramkit replay --oracle {recording.path} --drafter blend",
    )
    out.result(recording.path, **recording.to_dict())
