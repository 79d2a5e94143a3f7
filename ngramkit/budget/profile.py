"""What a pass costs on this machine, by the size of the draft and of the context: a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.errors import InputError
from ngramkit.formats.replacing import locked
from ngramkit.formats.writer import write_text
from ngramkit.untrusted import read_json

NOISY = 0.25  # the spread from which on figures are not to be trusted


@dataclass(frozen=True)
class Pass:
    """`tree_size` draft nodes verified behind `context_length` tokens."""

    tree_size: int
    context_length: int
    seconds: float
    spread: float = 0.0  # how much longer the median of the rounds took than the best, as a share


@dataclass(frozen=True)
class Profile:
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
        """The median pass's spread. Above NOISY the machine had other things to do."""
        return float(np.median([each.spread for each in self.passes]))

    def measured(self) -> npt.NDArray[np.float64]:
        """Seconds as they were measured, float64[contexts, sizes]."""
        found = {(each.context_length, each.tree_size): each.seconds for each in self.passes}
        return np.array(
            [[found[context, size] for size in self.sizes] for context in self.contexts]
        )

    def table(self) -> npt.NDArray[np.float64]:
        """Seconds to decide by, float64[contexts, sizes].

        Larger trees and longer contexts never cost less: where they were measured so, the other
        pass was disturbed.
        """
        turned = self.measured()[::-1, ::-1]
        least = np.minimum.accumulate(np.minimum.accumulate(turned, axis=1), axis=0)
        return least[::-1, ::-1]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(path.name + ".lock")):  # two may calibrate at a time
            write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Profile:
        """Raises InputError where that is no profile."""
        try:
            body = read_json(path, error=InputError, hint="run ngramkit calibrate")
            passes = [Pass(**each) for each in body.pop("passes")]
            body.pop("engine", None)  # older profiles name one
            profile = Profile(passes=passes, **body)
            profile.table()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no profile: {error}", "run ngramkit calibrate") from error
        return profile
