"""Times of a server's passes by their number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.budget.costs import FREE_TOKENS
from ngramkit.budget.profile import Pass, Profile

SHOWN = 9  # tokens of the pass whose cost is reported
MOST_COST = SHOWN - 0.01
UNBOUNDED = 1e9  # tokens, the maximum of `free`
Floats = npt.NDArray[np.float64]
Cost = float | Mapping[int, float] | str | Path | None


class PassTimes:
    """The times of passes, relative to a pass of one token.

    `cost`: the time of a pass of SHOWN tokens, where T tokens take 1 + T / free (None: the engines'
    assumption for a GPU); times by tokens, such as {1: 57, 9: 109}; or the path of a profile of
    `ngramkit calibrate`. Times are inter- and extrapolated. Raises UsageError or InputError for an
    invalid cost.
    """

    def __init__(self, cost: Cost = None) -> None:
        self._seconds: Floats | None = None  # [contexts, sizes]
        shown = self._read(cost) if isinstance(cost, str | Path | Mapping) else cost
        self.free = float(FREE_TOKENS["cuda"])  # tokens that cost as much as reading the weights
        if shown is not None:
            require_between("pass_cost", shown, 1, MOST_COST)
            self.free = min((SHOWN - shown) / max(shown - 1, 1e-12), UNBOUNDED)
        self.cost = (1 + SHOWN / self.free) / (1 + 1 / self.free)

    def of(self, tokens: Floats, contexts: Floats) -> Floats:
        """Return relative times, float64[n], by `tokens` and mean context length."""
        if self._seconds is not None:
            return self._measured(tokens, contexts)
        times: Floats = (1 + tokens / self.free) / (1 + 1 / self.free)
        return times

    def _read(self, given: Mapping[int, float] | str | Path) -> float:
        curve = isinstance(given, Mapping)
        profile = _curve(given) if isinstance(given, Mapping) else _profile(Path(given))
        seconds = profile.table() if profile.passes else np.zeros((1, 1))
        if seconds.shape[1] < 2 or not (np.isfinite(seconds).all() and seconds.min() > 0):
            what = "the curve" if curve else f"the profile {given}"
            raise UsageError(
                f"{what} must have two times above 0, as 1:57,9:109", option="pass_cost"
            )
        self._sizes, self._contexts = np.array(profile.sizes) + 1.0, np.array(profile.contexts)
        self._seconds = seconds
        return float(self._measured(np.array([float(SHOWN)]), np.zeros(1))[0])

    def _measured(self, tokens: Floats, contexts: Floats) -> Floats:
        assert self._seconds is not None
        sizes = self._sizes
        nearest = np.abs(contexts[:, None] - self._contexts).argmin(1)
        times = np.empty(len(tokens))
        for row in np.unique(nearest):
            own, seconds = nearest == row, self._seconds[row]
            slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
            beyond = slope * np.maximum(tokens[own] - sizes[-1], 0)
            times[own] = np.interp(tokens[own], sizes, seconds) + beyond
        one: Any = np.interp(1.0, sizes, self._seconds[0])
        relative: Floats = times / one
        return relative


def _curve(times: Mapping[int, float]) -> Profile:
    for tokens in times:
        require_between("pass_cost", tokens, 1, 1 << 20, "the tokens of a pass, like 1:57,9:109")
    return Profile("", "", "", [Pass(n - 1, 0, float(time)) for n, time in times.items()])


def _profile(path: Path) -> Profile:
    if not path.is_file():
        raise InputError(
            f"no such profile: {path}",
            f"give one of ngramkit calibrate, or the cost of a pass of {SHOWN} tokens",
            option="pass_cost",
        )
    return Profile.load(path)
