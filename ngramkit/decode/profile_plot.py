"""A profile as a heat map: how much slower a pass is than one without a draft."""

from __future__ import annotations

from pathlib import Path

from ngramkit.budget.profile import NOISY, Profile


def plot(profile: Profile, path: Path) -> None:
    """Writes a PNG; matplotlib is imported only now. Rows are contexts, columns draft sizes."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not what a matplotlibrc in the working folder says
        _draw(profile, path)


def _draw(profile: Profile, path: Path) -> None:
    from matplotlib import pyplot

    seconds = profile.measured()
    spread = {(each.context_length, each.tree_size): each.spread for each in profile.passes}
    slowdown = seconds / seconds[:, :1]
    sizes, contexts = profile.sizes, profile.contexts
    figure, axes = pyplot.subplots(
        figsize=(2 + 0.55 * len(sizes), 1.8 + 0.6 * len(contexts)), layout="constrained"
    )
    image = axes.imshow(slowdown, aspect="auto", cmap="viridis_r", vmin=1)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_yticks(range(len(contexts)), [f"{context:,}" for context in contexts])
    middle = (1 + slowdown.max()) / 2
    for row, column in ((r, c) for r in range(len(contexts)) for c in range(len(sizes))):
        value = slowdown[row, column]
        color = "white" if value > middle else "black"
        noise = spread[contexts[row], sizes[column]]
        shown = f"{value:.2f}\n±{noise:.0%}"
        axes.text(column, row, shown, ha="center", va="center", color=color, fontsize=7)
    axes.set(
        xlabel="draft nodes",
        ylabel="tokens of context",
        title="" if profile.noise <= NOISY else "TOO NOISY TO TRUST\n",
    )
    axes.set_title(
        axes.get_title()
        + f"slow-down of a pass: {profile.model}, {profile.dtype}, {profile.device}",
    )
    figure.colorbar(image)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
