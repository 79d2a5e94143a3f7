"""`ngramkit plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import ngramkit
from ngramkit_cli.options import Debug, Json
from ngramkit_cli.output import Output

if TYPE_CHECKING:
    from ngramkit.verbs.planning import Plan


def plan(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A file, or a name in artifacts/.")
    ],
    cores: Annotated[
        int | None, typer.Option(min=1, help="Of all machines together. Default: this one's.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            metavar="N",
            help="How many tokens the corpus has, like 100B or 1T. Default: as many as its local "
            "files have text for.",
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", help="Of one core for an hour, for the total cost."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a recipe takes: stages, sizes and hours on so many cores. Builds nothing.

    Example: ngramkit plan demo --cores 64 --tokens 100B
    """
    with Output("plan", json=json, debug=debug) as out:
        from ngramkit.machine import parse_count

        done = ngramkit.plan(
            recipe,
            cores,
            tokens=None if tokens is None else parse_count(tokens),
            price=price,
            reporter=out.reporter,
        )
        _say(done, out)
        out.result(None, **done.to_dict())


def _say(plan: Plan, out: Output) -> None:
    from ngramkit_cli.tables import figures

    out.say(f"{plan.recipe}: {plan.tokens:,} tokens ({plan.tokens_from}) on {plan.cores:,} cores")
    rows = [
        (
            stage.name,
            f"{stage.tokens_per_second:,.0f}",
            f"{stage.cores:,}",
            duration(stage.hours),
            f"{stage.bytes:,}" if stage.bytes else "",
            "the bottleneck" if stage is plan.longest else "",
        )
        for stage in plan.stages
    ]
    for line in figures(rows, ("stage", "tokens/s/core", "cores", "time", "bytes written", "")):
        out.say(line)
    cost = "" if plan.cost is None else f", {plan.cost:,.2f} at the price given"
    out.say(
        f"in all {duration(plan.hours)}, {plan.core_hours:,.1f} core hours{cost}; "
        f"the artifact takes {plan.bytes:,} bytes at most"
    )
    out.say(f"rates: {plan.machine}")


def duration(hours: float) -> str:
    """
    >>> duration(0.001), duration(0.5), duration(30), duration(100)
    ('4 s', '30 min', '30.0 h', '4.2 d')
    """
    if hours < 1 / 60:
        return f"{max(hours * 3600, 1):.0f} s"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} d"
