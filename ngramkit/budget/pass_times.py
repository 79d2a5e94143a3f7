"""The times of a server's passes: as measured, or else by formula."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.basics.machine import expand_home
from ngramkit.budget.model_cost import ModelCost, free_tokens
from ngramkit.budget.model_size import ModelSize
from ngramkit.budget.profile import Pass, Profile

REPORTED_SIZE = 9  # tokens of the pass whose cost is reported
MAX_COST = REPORTED_SIZE - 0.01
UNBOUNDED = 1e9  # tokens, the maximum of `free`
Floats = npt.NDArray[np.float64]
Cost = float | Mapping[int, float] | str | Path | None


class MeasuredTimes:
    """The times of a profile's passes, inter- and extrapolated; the nearest context length counts.

    Raises UsageError without two sizes, or for a time that is not above 0.
    """

    def __init__(self, profile: Profile, where: str) -> None:
        self._seconds = profile.table() if profile.passes else np.zeros((1, 1))
        if self._seconds.shape[1] < 2 or not (
            np.isfinite(self._seconds).all() and self._seconds.min() > 0
        ):
            raise UsageError(
                f"{where} must have two times above 0, as 1:57,9:109", option="pass_cost"
            )
        self._sizes, self._contexts = np.array(profile.sizes) + 1.0, np.array(profile.contexts)

    def times(
        self, tokens: Floats, requests: Floats | float = 1, context: Floats | float = 0.0
    ) -> Floats:
        """Return the times of passes over `tokens`, float64[n], in seconds.

        `context`: the mean length of their contexts in tokens.
        """
        sizes = self._sizes
        contexts = np.broadcast_to(np.asarray(context, np.float64), tokens.shape)
        nearest = np.abs(contexts[:, None] - self._contexts).argmin(1)
        times = np.empty(len(tokens))
        for row in np.unique(nearest):
            own, seconds = nearest == row, self._seconds[row]
            slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
            beyond = slope * np.maximum(tokens[own] - sizes[-1], 0)
            times[own] = np.interp(tokens[own], sizes, seconds) + beyond
        return times


PassTimes = ModelCost | MeasuredTimes


def pass_times(cost: Cost = None, size: ModelSize | None = None, device: str = "cuda") -> PassTimes:
    """Return the times of passes that a user gives.

    `cost`: times by tokens, such as {1: 57, 9: 109} or "1:57,9:109"; the path of a profile of
    `ngramkit pass-cost` or `ngramkit calibrate`; the time of a pass of REPORTED_SIZE tokens in
    passes of one, where T tokens take 1 + T / free; None: those of a model of `size` on `device`,
    by formula. Raises UsageError or InputError for an invalid cost.
    """
    if isinstance(cost, str):
        cost = _parse_cost(cost)
    if isinstance(cost, Mapping):
        for tokens in cost:
            require_between(
                "pass_cost", tokens, 1, 1 << 20, "the tokens of a pass, like 1:57,9:109"
            )
        passes = [Pass(n - 1, 0, float(time)) for n, time in cost.items()]
        return MeasuredTimes(Profile("", "", "", passes), "the curve")
    if isinstance(cost, Path):
        return MeasuredTimes(_load_profile(cost), f"the profile {cost}")
    if cost is None:
        return ModelCost(free_tokens(device), size)
    require_between("pass_cost", cost, 1, MAX_COST)
    return ModelCost(min((REPORTED_SIZE - cost) / max(cost - 1, 1e-12), UNBOUNDED))


def cost_shown(times: PassTimes) -> float:
    """Return the time of a pass of REPORTED_SIZE tokens in passes of one."""
    one, shown = times.times(np.array([1.0, REPORTED_SIZE]))
    return float(shown / one)


def _parse_cost(text: str) -> float | dict[int, float] | Path:
    """Read "1.1", "1:57,9:109", or a path."""
    with suppress(ValueError):
        if ":" not in text:
            return float(text)
        pairs = [part.split(":", 1) for part in text.split(",")]
        return {int(tokens): float(time) for tokens, time in pairs}
    return expand_home(text)


def _load_profile(path: Path) -> Profile:
    if not os.path.isfile(path):  # noqa: PTH113 (Path.is_file raises for a long name)
        raise InputError(
            f"no such profile: {path}",
            f"Give one of ngramkit pass-cost, or the cost of a pass of {REPORTED_SIZE} tokens.",
            option="pass_cost",
        )
    return Profile.load(path)
