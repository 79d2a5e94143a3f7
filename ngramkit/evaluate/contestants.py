"""Who takes part in a benchmark, and how each is told: a drafter, at a budget of its own if given,
or one of transformers' own ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ngramkit.decode.foreign import OPTIONS, written_by
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.result import Decoded
from ngramkit.decode.runner import MOST_NODES, Runner
from ngramkit.decode.task import Task
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.none import NoDraft
from ngramkit.errors import UsageError

BASELINE = "none"
Budget = int | Literal["auto"]  # 0: none of its own
BUDGET = "budget"


@dataclass(frozen=True)
class Contestant:
    """`make(remember)` gives a new drafter; one made with False forgets what it has written.

    `learns`: from finished requests, so that its answers depend on their order. `runner`: its own,
    for another budget than the task's. `answer` writes in another way than ours. `listens`: little
    is left of it without Evidence.
    """

    name: str
    make: Callable[[bool], Drafter]
    learns: bool = False
    runner: Runner | None = None
    answer: Callable[[Task, TokenArray], Decoded] | None = None
    listens: bool = False

    def task(self, task: Task) -> Task:
        """The same with this contestant's budget."""
        if self.name == BASELINE:
            return task.undrafted()
        return task if self.runner is None else replace(task, runner=self.runner)


NOBODY = Contestant(BASELINE, lambda remember: NoDraft())


def foreign(name: str, model: LanguageModel) -> Contestant:
    """One of `ngramkit.decode.foreign.OPTIONS`, with a model of its own."""
    return Contestant(name, lambda remember: NoDraft(), answer=written_by(name, model))


def is_foreign(name: object) -> bool:
    return name in OPTIONS


def split_budget(text: str) -> tuple[str, Budget]:
    """A drafter's name and options without `budget`, and that: nodes, "auto", or 0 for none given.

    >>> split_budget("blend:budget=auto"), split_budget("rest:max_match=8,budget=16")
    (('blend', 'auto'), ('rest:max_match=8', 16))

    Raises UsageError for a budget that is none.
    """
    name, _, rest = text.partition(":")
    parts = rest.split(",") if rest else []
    own = [part for part in parts if part.partition("=")[0].strip() == BUDGET]
    if not own:
        return text, 0
    value = own[-1].partition("=")[2].strip()
    sound = value == "auto" or (value.isdecimal() and 0 < int(value[:9]) <= MOST_NODES)
    if len(own) > 1 or not sound:
        raise UsageError(
            f"budget of {text!r} must be one number from 1 to {MOST_NODES:,}, or auto",
            f"write {name}:budget=16",
            option="drafter",
        )
    others = [part for part in parts if part not in own]
    plain = f"{name}:{','.join(others)}" if others else name
    return plain, "auto" if value == "auto" else int(value)
