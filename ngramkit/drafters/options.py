"""The options of the drafters: names, types, defaults, bounds, a line of help.

They stand here and not beside the constructors, so that a wrong one is refused before kernels are
imported. A constructor takes them as keywords, with the same defaults, and is decorated with
`within_limits`, which checks every call.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from ngramkit.basics.errors import UsageError, require_between

P = ParamSpec("P")
SWITCH = {"true": True, "yes": True, "on": True, "1": True,
          "false": False, "no": False, "off": False, "0": False}  # fmt: skip

# An option's type -> the values it takes, and a description of them; only bool takes True.
TYPES: dict[type, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "true or false"),
}


@dataclass(frozen=True)
class DrafterOption:
    """One option of a drafter. The type is that of its default; where that is None, and the drafter
    or its artifact decides, a whole number."""

    name: str
    help: str
    default: Any
    least: float | None = None  # None: no bound
    most: float | None = None

    @property
    def type(self) -> type[int] | type[float] | type[bool]:
        return int if self.default is None else type(self.default)

    def check(self, value: Any) -> None:
        """Raise UsageError where `value` is of another type or out of bounds; None is allowed where
        it is the default."""
        if value is None and self.default is None:
            return
        accepted, description = TYPES[self.type]
        if not isinstance(value, accepted) or isinstance(value, bool) != (self.type is bool):
            raise UsageError(f"{self.name} must be {description}, is {value!r}", option=self.name)
        if self.least is not None:
            require_between(self.name, value, self.least, self.most)

    @property
    def bounds(self) -> str:
        """Return `1 to 31` or `at least 1`; empty where any value will do."""
        if self.least is None:
            return ""
        return (
            f"at least {self.least:,}" if self.most is None else f"{self.least:,} to {self.most:,}"
        )

    def read(self, text: str) -> Any:
        """Return the value of `text`. Raises UsageError as `check` does."""
        value: Any = text
        if self.type is bool:
            value = SWITCH.get(text.lower(), text)
        else:
            with contextlib.suppress(ValueError):
                value = self.type(text)
        self.check(value)
        return value


DEEPEST = 31  # of the nodes that kernels.suffix.draft_tree counts
OCCURRENCES = 1024  # which kernels.blend.counts reads at a time

OPTIONS: dict[str, tuple[DrafterOption, ...]] = {
    "blend": (
        DrafterOption("scan", "read every occurrence of up to so many", 48, 1, OCCURRENCES),
        DrafterOption("sample", "read so many of more occurrences", 256, 8, OCCURRENCES),
        DrafterOption("hops", "occurrences followed in the live context", 128, 0),
    ),
    "rest": (
        DrafterOption("max_match", "the longest match, in tokens", 16, 1),
        DrafterOption("min_match", "the shortest match, in tokens", 1, 1),
        DrafterOption("continuation", "how deep a draft goes", 10, 1, DEEPEST),
    ),
    "cacheback": (
        DrafterOption("leader_len", "tokens of a leader", None, 1, 64),
        DrafterOption("follower_len", "tokens of a follower", None, 1, 64),
        DrafterOption("leaders", "leaders remembered", 1 << 20, 1, 1 << 30),
        DrafterOption("followers", "followers remembered of each", 128, 1, 1 << 16),
        DrafterOption("deeper", "nodes kept for deeper levels", 16, 0),
        DrafterOption("keep", "remember what was learnt for the next request", False),
    ),
    "ngrammys": (
        DrafterOption("rows", "drafts side by side", 10, 1, 4096),
        DrafterOption("width", "tokens of each", 10, 1, 1024),
        DrafterOption("query", "how many of the last tokens are looked for", 1, 1),
    ),
    "bigram": (
        DrafterOption("rows", "drafts side by side", None, 1),
        DrafterOption("width", "tokens of each", None, 1),
    ),
    "context": (
        DrafterOption("query", "how many of the last tokens are looked for", 2, 1),
        DrafterOption("width", "how deep a draft goes", 10, 1, 1024),
    ),
    "prompt-lookup": (
        DrafterOption("max_ngram", "the longest n-gram looked for", 2, 1),
        DrafterOption("width", "how deep a draft goes", 10, 1, 1024),
    ),
    "recycling": (DrafterOption("keep", "remember what was learnt for the next request", True),),
    "automaton": (
        DrafterOption("threshold", "the shortest match that is copied from", 5, 1),
        DrafterOption("bias", "tokens that a match in a corpus is worth less", 5, 0),
        DrafterOption("width", "tokens copied at most", 40, 1, 4096),
        DrafterOption("max_match", "the longest match in a corpus, in tokens", 64, 1),
        DrafterOption("keep", "remember the matrix for the next request", True),
    ),
    "ssd": (
        DrafterOption("query", "the longest match, in tokens", 10, 1),
        DrafterOption("continuation", "how deep a draft goes", 24, 1, DEEPEST),
        DrafterOption("least_score", "no node less probable is drafted", 0.01, 0, 1),
    ),
}


def within_limits(drafter: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate the constructor of `drafter` so that it checks its options first."""

    def decorated(init: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(init)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for option in OPTIONS[drafter]:
                if option.name in kwargs:
                    option.check(kwargs[option.name])
            init(*args, **kwargs)

        return checked

    return decorated
