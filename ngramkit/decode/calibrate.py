"""`ngramkit.calibrate`."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import NgramkitError, require_between
from ngramkit.basics.machine import require_package
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Tabular
from ngramkit.basics.terminal_text import device_text
from ngramkit.budget.profile import MAX_SPREAD, Pass, Profile
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pending import open_pending_model
from ngramkit.drafters.base import DraftTree

if TYPE_CHECKING:
    from ngramkit.decode.base import Verifier
    from ngramkit.decode.load import LanguageModel

DAY_SECONDS = 86_400


@dataclass(frozen=True, repr=False)
class Calibration(Tabular):
    profile: Profile
    path: Path

    @property
    def picture(self) -> Path:
        return self.path.with_suffix(".png")

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile": str(self.path),
            "device": self.profile.device,
            "noise": self.profile.noise,
            "passes": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(each) for each in self.profile.passes]

    def __repr__(self) -> str:
        p = self.profile
        return f"<Calibration of {p.model} on {device_text(p.device)}, {p.dtype}: {self.path}>"


def calibrate(
    model: str | Path | LanguageModel | None = None,
    *,
    seconds: float = 20.0,
    reporter: Reporter = NOTEBOOK_BARS,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    trust_remote_code: bool = False,
) -> Calibration:
    """Measure passes by draft size and context length, for about `seconds`, and save the profile.

    Decoding this model on this machine then starts from the profile. The other parameters are as in
    `ngramkit.decode`. Raises UsageError for `seconds` outside 0 to 86,400; NgramkitError, saving
    nothing, if there was too little time or the machine was too noisy.
    """
    require_between("seconds", seconds, 0, DAY_SECONDS)
    require_package("matplotlib", "draw the heat map")
    options = DecodeOptions(
        model, reporter=reporter, device=device, dtype=dtype, device_map=device_map,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    loaded = open_pending_model(options).load()
    profile = measure_best_rounds(loaded, seconds=seconds, reporter=reporter)
    if profile.noise > MAX_SPREAD:
        raise NgramkitError(
            f"cannot calibrate: the machine is too noisy, a typical pass took {profile.noise:.0%} "
            "longer than the best",
            "Close other programs and calibrate again.",
        )
    from ngramkit.decode.kept_costs import profile_path

    calibration = Calibration(profile, profile_path(loaded))
    profile.save(calibration.path)
    plot_costs(profile, calibration.picture)
    return calibration


MEASURED_SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)
MEASURED_CONTEXTS = (32, 128, 512, 2048, 8192)
MIN_ROUNDS = 4


def measure_best_rounds(
    model: LanguageModel,
    *,
    sizes: Sequence[int] = MEASURED_SIZES,
    contexts: Sequence[int] = MEASURED_CONTEXTS,
    seconds: float = 10.0,
    reporter: Reporter = SILENT,
) -> Profile:
    """Measure the best round of every draft size and context length, for about `seconds`.

    After the first round, a warm-up, longer contexts are skipped if time is short. `seconds` 0:
    MIN_ROUNDS of everything. Raises NgramkitError if fewer rounds fit.
    """
    from ngramkit.decode.load import device_facts
    from ngramkit.decode.packed_weights import packed_weights_of
    from ngramkit.decode.passes import model_passes
    from ngramkit.decode.verifiers import choose_verify_mode

    verify = choose_verify_mode(model.model)
    longest = model.context or max(contexts) + max(sizes) + 1
    fitting = [context for context in contexts if context + max(sizes) < longest] or [1]
    reporter.stage("passes", seconds or None, "seconds")
    end = time.perf_counter() + seconds if seconds else math.inf
    verifiers: dict[int, Verifier] = {}
    times: dict[tuple[int, int], list[float]] = {}  # by context and size
    rounds, first_round = 0, 0.0
    with packed_weights_of(model.model), model_passes():
        for context in fitting:
            if verifiers and end - time.perf_counter() < 2 * MIN_ROUNDS * first_round:
                reporter.note(f"contexts from {context:,} tokens on are left out: too little time")
                break
            verifiers[context] = open_filled(model.model, verify, context, max(sizes))
            for size in sizes:
                times[context, size] = []
                took = time_pass(verifiers[context], size)
                first_round += took
                reporter.advance(took)
        while time.perf_counter() < end and (seconds or rounds < MIN_ROUNDS):
            for (context, size), of_pass in times.items():
                if time.perf_counter() >= end:
                    break
                of_pass.append(time_pass(verifiers[context], size))
                reporter.advance(of_pass[-1])
            else:
                rounds += 1
    if rounds < MIN_ROUNDS:
        raise NgramkitError(
            f"cannot calibrate in {seconds:g} s: only {rounds} of {MIN_ROUNDS} rounds fit",
            f"Give seconds={10 * seconds:g}, or calibrate when the machine has less to do.",
            option="seconds",
        )
    passes = [
        Pass(size, context, min(of_pass), float(np.median(of_pass)) / min(of_pass) - 1)
        for (context, size), of_pass in times.items()
    ]
    facts = device_facts(model.model)
    return Profile(model.name, facts["device"], facts["dtype"], passes)


def open_filled(model: Any, verify: str, context: int, nodes: int) -> Verifier:
    from ngramkit.decode.verifiers import open_verifier

    vocabulary = int(model.config.get_text_config().vocab_size)
    verifier = open_verifier(model, verify, room=context + 1 + nodes)
    verifier.prefill(np.arange(context, dtype=np.int32) % vocabulary)
    return verifier


def time_pass(verifier: Verifier, size: int) -> float:
    """Return the seconds of a pass until its tokens are on the host."""
    from ngramkit.decode.verify_rows import ChainVerifier

    nodes = np.arange(size, dtype=np.int32)
    parents = nodes - 1 if isinstance(verifier, ChainVerifier) else (nodes - 1) // 2
    tree = DraftTree(nodes, parents, np.zeros(size, np.float32), np.zeros(size, np.uint8))
    started = time.perf_counter()
    verifier.verify(0, tree).argmax(-1).tolist()
    return time.perf_counter() - started


def plot_costs(profile: Profile, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds, sizes, contexts = profile.measured(), profile.sizes, profile.contexts
    spread = {(each.context_length, each.tree_size): each.spread for each in profile.passes}
    slowdown = seconds / seconds[:, :1]
    middle = (1 + slowdown.max()) / 2
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore a matplotlibrc in the working folder
        width = 3 + 0.62 * len(sizes)
        figure, axes = pyplot.subplots(
            figsize=(width, 2.2 + 0.6 * len(contexts)), layout="constrained"
        )
        image = axes.imshow(slowdown, aspect="auto", cmap="viridis_r", vmin=1)
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_yticks(range(len(contexts)), [f"{context:,}" for context in contexts])
        for row, column in np.ndindex(slowdown.shape):
            value = slowdown[row, column]
            noise = spread[contexts[row], sizes[column]]
            color = "white" if value > middle else "black"
            cell = f"{value:.2f}\n+{noise:.0%}"
            axes.text(column, row, cell, ha="center", va="center", color=color, fontsize=9)
        axes.set(xlabel="draft nodes per pass", ylabel="tokens of context")
        where = f"{profile.model}, {profile.dtype}, {device_text(profile.device)}"
        title = f"The best round's pass, and how much longer the median round's took: {where}"
        figure.suptitle(textwrap.fill(title, int(11 * width)), fontsize=10)
        figure.colorbar(image, label="times a pass\nwithout drafts")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
