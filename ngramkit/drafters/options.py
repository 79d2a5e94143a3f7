"""Drafter options, in their own module so that errors are raised before kernels are imported."""

from __future__ import annotations

import contextlib
import numbers
from dataclasses import dataclass, field, fields
from typing import Any

from ngramkit.basics.errors import UsageError, require_between

HISTORY_TOKENS = 4_000_000  # newest tokens of past requests that are searched, by default
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


def option(default: Any, help: str, least: float | None = None, most: float | None = None) -> Any:
    return field(default=default, metadata={"help": help, "least": least, "most": most})


@dataclass(frozen=True)
class Options:
    """A drafter's options. Raises UsageError for a value of a wrong type or out of bounds."""

    def __post_init__(self) -> None:
        for each in self.listed():
            each.check(getattr(self, each.name))

    @classmethod
    def listed(cls) -> list[DrafterOption]:
        return [DrafterOption(f.name, default=f.default, **f.metadata) for f in fields(cls)]


MAX_DEPTH = 31  # maximum depth of nodes that kernels.suffix.draft_tree counts
MAX_OCCURRENCES = 1024  # maximum occurrences that kernels.blend.counts reads at a time


@dataclass(frozen=True)
class BlendOptions(Options):
    scan: int = option(48, "read all occurrences up to this number", 1, MAX_OCCURRENCES)
    sample: int = option(256, "read this many of more occurrences", 8, MAX_OCCURRENCES)
    hops: int = option(128, "occurrences followed in the context", 0)


@dataclass(frozen=True)
class RestOptions(Options):
    max_match: int = option(16, "the longest match, in tokens", 1)
    min_match: int = option(1, "the shortest match, in tokens", 1)
    continuation: int = option(10, "the maximum depth of a draft", 1, MAX_DEPTH)


@dataclass(frozen=True)
class CachebackOptions(Options):
    leader_len: int | None = option(None, "tokens of a leader", 1, 64)
    follower_len: int | None = option(None, "tokens of a follower", 1, 64)
    leaders: int = option(1 << 20, "leaders remembered", 1, 1 << 30)
    followers: int = option(128, "followers remembered of each", 1, 1 << 16)
    deeper: int = option(16, "nodes kept for deeper levels", 0)
    keep: bool = option(False, "keep what was learnt for the next request")


@dataclass(frozen=True)
class NgrammysOptions(Options):
    rows: int = option(10, "parallel chains", 1, 4096)
    width: int = option(10, "tokens of each", 1, 1024)
    query: int = option(1, "how many of the last tokens are searched for", 1)


@dataclass(frozen=True)
class BigramOptions(Options):
    rows: int | None = option(None, "parallel chains", 1)
    width: int | None = option(None, "tokens of each", 1)


@dataclass(frozen=True)
class ContextOptions(Options):
    query: int = option(2, "how many of the last tokens are searched for", 1)
    width: int = option(10, "the maximum depth of a draft", 1, 1024)


@dataclass(frozen=True)
class PromptLookupOptions(Options):
    max_ngram: int = option(2, "the longest n-gram searched for", 1)
    width: int = option(10, "the maximum depth of a draft", 1, 1024)


@dataclass(frozen=True)
class RecyclingOptions(Options):
    keep: bool = option(True, "keep what was learnt for the next request")


@dataclass(frozen=True)
class AutomatonOptions(Options):
    threshold: int = option(5, "the shortest match that is copied from", 1)
    bias: int = option(5, "tokens by which a corpus match must be longer", 0)
    width: int = option(40, "the maximum of copied tokens", 1, 4096)
    max_match: int = option(64, "the longest match in a corpus, in tokens", 1)
    keep: bool = option(True, "keep the matrix for the next request")


@dataclass(frozen=True)
class SsdOptions(Options):
    query: int = option(10, "the longest match, in tokens", 1)
    continuation: int = option(24, "the maximum depth of a draft", 1, MAX_DEPTH)
    least_score: float = option(0.01, "the least probability of a drafted node", 0, 1)
