"""`--budget auto` against the best fixed budget: held-out prompts, the demo model, on the CPU.

References are budgets of 4, 8, 16, 32 and 64 draft nodes a pass, in turns with auto; the best is
the one that is fastest over all prompts, which nobody knows beforehand. The profile is measured in
the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import Row, in_turns
from benchmarks._decoding import Drafters, Make, Tokens, held_out, task_of
from ngramkit.budget.profile import Profile
from ngramkit.decode.calibrate import measure
from ngramkit.decode.compare import warm_up
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.result import Decoded

PROMPTS = 6
ROUNDS = 3
BUDGETS = (4, 8, 16, 32, 64)
CALIBRATION = 15.0  # seconds
NAMES = ("blend", "cacheback", "rest", "context")
AUTO = "auto"


def rows() -> Iterator[Row]:
    model = load_model("demo", device="cpu")
    with TemporaryDirectory() as folder:
        drafters = Drafters(model, Path(folder))
        profile = measure(model, seconds=CALIBRATION)
        prompts = held_out(model, PROMPTS)
        for name in NAMES:
            yield row(name, compared(model, partial(drafters.make, name), prompts, profile))


def compared(
    model: LanguageModel, make: Make, prompts: list[Tokens], profile: Profile
) -> dict[str, tuple[float, float, float]]:
    """By budget, over all prompts: tokens, seconds (each prompt's best round) and passes."""
    found = {budget: np.zeros(3) for budget in [*map(str, BUDGETS), AUTO]}
    tasks = {str(budget): task_of(model, budget=budget) for budget in BUDGETS}
    tasks[AUTO] = task_of(model, profile=profile)
    for prompt in prompts:
        latest: dict[str, Decoded] = {}

        def timed(
            budget: str, prompt: Tokens = prompt, latest: dict[str, Decoded] = latest
        ) -> float:
            latest[budget] = tasks[budget].complete(prompt, make())
            return latest[budget].seconds

        warm_up(tasks[AUTO], prompt, make())
        best = in_turns({budget: partial(timed, budget) for budget in found}, ROUNDS)
        for budget, done in latest.items():
            found[budget] += (len(done.token_ids), best[budget], done.passes)
    return {budget: tuple(sums.tolist()) for budget, sums in found.items()}


def row(name: str, found: dict[str, tuple[float, float, float]]) -> Row:
    said = {
        budget: f"{tokens / seconds:,.0f} tokens/s, {tokens / passes:.2f} a pass"
        for budget, (tokens, seconds, passes) in found.items()
    }
    fastest = min(map(str, BUDGETS), key=lambda budget: found[budget][1])
    return Row(
        f"--budget auto, demo on the CPU, {PROMPTS} held-out prompts, drafter {name}",
        said[AUTO],
        f"{said[fastest]}, --budget {fastest}, the best of {', '.join(map(str, BUDGETS))}",
        found[fastest][1] / found[AUTO][1],
        ">= 0.97",
    )
