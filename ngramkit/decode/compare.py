"""A comparison of decoding with and without drafts: the same text, timed fairly.

A machine that other programs use is slower now and faster then, by a fifth within a second. Runs
one after another differ by that. On a CPU both runs therefore go on in turns, a pass at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ngramkit.budget.rule import prepare
from ngramkit.decode.loop import Run
from ngramkit.decode.result import Decoded
from ngramkit.decode.session import Session
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft

WARM_UP = 4  # tokens


@dataclass(frozen=True)
class Comparison:
    """One round with and without drafts, or the best of each where they could not take turns."""

    drafted: Decoded
    baseline: Decoded
    rounds: tuple[float, ...] = ()  # the speed-up of each
    generate: Decoded | None = None  # transformers' own, where it was measured too

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.drafted.seconds

    @property
    def over_generate(self) -> float | None:
        """The speed-up over transformers' own `generate`; None where that was not measured."""
        if self.generate is None:
            return None
        return self.drafted.tokens_per_second / self.generate.tokens_per_second

    @property
    def shown_speedup(self) -> str:
        """The speed-up, with the least and the most of all rounds where there were several."""
        if len(self.rounds) < 2:
            return f"{self.speedup:.2f}"
        return f"{self.speedup:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"

    @property
    def identical(self) -> bool:
        return self.drafted.same_tokens(self.baseline)


def compare(
    session: Session,
    prompt: TokenArray,
    make_drafter: Callable[[], Drafter],
    *,
    rounds: int = 3,
    seconds: float = 10.0,
) -> Comparison:
    """Decode with and without drafts some times; where runs take turns the quickest round counts.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once `seconds` are spent. Ctrl-C is raised.
    """
    alone, in_turns = session.undrafted(), takes_turns(session)
    warm_up(session, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    started = time.perf_counter()
    comparisons: list[Comparison] = []
    for _ in range(rounds):
        drafter = make_drafter()
        if in_turns:
            runs = [session.run(prompt, drafter), alone.run(prompt, NoDraft())]
            drafted, baseline = in_lockstep(runs)
        else:
            baseline = _finished(alone.complete(prompt, NoDraft()))
            drafted = _finished(session.complete(prompt, drafter))
        comparisons.append(Comparison(drafted, baseline))
        if time.perf_counter() - started > seconds:
            break
    speedups = tuple(each.speedup for each in comparisons)
    if in_turns:
        quickest = min(comparisons, key=lambda each: each.drafted.seconds + each.baseline.seconds)
        return replace(quickest, rounds=speedups)
    drafted = min((each.drafted for each in comparisons), key=lambda run: run.seconds)
    baseline = min((each.baseline for each in comparisons), key=lambda run: run.seconds)
    return Comparison(drafted, baseline, speedups)


def warm_up(session: Session, prompt: TokenArray, drafter: Drafter) -> None:
    """Write a few tokens nobody sees after the prompt's last: imports and kernels are paid for
    once."""
    if session.is_auto and not isinstance(drafter, NoDraft):
        prepare()
    short = session.with_options(max_new_tokens=WARM_UP, stop=())
    _finished(short.complete(prompt[-WARM_UP:], drafter))


def takes_turns(session: Session) -> bool:
    """Return whether two runs may go on at a time: a device may have no memory for a second
    cache."""
    on_cpu: bool = session.model.model.device.type == "cpu"
    return on_cpu and session.options.cache is None


def in_lockstep(runs: Sequence[Run]) -> list[Decoded]:
    """Run all to their ends, a pass at a time, always of the run that has written the fewest
    tokens. Each run's clock stands while it is another's turn. Ctrl-C is raised."""
    with torch.inference_mode():
        try:
            for run in runs:
                run.clock.resume()
                run.begin()
            while going := [run for run in runs if not run.ended_by]:
                run = min(going, key=lambda each: each.tokens)
                run.clock.resume()
                run.step()
        finally:
            for run in runs:
                run.clock.resume()
                run.finish()
    return [run.result() for run in runs]


def _finished(run: Decoded) -> Decoded:
    """Return the run; raise KeyboardInterrupt where Ctrl-C ended it."""
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run
