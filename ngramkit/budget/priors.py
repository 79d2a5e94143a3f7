"""What passes cost before any was timed: by a profile on disk, else by what devices are like.

Costs are in passes without a draft behind the same context. What is guessed here is corrected by
the first passes of a model (`pass_costs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngramkit.budget.profile import Profile
from ngramkit.budget.static_sizes import padded

Costs = npt.NDArray[np.float64]

MOST = 96  # draft nodes of a pass
FLAT = 1e-3  # a row costs no less than so much of a pass, or nothing could be learnt of its cost
# A pass with so many rows beside the root. CPU: the demo model (5.5 million parameters) and
# SmolLM2-135M in float32 on an AMD EPYC; of both the dearer. GPU: a guess, on the dear side.
BY_DEVICE: dict[str, dict[int, float]] = {
    "cpu": {0: 1, 1: 1.1, 2: 1.2, 4: 1.6, 8: 2, 16: 2.4, 32: 2.8, 64: 4.2, 96: 5.8},
    "cuda": {0: 1, 1: 1.03, 16: 1.05, 32: 1.08, 64: 1.15, 96: 1.25},
}
FIRST = {"cpu": 4, "cuda": 16}  # nodes that are tried first where nothing is known
DEAR = 0.3  # of a pass: where a row is supposed to cost more, one is tried first


@dataclass(frozen=True)
class Prior:
    """`curves[i]`, float64[sizes], is behind contexts[i] tokens; between two, in between.

    With `reach` nodes at most is begun. `measured`: it is no guess.
    """

    contexts: Sequence[int]
    curves: Sequence[Costs]
    reach: int
    measured: bool = False

    @staticmethod
    def by_device(device: str, engine: str, sizes: int) -> Prior:
        """For passes of up to `sizes` - 1 rows beside the root, on "cpu", else as on "cuda"."""
        points = BY_DEVICE.get(device, BY_DEVICE["cuda"])
        rows = np.arange(sizes)
        if engine == "static":
            rows = np.array([padded(size) for size in range(sizes)])
        curve = _continued(rows, list(points), list(points.values()))
        return Prior([0], [curve], FIRST.get(device, FIRST["cuda"]))

    @staticmethod
    def by_row(cost: float, sizes: int) -> Prior:
        """Where a row beside the root costs about so much of a pass, however many there are."""
        curve: Costs = 1 + max(cost, FLAT) * np.arange(sizes, dtype=np.float64)
        return Prior([0], [curve], 1 if cost > DEAR else FIRST["cpu"])

    @staticmethod
    def by_profile(profile: Profile, sizes: int) -> Prior:
        rows, table = np.arange(sizes), profile.table()
        curves = [_continued(rows, profile.sizes, (row / row[0]).tolist()) for row in table]
        return Prior(profile.contexts, curves, sizes - 1, measured=True)

    def at(self, length: int) -> Costs:
        """Behind `length` tokens, float64[sizes]; beyond what is known, as it grew."""
        contexts, curves = self.contexts, self.curves
        if length <= contexts[0] or len(contexts) == 1:
            return curves[0]
        after = next((i for i, c in enumerate(contexts) if c >= length), len(contexts) - 1)
        share = (length - contexts[after - 1]) / (contexts[after] - contexts[after - 1])
        costs: Costs = curves[after - 1] + share * (curves[after] - curves[after - 1])
        return costs


def _continued(rows: npt.NDArray[np.int64], known: list[int], costs: list[float]) -> Costs:
    """Between what is known, in between; beyond it, on in a straight line."""
    found = np.interp(rows, known, costs)
    if len(known) > 1:
        slope = (costs[-1] - costs[-2]) / (known[-1] - known[-2])
        found += np.maximum(rows - known[-1], 0) * slope
    found[1:] = np.maximum(found[1:], 1 + FLAT * rows[1:])
    return found
