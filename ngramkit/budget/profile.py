"""A profile: pass times on this machine, as a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import read_json
from ngramkit.formats.replacing import hold_lock, replace_text


def context_class(length: int) -> int:
    """Return the class of a context length, one for every factor of four."""
    return length.bit_length() // 2


MAX_SPREAD = 0.25  # spread above which times are not trusted


@dataclass(frozen=True)
class Pass:
    tree_size: int
    context_length: int
    seconds: float
    spread: float = 0.0  # share by which the median round took longer than the best


@dataclass(frozen=True)
class Profile:
    """The times of a model's passes on one device, with one engine."""

    model: str
    device: str
    dtype: str
    passes: list[Pass]

    @property
    def sizes(self) -> list[int]:
        return sorted({each.tree_size for each in self.passes})

    @property
    def contexts(self) -> list[int]:
        return sorted({each.context_length for each in self.passes})

    @property
    def noise(self) -> float:
        """Return the median spread; above MAX_SPREAD the machine was busy."""
        return float(np.median([each.spread for each in self.passes]))

    def measured(self) -> npt.NDArray[np.float64]:
        """Return the times as measured, in seconds, float64[contexts, sizes]."""
        seconds = {(each.context_length, each.tree_size): each.seconds for each in self.passes}
        return np.array(
            [[seconds[context, size] for size in self.sizes] for context in self.contexts]
        )

    def table(self) -> npt.NDArray[np.float64]:
        """Return the times to decide by, in seconds, float64[contexts, sizes].

        Larger passes never cost less: if measured so, the smaller one was disturbed.
        """
        reverse = self.measured()[::-1, ::-1]
        least = np.minimum.accumulate(np.minimum.accumulate(reverse, axis=1), axis=0)
        return least[::-1, ::-1]

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the seconds by context class and draft nodes; a class's longest context counts."""
        return {
            str(context_class(context)): {
                str(size): float(seconds) for size, seconds in zip(self.sizes, row, strict=True)
            }
            for context, row in zip(self.contexts, self.table(), strict=True)
        }

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path.with_name(path.name + ".lock")):  # two may calibrate at a time
            replace_text(path, self.to_json())

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def load(path: Path) -> Profile:
        try:
            body = read_json(path, error=InputError, hint="run ngramkit calibrate")
            passes = [Pass(**each) for each in body.pop("passes")]
            body.pop("engine", None)  # older profiles name one
            profile = Profile(passes=passes, **body)
            profile.table()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"cannot read the profile {path}: {error}", "run ngramkit calibrate"
            ) from error
        return profile
