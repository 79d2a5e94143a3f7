"""`ngramkit calibrate`: what a pass costs on this machine, as a heat map, and for decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ngramkit_cli import decode_options as opt
from ngramkit_cli.options import WHICH_MODEL, NamedModel, the_model
from ngramkit_cli.output import Output
from ngramkit_cli.screen import figures

if TYPE_CHECKING:
    from ngramkit.budget.profile import Profile

ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A decoder-only causal language model: a short name, a Hub id or a folder. "
        f"{WHICH_MODEL}",
    ),
]
Time = Annotated[float, typer.Option("--time", help="Seconds to measure, about.")]


def calibrate(
    *,
    model: ModelName = None,
    named: NamedModel = None,
    loading: opt.LoadOptions,
    seconds: Time = 20.0,
    out: Output,
) -> None:
    """Measure passes by draft size and context length; decode then need not learn it first.

    Example: ngramkit calibrate demo
    """
    from ngramkit.decode.calibrate import calibrate as measure_passes

    calibration = measure_passes(
        the_model(model, out, named),
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
