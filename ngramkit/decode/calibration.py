"""`ngramkit.calibrate`: what a pass costs on this machine, measured and kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngramkit.budget.profile import NOISY, Profile
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.measuring import measure
from ngramkit.decode.pass_options import PassOptions
from ngramkit.decode.profile_files import profile_path
from ngramkit.errors import require_between
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Tabular

DAY = 86_400  # seconds, at most


@dataclass(frozen=True, repr=False)
class Calibration(Tabular):
    """A profile, its file, and a heat map of it."""

    profile: Profile
    path: Path

    @property
    def picture(self) -> Path:
        return self.path.with_suffix(".png")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit calibrate --json` prints them."""
        return {
            "profile": str(self.path),
            "device": self.profile.device,
            "engine": self.profile.engine,
            "noise": self.profile.noise,
            "passes": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per measured pass: tree_size, context_length, seconds."""
        return [asdict(each) for each in self.profile.passes]

    def __repr__(self) -> str:
        p = self.profile
        return f"<Calibration of {p.model} on {p.device}, {p.dtype}, {p.engine}: {self.path}>"


def calibrate(
    model: str | LanguageModel | None = None,
    *,
    passes: PassOptions = PassOptions(),  # noqa: B008 (frozen)
    seconds: float = 20.0,
    reporter: Reporter = SILENT,
) -> Calibration:
    """Measures passes by draft size and context length, for about `seconds`; from then on decoding
    this model here begins with what was found, and corrects it.

    Of `passes` the engine, device and dtype count. What it finds is kept in the user's cache.
    Raises UsageError for `seconds` that are no time, or more than a day.
    """
    from ngramkit.decode.profile_plot import plot

    require_between("seconds", seconds, 0, DAY)
    loaded = passes.load(model, reporter)
    profile = measure(loaded, engine=passes.engine, seconds=seconds, reporter=reporter)
    found = Calibration(profile, profile_path(loaded, profile.engine))
    found.profile.save(found.path)
    plot(found.profile, found.picture)
    if found.profile.noise > NOISY:
        reporter.note(
            f"the machine was too noisy to trust: a usual pass took {found.profile.noise:.0%} "
            "longer than the best; close other programs and calibrate again"
        )
    return found
