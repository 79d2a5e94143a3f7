"""What a loaded model is to write after prompts; the same with and without drafts, timed fairly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.budget import prepare
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Request
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
    """The best round of each."""

    drafted: Decoded
    baseline: Decoded

    @property
    def speedup(self) -> float:
        return self.baseline.seconds / self.drafted.seconds

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
    seconds: float = 5.0,
) -> Comparison:
    """With and without drafts in turns, so that a drifting machine favours neither.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once `seconds` are spent. Ctrl-C is raised.
    """
    alone = task.undrafted()
    warm_up(task, prompt, make_drafter())
    warm_up(alone, prompt, NoDraft())
    started = time.perf_counter()
    drafted, baseline = [], []
    for _ in range(rounds):
        baseline.append(_whole(alone.complete(prompt, NoDraft())))
        drafted.append(_whole(task.complete(prompt, make_drafter())))
        if time.perf_counter() - started > seconds:
            break
    return Comparison(min(drafted, key=_seconds), min(baseline, key=_seconds))


def _whole(run: Decoded) -> Decoded:
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def _seconds(run: Decoded) -> float:
    return run.seconds
