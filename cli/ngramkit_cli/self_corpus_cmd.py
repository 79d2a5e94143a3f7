"""`ngramkit self-corpus`: a model's own answers, as a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ngramkit
from ngramkit.text import many
from ngramkit_cli import decode_options as opt
from ngramkit_cli.options import Force, ModelName, NamedModel, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import QuestionsOrPrompts, TemplateOfQuestions

OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Default: self-corpus/QUESTIONS-MODEL.jsonl."),
]
Batch = Annotated[
    int, typer.Option("--batch", metavar="N", help="Questions that are answered at once.")
]


def self_corpus(
    model: ModelName = None,
    *,
    named: NamedModel = None,
    questions: QuestionsOrPrompts = None,
    template: TemplateOfQuestions = "auto",
    max_new_tokens: opt.NewTokens = 256,
    batch: Batch = 16,
    sampling: opt.SamplingOptions,
    loading: opt.LoadOptions,
    out_path: OutFile = None,
    force: Force = False,
    out: Output,
) -> None:
    """Write a model's own answers as a corpus: the text that drafts for this model want most.

    Interrupted, it goes on where it was when it is run again. The file is for --corpus of every
    builder.

    Example: ngramkit self-corpus demo --max-new-tokens 64
    """
    from ngramkit.decode.options import DecodeOptions

    name = the_model(model, out, named)
    corpus = ngramkit.self_corpus(
        questions,
        name,
        out_path,
        template=template,
        max_new_tokens=max_new_tokens,
        batch=batch,
        sampling=sampling.sampling(),
        passes=DecodeOptions(**loading.words()),
        force=force,
        reporter=out.reporter,
    )
    rate = corpus.new_tokens / corpus.seconds if corpus.new_tokens else 0
    out.say(
        f"{corpus.path}: {many(corpus.answers, 'answer')}, {many(corpus.tokens, 'token')}"
        + (f", {rate:,.0f} tokens/s" if rate else "")
        + (f"; {corpus.repeated:,} were there already or empty" if corpus.repeated else "")
        + (f"; {corpus.left_out:,} did not fit into the context" if corpus.left_out else ""),
        f"next: ngramkit build-datastore --corpus {corpus.path} --model {name}",
    )
    out.result(corpus.path, **corpus.to_dict())
