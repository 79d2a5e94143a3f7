"""The commands before a serving engine starts: `check-engine` and `warm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import ngramkit
from ngramkit.basics.terminal_text import counted
from ngramkit.engines.config import ENGINES
from ngramkit_cli import completion
from ngramkit_cli.decode_options import TRUST_REMOTE_CODE
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import model_option
from ngramkit_cli.tables import table_of_facts, table_of_figures, wrap_text

if TYPE_CHECKING:
    from ngramkit.engines.check import CheckedEngine


def check_engine(
    *,
    engine: str = typer.Argument(
        metavar="ENGINE", help=f"{', '.join(ENGINES)}.", autocompletion=completion.engines
    ),
    options: list[str] | None = typer.Argument(
        None,
        metavar="-- OPTION...",
        help="Options of `vllm serve` or SGLang's server: report what follows from them.",
    ),
    model: str | None = model_option(
        "The model that is served: its tokenizer is compared with the artifacts'. Default: none, "
        "nothing is compared.",
        "MODEL",
    ),
    draft: str | None = typer.Option(
        None,
        metavar="JSON",
        help="The configuration, or a file that holds it. Default: NGRAMKIT_DRAFT.",
    ),
    budget: int | None = typer.Option(
        None,
        "--budget",
        "--tokens",
        min=1,
        max=64,
        help="Draft nodes, at most. Default: as many as the server's options or the configuration "
        "ask for, else 8.",
    ),
    trust_remote_code: bool = TRUST_REMOTE_CODE,
    out: Output,
) -> None:
    """Check the configuration of a serving engine: its sources, its tokenizer, one draft.

    Example: ngramkit check-engine vllm --model smollm2-135m -- --no-async-scheduling
    """
    checked = ngramkit.check_engine(
        engine,
        model=model,
        draft=draft,
        budget=budget,
        options=options or (),
        trust_remote_code=trust_remote_code,
    )
    out.show(*table_of_facts(checked.engine, _facts_of_engine(checked)))
    for note in checked.notes:
        out.show(f"warning: {note}")
    out.show("", *_table_of_passes(checked))
    out.result(**checked.to_dict())


def _facts_of_engine(checked: CheckedEngine) -> dict[str, object]:
    installed = checked.version or "not installed here"
    artifacts = {
        f"artifact {at}": f"{artifact.path}: {artifact.kind}, for the tokenizer of "
        f"{artifact.tokenizer} ({artifact.vocabulary:,} tokens)"
        for at, artifact in enumerate(checked.artifacts, 1)
    }
    drafted = f"{counted(checked.draft_tokens, 'token')} in {checked.milliseconds:.2f} ms"
    if checked.draft is not None:
        drafted += f": {checked.prompt!r} -> {checked.draft!r}"
    return {
        "version": f"{installed}; tried with {', '.join(checked.tried)}",
        "configuration": checked.source,
        "drafter": checked.drafter,
        **artifacts,
        "drafts from": "; ".join(checked.drafts_from) or "nothing",
        "learns": checked.learns,
        "tokenizer": f"encodes as that of {checked.model}"
        if checked.model
        else "not compared (give --model)",
        "draft": drafted,
        **({"options": ". ".join(checked.effects)} if checked.effects else {}),
        **{
            f"{mode.runner} {mode.mode}": f"{'' if mode.usable else 'not usable: '}{mode.known}; "
            f"{mode.options}"
            for mode in checked.modes
        },
    }


def _table_of_passes(checked: CheckedEngine) -> list[str]:
    from ngramkit.budget.crossover import ASSUMED_ACCEPTANCE, ASSUMED_CONTEXT, MAX_REQUESTS

    what = "padded drafts do not pay" if checked.padded else "no draft pays"
    ends = f"From {checked.pays_below or 0:,} requests at once on, {what}."
    if checked.pays_below is None:
        ends = f"Drafts pay even for {MAX_REQUESTS:,} requests at once."
    rows = [
        (
            f"{each.tokens:,}",
            f"{each.cost:.2f}",
            f"{each.drafted:.1f}",
            f"{each.speed:.2f}",
            f"{each.padded:.2f}",
        )
        for each in checked.passes
    ]
    about = (
        f"Cost of passes by {checked.passes_by}, in passes over one token. Drafts of at most "
        f"{counted(checked.budget, 'token')}, for as many requests as the pass has tokens, with "
        f"contexts of {ASSUMED_CONTEXT:,} tokens, if {ASSUMED_ACCEPTANCE} of the tokens after "
        "accepted ones are accepted. Speed is that over no drafts. Padded: all tokens of each "
        "draft are verified, as in SGLang (with its padding) and in vLLM's fixed mode."
    )
    return [
        *wrap_text(about, 0),
        *table_of_figures(
            rows, ("tokens", "cost", "drafted for a request", "speed", "padded"), "right"
        ),
        ends,
    ]


def warm(
    *,
    drafter: str = typer.Option(
        "all",
        metavar="NAME",
        help="Compile for this drafter only; all: every drafter, building and verifying.",
    ),
    engine: str | None = typer.Option(
        None,
        metavar="ENGINE",
        help=f"Compile for the process of a server: {', '.join(ENGINES)}.",
        autocompletion=completion.engines,
    ),
    workers: int | None = typer.Option(
        None, min=1, help="Processes at a time. Default: every core."
    ),
    out: Output,
) -> None:
    """Compile the kernels now: for images and new machines.

    Example: ngramkit warm --engine vllm
    """
    done = ngramkit.warm(drafter, engine=engine, workers=workers, reporter=out.reporter)
    fresh = sum(map(len, done.compiled.values()))
    what = f"{fresh:,} compiled" if fresh else "nothing to compile"
    out.show(f"{done.folder}: {counted(done.kernels, 'kernel')}, {what} in {done.seconds:.1f} s")
    out.result(done.folder, compiled=done.compiled, kernels=done.kernels, processes=done.processes)
