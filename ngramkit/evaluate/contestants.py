"""The contestants of a benchmark: drafters, and transformers' own ways.

A drafter may have a budget of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ngramkit.decode.options import MOST_NODES
from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.registry import NoDraft
from ngramkit.errors import UsageError

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.decode.result import Decoded
    from ngramkit.decode.session import Session

BASELINE = "none"
Budget = int | Literal["auto"]  # 0: none of its own
BUDGET = "budget"


@dataclass(frozen=True)
class Contestant:
    """One of a benchmark. `make(remember)` gives a new drafter; with False it forgets its requests.

    `learns`: from finished requests, so that its answers depend on their order. `session`: its own,
    for another budget than the task's. `answer` writes in another way than ours. `wants_evidence`:
    little is left of it without.
    """

    name: str
    make: Callable[[bool], Drafter]
    learns: bool = False
    session: Session | None = None
    answer: Callable[[Session, TokenArray], Decoded] | None = None
    wants_evidence: bool = False

    def task(self, task: Session) -> Session:
        """Return the task with this contestant's budget."""
        if self.name == BASELINE:
            return task.undrafted()
        return task if self.session is None else replace(self.session, options=task.options)


NOBODY = Contestant(BASELINE, lambda remember: NoDraft())


def split_budget(text: str) -> tuple[str, Budget]:
    """Split a drafter's name and options from its `budget`: nodes, "auto", or 0 for none.

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


def transformers_way(name: str, model: LanguageModel) -> Contestant:
    """Return the contestant that is called `name`, one of TRANSFORMERS_WAYS, with its own model."""
    from ngramkit.decode.compare import answer_by

    return Contestant(name, lambda remember: NoDraft(), answer=answer_by(name, model))
