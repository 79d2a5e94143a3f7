"""`ngramkit calibrate`: what a pass costs on this machine, as a heat map, and for decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import ngramkit
from ngramkit_cli import decode_options as opt
from ngramkit_cli.options import NamedModel
from ngramkit_cli.output import Output
from ngramkit_cli.screen import figures

if TYPE_CHECKING:
    from ngramkit.budget.profile import Profile

Seconds = Annotated[float, typer.Option("--seconds", "--time", help="How long, about.")]


def calibrate(
    *,
    model: NamedModel,
    loading: opt.LoadOptions,
    seconds: Seconds = 20.0,
    out: Output,
) -> None:
    """Measure passes by draft size and context length; decode then need not learn it first.

    Example: ngramkit calibrate demo
    """
    calibration = ngramkit.calibrate(
        model.chosen(out),
        **loading.words(),
        seconds=seconds,
        reporter=out.reporter,
    )
    out.say(*table_lines(calibration.profile))
    out.say(f"profile: {calibration.path}", f"heat map: {calibration.picture}")
    out.result(calibration.path, **calibration.to_dict())


def table_lines(profile: Profile) -> list[str]:
    """Return milliseconds by draft nodes (rows) and tokens of context, with the slow-down."""
    where = f"{profile.device}, {profile.dtype}"
    table = profile.measured()
    rows = [
        [str(size), *(f"{1e3 * row[i]:.2f} ({row[i] / row[0]:4.2f})" for row in table)]
        for i, size in enumerate(profile.sizes)
    ]
    head = ["nodes", *(f"{context:,}" for context in profile.contexts)]
    return [
        f"milliseconds per pass (slow-down) on {where}",
        *figures(rows, head, justify="right"),
    ]
