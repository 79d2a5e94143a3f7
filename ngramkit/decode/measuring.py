"""Passes timed: every draft size behind every length of context, in turns."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from ngramkit.budget.profile import Pass, Profile
from ngramkit.budget.static_sizes import SIZES as STATIC_SIZES
from ngramkit.decode.base import Verifier
from ngramkit.decode.device import device_facts
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.runner import Runner
from ngramkit.decode.verify_chain import ChainVerifier
from ngramkit.drafters.base import DraftTree
from ngramkit.progress import SILENT, Reporter

SIZES = {
    "eager": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96),
    # Both ends of what costs the same, so that nothing is interpolated across a step.
    "static": tuple(sorted({*STATIC_SIZES, *(size + 1 for size in STATIC_SIZES[:-1])})),
}
CONTEXTS = (32, 128, 512, 2048, 8192)
LEAST_ROUNDS = 4


def measure(
    model: LanguageModel,
    *,
    engine: str = "auto",
    sizes: Sequence[int] | None = None,
    contexts: Sequence[int] = CONTEXTS,
    seconds: float = 10.0,
    reporter: Reporter = SILENT,
) -> Profile:
    """The best of some rounds for every size and context, in turns, for about `seconds`.

    A pass is timed until the chosen tokens are on the host. Contexts of which LEAST_ROUNDS rounds
    would not fit into `seconds` are left out, but never the shortest; where not even its do, it
    ends all the same, and `reporter` is told. 0: the least rounds of everything.
    """
    settled = Runner.of(model.model, engine=engine, budget=1)
    engine, verify = settled.engine, "chain" if settled.verify == "chain" else "tree"
    sizes = SIZES[engine] if sizes is None else sizes
    runner = Runner(model.model, engine, verify, max(sizes))
    longest = model.context or max(contexts) + max(sizes) + 1
    fitting = [context for context in contexts if context + max(sizes) < longest] or [1]
    reporter.stage("passes", seconds, "seconds")
    clock = _Clock(seconds, reporter)
    with torch.inference_mode():
        verifiers, first = _begun(runner, fitting, sizes, clock)
        times: dict[tuple[int, int], list[float]] = {key: [] for key in first}
        rounds = 0
        while rounds < LEAST_ROUNDS or (seconds and not clock.over):
            for (context, size), found in times.items():
                if clock.over:
                    break
                found.append(timed(verifiers[context], size))
                clock.tick()
            if clock.over:
                break
            rounds += 1
    if rounds < LEAST_ROUNDS:
        reporter.note(
            f"{rounds} of {LEAST_ROUNDS} rounds fit into {seconds:g} s: give more time, or "
            "calibrate again when the machine has less to do"
        )
    facts = device_facts(model.model)
    passes = [
        Pass(size, context, *best(times[context, size] or [first[context, size]]))
        for context, size in times
    ]
    return Profile(model.name, facts["device"], facts["dtype"], engine, passes)


def best(times: Sequence[float]) -> tuple[float, float]:
    """Seconds of the best, and by what share the median took longer."""
    return min(times), float(np.median(times)) / min(times) - 1


class _Clock:
    """How much of `seconds` is over; 0: never."""

    def __init__(self, seconds: float, reporter: Reporter) -> None:
        self._seconds, self._reporter = seconds, reporter
        self._started = time.perf_counter()
        self._told = 0.0

    @property
    def over(self) -> bool:
        return bool(self._seconds) and self.passed >= self._seconds

    @property
    def passed(self) -> float:
        return time.perf_counter() - self._started

    def has(self, seconds: float) -> bool:
        """Whether so much more fits."""
        return not self._seconds or self.passed + seconds <= self._seconds

    def tick(self) -> None:
        now = min(self.passed, self._seconds)
        self._reporter.advance(now - self._told)
        self._told = now

    def note(self, text: str) -> None:
        self._reporter.note(text)


def _begun(
    runner: Runner, contexts: Sequence[int], sizes: Sequence[int], clock: _Clock
) -> tuple[dict[int, Verifier], dict[tuple[int, int], float]]:
    """A verifier per context that there is time for, and a first round, by context and size.

    Memory and kernels are new to the first round, so it counts only where no other fits; it also
    says what the others will take.
    """
    begun: dict[int, Verifier] = {}
    first: dict[tuple[int, int], float] = {}
    for context in contexts:
        if begun and not clock.has(2 * LEAST_ROUNDS * sum(first.values())):
            clock.note(f"contexts from {context:,} tokens on are left out: too little time")
            break
        begun[context] = filled(runner, context)
        for size in sizes:
            first[context, size] = timed(begun[context], size)
            clock.tick()
    return begun, first


def filled(runner: Runner, context: int) -> Verifier:
    vocabulary = int(runner.model.config.get_text_config().vocab_size)
    verifier = runner.open(context + 1)
    verifier.prefill(np.arange(context, dtype=np.int32) % vocabulary)
    return verifier


def timed(verifier: Verifier, size: int) -> float:
    nodes = np.arange(size, dtype=np.int32)
    parents = nodes - 1 if isinstance(verifier, ChainVerifier) else (nodes - 1) // 2
    tree = DraftTree(nodes, parents, np.zeros(size, np.float32), np.zeros(size, np.uint8))
    started = time.perf_counter()
    verifier.verify(0, tree).argmax(-1).tolist()
    return time.perf_counter() - started
