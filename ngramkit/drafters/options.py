"""Drafter options, in their own module so that errors are raised before kernels are imported."""

from __future__ import annotations

import contextlib
import numbers
from dataclasses import dataclass
from typing import Any

from ngramkit.basics.errors import UsageError, require_between

SWITCH_VALUES = {"true": True, "yes": True, "on": True, "1": True,
          "false": False, "no": False, "off": False, "0": False}  # fmt: skip

# Type of an option -> accepted types, and its name in errors; only bool accepts True.
OPTION_TYPES: dict[type, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "true or false"),
}


@dataclass(frozen=True)
class DrafterOption:
    """One option of a drafter, of the type of its default, int if that is None."""

    name: str
    help: str
    default: Any
    least: float | None = None  # None: no bound
    most: float | None = None

    @property
    def type(self) -> type[int] | type[float] | type[bool]:
        return int if self.default is None else type(self.default)

    def check(self, value: Any) -> None:
        """Raise UsageError for a wrong type or a value out of bounds."""
        if value is None and self.default is None:
            return
        accepted, description = OPTION_TYPES[self.type]
        if not isinstance(value, accepted) or isinstance(value, bool) != (self.type is bool):
            raise UsageError(f"{self.name} must be {description}, got {value!r}", option=self.name)
        if self.least is not None:
            require_between(self.name, value, self.least, self.most)

    @property
    def bounds(self) -> str:
        if self.least is None:
            return ""
        return (
            f"at least {self.least:,}" if self.most is None else f"{self.least:,} to {self.most:,}"
        )

    def read(self, text: str) -> Any:
        value: Any = text
        if self.type is bool:
            value = SWITCH_VALUES.get(text.lower(), text)
        else:
            with contextlib.suppress(ValueError):
                value = self.type(text)
        self.check(value)
        return value


MAX_DEPTH = 31  # maximum depth of nodes that kernels.suffix.draft_tree counts
MAX_OCCURRENCES = 1024  # maximum occurrences that kernels.blend.counts reads at a time

DRAFTER_OPTIONS: dict[str, tuple[DrafterOption, ...]] = {
    "blend": (
        DrafterOption("scan", "read all occurrences up to this number", 48, 1, MAX_OCCURRENCES),
        DrafterOption("sample", "read this many of more occurrences", 256, 8, MAX_OCCURRENCES),
        DrafterOption("hops", "occurrences followed in the context", 128, 0),
    ),
    "rest": (
        DrafterOption("max_match", "the longest match, in tokens", 16, 1),
        DrafterOption("min_match", "the shortest match, in tokens", 1, 1),
        DrafterOption("continuation", "the maximum depth of a draft", 10, 1, MAX_DEPTH),
    ),
    "cacheback": (
        DrafterOption("leader_len", "tokens of a leader", None, 1, 64),
        DrafterOption("follower_len", "tokens of a follower", None, 1, 64),
        DrafterOption("leaders", "leaders remembered", 1 << 20, 1, 1 << 30),
        DrafterOption("followers", "followers remembered of each", 128, 1, 1 << 16),
        DrafterOption("deeper", "nodes kept for deeper levels", 16, 0),
        DrafterOption("keep", "keep what was learnt for the next request", False),
    ),
    "ngrammys": (
        DrafterOption("rows", "parallel chains", 10, 1, 4096),
        DrafterOption("width", "tokens of each", 10, 1, 1024),
        DrafterOption("query", "how many of the last tokens are searched for", 1, 1),
    ),
    "bigram": (
        DrafterOption("rows", "parallel chains", None, 1),
        DrafterOption("width", "tokens of each", None, 1),
    ),
    "context": (
        DrafterOption("query", "how many of the last tokens are searched for", 2, 1),
        DrafterOption("width", "the maximum depth of a draft", 10, 1, 1024),
    ),
    "prompt-lookup": (
        DrafterOption("max_ngram", "the longest n-gram searched for", 2, 1),
        DrafterOption("width", "the maximum depth of a draft", 10, 1, 1024),
    ),
    "recycling": (DrafterOption("keep", "keep what was learnt for the next request", True),),
    "automaton": (
        DrafterOption("threshold", "the shortest match that is copied from", 5, 1),
        DrafterOption("bias", "tokens by which a corpus match must be longer", 5, 0),
        DrafterOption("width", "the maximum of copied tokens", 40, 1, 4096),
        DrafterOption("max_match", "the longest match in a corpus, in tokens", 64, 1),
        DrafterOption("keep", "keep the matrix for the next request", True),
    ),
    "ssd": (
        DrafterOption("query", "the longest match, in tokens", 10, 1),
        DrafterOption("continuation", "the maximum depth of a draft", 24, 1, MAX_DEPTH),
        DrafterOption("least_score", "the least probability of a drafted node", 0.01, 0, 1),
    ),
}


def require_options(drafter: str, **values: Any) -> None:
    """Raise UsageError for an option of a wrong type or out of bounds."""
    for option in DRAFTER_OPTIONS[drafter]:
        option.check(values[option.name])
