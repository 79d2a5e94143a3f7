"""Options of decoding: which drafter and model, how long, how tokens are chosen, where it runs."""

from __future__ import annotations

from typing import Annotated

import typer

DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME",
        help="rest, cacheback, ngrammys, bigram, unigram, context, prompt-lookup, ssd or none. "
        "Default: rest where a datastore fits the model, else cacheback.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        envvar="NGRAMKIT_MODEL",
        help="A decoder-only causal language model: a short name, a Hub id or a folder.",
    ),
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens at most.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option(help="Keep the likeliest tokens up to this probability.")]
TopK = Annotated[int, typer.Option(min=0, help="Keep this many of the likeliest tokens; 0: all.")]
Seed = Annotated[int, typer.Option(help="Of the sampling; the same text with and without drafts.")]
Budget = Annotated[
    int | None, typer.Option(min=0, help="Draft tokens per pass. Default: by the device.")
]
Verify = Annotated[
    str | None,
    typer.Option(
        metavar="tree|batch",
        help="A draft in one pass with an ancestor mask, or its paths as rows, for models that "
        "take no such mask. Default: tree where the model can.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[
    str,
    typer.Option(help="auto (float32 on the CPU, bfloat16 on CUDA), float32, float16, bfloat16."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End with the token that completes TEXT; may be repeated."),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Decode without drafts too, in turns; print the speed-up.")
]
Color = Annotated[
    bool, typer.Option("--color/--no-color", help="Colour drafted tokens on a terminal.")
]
