"""How every picture looks: colours that can be told apart, and read as text on white."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, MUTED = "#24292f", "#6a737d"
PALETTE = (
    "#0b63c5", "#b45309", "#15803d", "#c81e1e", "#7c3aed",
    "#7a4b2a", "#be1a75", "#57606a", "#6b6b00", "#0e7490",
)  # fmt: skip
DARK = (  # the same hues, on a dark page
    "#6cb0ff", "#f5a95a", "#5fd38a", "#ff8a80", "#b79cff",
    "#d3a684", "#ff8cc6", "#a8b1bb", "#cfcf5c", "#5cd0e0",
)  # fmt: skip


@contextmanager
def styled(**settings: Any) -> Iterator[None]:
    """Figures made inside have the colours above, and matplotlib's `settings` ("svg_fonttype");
    nothing of a matplotlibrc that lies in the working folder."""
    import matplotlib

    matplotlib.use("Agg")
    from cycler import cycler

    given: Any = {name.replace("_", ".", 1): value for name, value in settings.items()}
    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    given |= dict.fromkeys(parts, INK) | {"axes.prop_cycle": cycler(color=PALETTE)}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(given)
        yield


def legend_below(axes: Any, entries: int) -> None:
    """Outside the axes, where it covers nothing."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=min(max(entries, 1), 3),
        frameon=False,
    )
