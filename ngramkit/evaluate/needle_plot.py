"""Needle tests as the picture that people know: length by depth, one panel per cache.

Colour is the share of needles whose number was written exactly; the figure in a cell is the loss.
Knows results only; matplotlib is imported when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.evaluate.needle import NeedleResult
from ngramkit.evaluate.plots import styled


@styled()
def plot_needles(results: Sequence[NeedleResult], path: Path) -> None:
    """Writes a PNG (or whatever `path`'s suffix says); a last panel where hits were measured."""
    from matplotlib import pyplot

    caches = list(dict.fromkeys(result.cache for result in results))
    measured = [result for result in results if result.mass_held is not None]
    lengths = sorted({result.length for result in results})
    depths = sorted({result.depth for result in results})
    panels = len(caches) + bool(measured)
    figure, axes = pyplot.subplots(
        1,
        panels,
        figsize=(1.2 + (1.2 + 0.55 * len(lengths)) * panels, 1.6 + 0.42 * len(depths)),
        layout="constrained",
        squeeze=False,
    )
    image: Any = None
    for panel, cache in zip(axes[0], caches, strict=False):
        shown = [result for result in results if result.cache == cache]
        image = _draw_cache(panel, shown, lengths, depths)
        panel.set(title=cache, xlabel="tokens of context", ylabel="depth of the needle, %")
    figure.colorbar(image, ax=list(axes[0][: len(caches)]), label="written exactly")
    if measured:
        _draw_hits(figure, axes[0][-1], measured, depths)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_cache(
    axes: Any, results: Sequence[NeedleResult], lengths: Sequence[int], depths: Sequence[float]
) -> Any:
    exact, loss = (np.full((len(depths), len(lengths)), np.nan) for _ in range(2))
    for row, depth in enumerate(depths):
        for column, length in enumerate(lengths):
            cell = [r for r in results if r.depth == depth and r.length == length]
            if cell:
                exact[row, column] = np.mean([r.exact for r in cell])
                loss[row, column] = np.mean([r.loss for r in cell])
    image = axes.imshow(exact, aspect="auto", cmap="RdYlGn", vmin=0, vmax=1)
    axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths], rotation=45)
    axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f}" for depth in depths])
    for (row, column), value in np.ndenumerate(loss):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7)
    return image


def _draw_hits(
    figure: Any, axes: Any, results: Sequence[NeedleResult], depths: Sequence[float]
) -> None:
    """The attention mass that the fetched pairs held, by depth of the needle and layer."""
    held = np.array(
        [
            np.mean([r.mass_held or [] for r in results if r.depth == depth], axis=0)
            for depth in depths
        ]
    )
    image = axes.imshow(held, aspect="auto", cmap="viridis", vmin=0, vmax=1)
    axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f}" for depth in depths])
    axes.set(title="attention mass fetched", xlabel="layer", ylabel="depth of the needle, %")
    figure.colorbar(image, ax=axes)
