"""A profile: pass times on this machine, as a JSON file."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError
from ngramkit.basics.untrusted import read_json, whole_number
from ngramkit.formats.replacing import hold_lock, replace_text


def context_class(length: int) -> int:
    """Return the class of a context length, one for every factor of four."""
    return length.bit_length() // 2


HINT = "Make one with ngramkit pass-cost or ngramkit calibrate."
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
        """Read a profile. Raises InputError, which names a missing or wrong field."""
        where = f"the profile {path}"
        given = _fields(Profile, read_json(path, error=InputError, hint=HINT), where)
        if not isinstance(given["passes"], list) or not given["passes"]:
            raise _unreadable(where, f"passes must be a list, got {given['passes']!r:.40}")
        passes = [
            _read_pass(each, f"pass {at} of {where}") for at, each in enumerate(given["passes"], 1)
        ]
        profile = Profile(given["model"], given["device"], given["dtype"], passes)
        try:
            profile.table()
        except KeyError as error:
            context, size = error.args[0]
            missing = f"context_length {context} and tree_size {size}"
            raise _unreadable(where, f"no pass has {missing}") from None
        return profile


def _read_pass(body: Any, where: str) -> Pass:
    read = Pass(**_fields(Pass, body, where))
    for name in ("tree_size", "context_length"):
        if not whole_number(value := getattr(read, name)):
            raise _unreadable(where, f"{name} must be a whole number, got {value!r:.40}")
    for name in ("seconds", "spread"):
        value = getattr(read, name)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise _unreadable(where, f"{name} must be a number, got {value!r:.40}")
    return read


def _fields(kind: type, body: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass in `body`; others, as of older profiles, are left out."""
    if not isinstance(body, dict):
        raise _unreadable(where, f"it must be an object, got {body!r:.40}")
    for field in fields(kind):
        if field.default is MISSING and field.name not in body:
            raise _unreadable(where, f"{field.name} is missing")
    return {field.name: body[field.name] for field in fields(kind) if field.name in body}


def _unreadable(where: str, why: str) -> InputError:
    return InputError(f"cannot read {where}: {why}", HINT)
