"""A prompt decoded with a loaded model, and the same with and without drafts, timed fairly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ngramkit.decode.base import ResumableVerifier, Sink, Verifier
from ngramkit.decode.budget import AutoBudget
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.profile import Profile
from ngramkit.decode.result import Decoded
from ngramkit.decode.sampling import GREEDY, Sampling
from ngramkit.decode.text import StopStrings
from ngramkit.decode.verifiers import engine_of, open_verifier
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.none import NoDraft
from ngramkit.errors import InputError, UsageError, require_between

MOST_NODES = 4096  # of a draft; attention to itself grows with their square
WARM_UP = 4  # tokens


@dataclass(frozen=True)
class Task:
    """What to write, before it is known which model writes it.

    `budget` None: by the device, or with a `profile` what pays for its time (then `budget` is the
    most it may be). `verify` None: in trees where the model can take them. `engine`: see
    ngramkit.decode.verifiers.engine_of.
    """

    prompt: TokenArray  # int32[n]
    max_new_tokens: int = 128
    budget: int | None = None
    sampling: Sampling = GREEDY
    stop: Sequence[str] = ()
    verify: str | None = None
    profile: Profile | None = None
    engine: str = "auto"

    def __post_init__(self) -> None:
        if len(self.prompt) == 0:
            raise UsageError("the prompt is empty", "give at least one token of text")
        require_between("max_new_tokens", self.max_new_tokens, 1)
        if self.budget is not None:
            require_between("budget", self.budget, 0, MOST_NODES)


def complete(
    model: LanguageModel,
    drafter: Drafter,
    task: Task,
    sink: Sink | None = None,
    verifier: Verifier | None = None,
) -> Decoded:
    """Writes what `model` writes after the prompt. Raises InputError where the prompt is too long.

    `sink` is called with every written token and whether a draft held it. `verifier`: one that
    holds the prompt's beginning, in place of an empty one.
    """
    request = _request(model, drafter, task)
    return decode(verifier or open_for(model, task), drafter, request, sink)


def _request(model: LanguageModel, drafter: Drafter, task: Task) -> Request:
    request = request_for(model, task)
    if task.profile is None:
        return request
    auto = AutoBudget(task.profile, drafter)
    most = auto.most if task.budget is None else min(task.budget, auto.most)
    return replace(request, auto=auto, budget=most)


def open_for(model: LanguageModel, task: Task) -> ResumableVerifier:
    """A verifier with room for the task's prompt, its output and one draft."""
    request = request_for(model, task)
    nodes = request.budget if task.profile is None else task.profile.sizes[-1]
    room = len(task.prompt) + request.longest + nodes
    return open_verifier(model.model, task.verify, task.engine, room=room)


def request_for(model: LanguageModel, task: Task) -> Request:
    if model.context is not None and len(task.prompt) >= model.context:
        raise InputError(
            f"the prompt has {len(task.prompt):,} tokens, the context of {model.name} "
            f"{model.context:,}",
            "shorten the prompt",
        )
    stop = None
    if task.stop:
        strings = StopStrings(model.tokenizer.backend, task.prompt, task.stop)
        stop = strings.completed_by
    return Request(
        prompt=task.prompt,
        max_new_tokens=task.max_new_tokens,
        budget=model.default_budget if task.budget is None else task.budget,
        sampling=task.sampling,
        eos=model.eos,
        context=model.context,
        stop=stop,
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


def warm_up(model: LanguageModel, drafter: Drafter, task: Task) -> None:
    """A few tokens nobody sees, after the prompt's last: imports and kernels are paid for once.

    Recordings hold for one memory and one size of context: there the whole prompt is read, in the
    memory that the task will be given.
    """
    prompt = task.prompt[-WARM_UP:]
    if engine_of(model.model, task.engine, task.verify) == "static":
        open_for(model, task)
        prompt = task.prompt
    short = replace(task, prompt=prompt, max_new_tokens=WARM_UP, stop=())
    _whole(complete(model, drafter, short))


def compare(
    model: LanguageModel,
    make_drafter: Callable[[], Drafter],
    task: Task,
    *,
    rounds: int = 3,
    seconds: float = 5.0,
) -> Comparison:
    """With and without drafts in turns, so that a drifting machine favours neither.

    Every round has a new drafter, or the second would have learnt the answer from the first. After
    the first round, stops once `seconds` are spent. Ctrl-C is raised.
    """
    warm_up(model, make_drafter(), task)
    warm_up(model, NoDraft(), task)
    started = time.perf_counter()
    drafted, baseline = [], []
    for _ in range(rounds):
        baseline.append(_whole(complete(model, NoDraft(), replace(task, profile=None))))
        drafted.append(_whole(complete(model, make_drafter(), task)))
        if time.perf_counter() - started > seconds:
            break
    return Comparison(min(drafted, key=_seconds), min(baseline, key=_seconds))


def _whole(run: Decoded) -> Decoded:
    if run.ended_by == "interrupt":
        raise KeyboardInterrupt
    return run


def _seconds(run: Decoded) -> float:
    return run.seconds
