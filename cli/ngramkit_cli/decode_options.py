"""Options of decoding: which drafter and model, how long, how tokens are chosen, where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit.errors import UsageError

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.profile import Profile
    from ngramkit_cli.output import Output

DrafterName = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME",
        help="blend, rest, cacheback, ngrammys, bigram, unigram, context, prompt-lookup, ssd or "
        "none. Default: blend, over all artifacts that fit the model.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID|PATH",
        help="A decoder-only causal language model: a short name, a Hub id or a folder. Default: "
        "NGRAMKIT_MODEL, else the one of `ngramkit use`, else demo.",
    ),
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens at most.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option(help="Keep the likeliest tokens up to this probability.")]
TopK = Annotated[int, typer.Option(min=0, help="Keep this many of the likeliest tokens; 0: all.")]
Seed = Annotated[int, typer.Option(help="Of the sampling; the same text with and without drafts.")]
BudgetOrAuto = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="N|auto",
        help="Draft tokens per pass. auto: as many as pay for their time on this machine, see "
        "ngramkit calibrate. Default: auto where it was calibrated, else by the device.",
    ),
]
Verify = Annotated[
    str | None,
    typer.Option(
        metavar="tree|batch",
        help="A draft in one pass with an ancestor mask, or its paths as rows, for models that "
        "take no such mask. Default: tree where the model can.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="auto|eager|static",
        help="static: passes of a few fixed sizes over memory that does not move, as CUDA graphs "
        "on a GPU. auto: static on CUDA, else eager.",
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


def chosen_budget(
    text: str | None, model: LanguageModel, verify: str | None, engine: str, out: Output
) -> tuple[int | None, Profile | None]:
    """--budget as a number of nodes, or the profile that decides. Says so where one was found.

    Raises UsageError for what is neither, and for auto without a profile.
    """
    if text not in (None, "auto"):
        if not text.isdecimal():
            raise UsageError(f"--budget {text!r} is no number of nodes", "give one, or auto")
        return int(text), None
    from ngramkit.decode.profile import find_profile, profile_path
    from ngramkit.decode.verifiers import verify_mode

    tree = verify_mode(model.model, verify) == "tree"
    profile = find_profile(model, engine) if tree else None
    if profile is not None:
        out.say(f"budget: auto ({profile_path(model, engine)})")
    elif text == "auto" and not tree:
        raise UsageError("--budget auto needs drafts verified as trees", "give a number")
    elif text == "auto":
        which = "" if engine == "auto" else f" --engine {engine}"
        raise UsageError(
            f"{model.name} was not calibrated on this device with this engine",
            f"ngramkit calibrate {model.name}{which}",
        )
    return None, profile
