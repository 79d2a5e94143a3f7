"""What a loaded model is to write after prompts; the same with and without drafts, timed fairly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ngramkit.budget.auto import prepare
from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.lockstep import in_lockstep
from ngramkit.decode.loop import Request, Run
from ngramkit.decode.result import Decoded
from ngramkit.decode.runner import Runner
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.text import StopStrings
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.none import NoDraft
from ngramkit.drafters.references import Given as References
from ngramkit.errors import InputError, UsageError, require_between

WARM_UP = 4  # tokens


@dataclass(frozen=True)
class Task:
    """How every prompt is answered: by which model, in which passes, how long, how chosen."""

    model: LanguageModel
    runner: Runner
    max_new_tokens: int = 128
    sampling: Sampling = GREEDY
    stop: Sequence[str] = ()
    references: References = ()  # what answers are likely to repeat, for the drafter

    def __post_init__(self) -> None:
        require_between("max_new_tokens", self.max_new_tokens, 1)

    def numbered(self, number: int) -> Task:
        """With a seed of its own for every number."""
        sampling = replace(self.sampling, seed=self.sampling.seed + number)
        return replace(self, sampling=sampling)

    def undrafted(self) -> Task:
        """To be measured without drafts."""
        return replace(self, runner=self.runner.undrafted(), references=())

    def open(self, prompt: TokenArray) -> ResumableVerifier:
        """A verifier with room for the prompt, int32[n], its answer and one draft."""
        return self.runner.open(len(prompt) + self.request(prompt).longest)

    def complete(
        self,
        prompt: TokenArray,
        drafter: Drafter,
        sink: Sink | None = None,
        verifier: Verifier | None = None,
    ) -> Decoded:
        """Writes what the model writes after the prompt, int32[n].

        `sink` is called with every written token and whether a draft held it. `verifier`: one that
        holds the prompt's beginning, in place of an empty one. Raises UsageError for an empty
        prompt, InputError for one that is too long.
        """
        return self.runner.decode(self.request(prompt), drafter, sink, verifier)

    def run(self, prompt: TokenArray, drafter: Drafter) -> Run:
        """The same, not begun yet."""
        request = self.runner.budgeted(self.request(prompt), drafter)
        return Run(self.open(prompt), drafter, request)

    def request(self, prompt: TokenArray) -> Request:
        """What the loop is asked for; raises as `complete`."""
        model = self.model
        if len(prompt) == 0:
            raise UsageError("the prompt is empty", "give at least one token of text")
        if model.context is not None and len(prompt) >= model.context:
            raise InputError(
                f"the prompt has {len(prompt):,} tokens, the context of {model.name} "
                f"{model.context:,}",
                "shorten the prompt",
            )
        stop = None
        if self.stop:
            stop = StopStrings(model.tokenizer.backend, prompt, self.stop).completed_by
        return Request(
            prompt=prompt,
            max_new_tokens=self.max_new_tokens,
            budget=self.runner.budget,
            sampling=self.sampling,
            eos=model.eos,
            context=model.context,
            stop=stop,
            references=self.references,
        )


@dataclass(frozen=True)
class Comparison:
    """Of one round, or the best round of each where they could not take turns."""

    drafted: Decoded
    baseline: Decoded
    rounds: tuple[float, ...] = ()  # the speed-up of each
    generate: Decoded | None = None  # transformers' own, where it was asked too

    @property
    def shown_speedup(self) -> str:
        """The speed-up, with the least and the most of all rounds where there were several."""
        if len(self.rounds) < 2:
            return f"{self.speedup:.2f}"
        return f"{self.speedup:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.drafted.seconds

    @property
    def over_generate(self) -> float | None:
        """How many times as fast as transformers' own `generate`; None where that was not asked."""
        if self.generate is None:
            return None
        return self.drafted.tokens_per_second / self.generate.tokens_per_second

    @property
    def identical(self) -> bool:
        return self.drafted.same_tokens(self.baseline)


def warm_up(task: Task, prompt: TokenArray, drafter: Drafter) -> None:
    """A few tokens nobody sees, after the prompt's last: imports and kernels are paid for once.

    Recordings hold for one memory and one size of context: there the whole prompt is read, in the
    memory that the task will be given.
    """
    if task.runner.auto and not isinstance(drafter, NoDraft):
        prepare()
    short = prompt[-WARM_UP:]
    if task.runner.engine == "static":
        task.open(prompt)
        short = prompt
    _whole(replace(task, max_new_tokens=WARM_UP, stop=()).complete(short, drafter))


def compare(
    task: Task,
    prompt: TokenArray,
    make_drafter: Callable[[], Drafter],
    *,
    rounds: int = 3,
    seconds: float = 10.0,
) -> Comparison:
    """With and without drafts, so that a machine that others use as well favours neither: on a CPU
    pass by pass in turns (see `lockstep`), of which the quickest round counts.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once `seconds` are spent. Ctrl-C is raised.
    """
    alone = task.undrafted()
    warm_up(task, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    started = time.perf_counter()
    found: list[Comparison] = []
    for _ in range(rounds):
        found.append(_round(task, alone, prompt, make_drafter()))
        if time.perf_counter() - started > seconds:
            break
    speedups = tuple(each.speedup for each in found)
    if takes_turns(task):
        quickest = min(found, key=lambda each: each.drafted.seconds + each.baseline.seconds)
        return replace(quickest, rounds=speedups)
    drafted = min((each.drafted for each in found), key=_seconds)
    return Comparison(drafted, min((each.baseline for each in found), key=_seconds), speedups)


def takes_turns(task: Task) -> bool:
    """Whether two runs may go on at a time: recordings share their memory, a device may have none
    for a second cache."""
    runner = task.runner
    on_cpu: bool = runner.model.device.type == "cpu"
    return on_cpu and runner.engine == "eager" and runner.cache is None


def _round(task: Task, alone: Task, prompt: TokenArray, drafter: Drafter) -> Comparison:
    if takes_turns(task):
        runs = [task.run(prompt, drafter), alone.run(prompt, NoDraft())]
        drafted, baseline = in_lockstep(runs)
        return Comparison(drafted, baseline)
    baseline = _whole(alone.complete(prompt, NoDraft()))
    return Comparison(_whole(task.complete(prompt, drafter)), baseline)


def _whole(run: Decoded) -> Decoded:
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def _seconds(run: Decoded) -> float:
    return run.seconds
