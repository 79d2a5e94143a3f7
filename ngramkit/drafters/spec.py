"""The syntax that names a drafter with its options, like `rest:max_match=8,budget=16`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ngramkit.basics.errors import UsageError, hint_for_unknown
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.registry import DRAFTERS, drafter_entry

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter

MAX_BUDGET = 4096  # nodes of a draft; attention costs grow with the square


@dataclass(frozen=True)
class DrafterSpec:
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[], Drafter] | None = field(default=None, repr=False)  # of the caller's own
    budget: int | Literal["auto"] = field(default=0, repr=False)  # nodes per pass; 0: not given

    @classmethod
    def parse(cls, given: Any) -> DrafterSpec:
        """Read `NAME` or `NAME:OPTION=VALUE,OPTION=VALUE`, or name the caller's own drafter.

        Raises UsageError for an unknown name or option, and other objects.

        >>> DrafterSpec.parse("rest:max_match=8")
        DrafterSpec(name='rest', options={'max_match': 8})
        """
        if isinstance(given, DrafterSpec):
            return given
        if not isinstance(given, str):
            require_drafter(given, or_maker=True)
            return cls(own_name(given), make=(lambda: given) if is_made(given) else given)
        name, colon, rest = given.partition(":")
        entry = drafter_entry(name)
        if not colon:
            return cls(name)
        takes = {option.name: option for option in entry.options.listed()}
        options: dict[str, Any] = {}
        for part in rest.split(","):
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or not key:
                raise UsageError(
                    f"an option of {name} must be OPTION=VALUE, got {part.strip()!r}",
                    f"Choose from its options: {', '.join(takes) or 'none'}",
                )
            if key not in takes:
                raise UsageError(f"unknown option {key!r} of {name}", hint_for_unknown(key, takes))
            if key in options:
                raise UsageError(f"{key} of {name} must be given once, got it twice")
            options[key] = takes[key].read(value.strip())
        return cls(name, options)

    @classmethod
    def with_budget(cls, given: Any) -> DrafterSpec:
        """Read as `parse`, and a name's `budget` too."""
        if not isinstance(given, str):
            return cls.parse(given)
        plain, budget = split_budget(given)
        return replace(cls.parse(plain), budget=budget)

    @property
    def label(self) -> str:
        """Its name in results, with the given options."""
        plain = str(self)
        budget = f"{',' if ':' in plain else ':'}budget={self.budget}" if self.budget else ""
        return plain + budget

    @property
    def needs_evidence(self) -> bool:
        return self.make is None and DRAFTERS[self.name].needs_evidence

    def __str__(self) -> str:
        options = ",".join(
            f"{key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in self.options.items()
        )
        return f"{self.name}:{options}" if options else self.name


def own_name(drafter: Any) -> str:
    if is_made(drafter):
        return type(drafter).__name__
    return str(getattr(drafter, "__name__", "drafter"))


def is_made(drafter: Any) -> bool:
    """Return whether it is a drafter object, not a name, a class or a function."""
    return hasattr(drafter, "draft") and not isinstance(drafter, type)


def require_not_made(drafter: Any, why: str) -> None:
    """Raise UsageError for a drafter object: it may have learnt from the request before."""
    if is_made(drafter):
        raise UsageError(
            f"drafter must be a name or a class, got one {type(drafter).__name__}",
            f"Give its class, or a function that makes one: {why}.",
            option="drafter",
        )


def split_budget(text: str) -> tuple[str, int | Literal["auto"]]:
    """Split a drafter's name and options from its `budget`: nodes, "auto", or 0 for none.

    >>> split_budget("blend:budget=auto"), split_budget("rest:max_match=8,budget=16")
    (('blend', 'auto'), ('rest:max_match=8', 16))

    Raises UsageError for an invalid budget.
    """
    name, _, rest = text.partition(":")
    parts = rest.split(",") if rest else []
    own = [part for part in parts if part.partition("=")[0].strip() == "budget"]
    if not own:
        return text, 0
    value = own[-1].partition("=")[2].strip()
    sound = value == "auto" or (value.isdecimal() and 0 < int(value[:9]) <= MAX_BUDGET)
    if len(own) > 1 or not sound:
        raise UsageError(
            f"budget of {text!r} must be one number from 1 to {MAX_BUDGET:,}, or auto",
            f"Write {name}:budget=16.",
            option="drafter",
        )
    others = [part for part in parts if part not in own]
    plain = f"{name}:{','.join(others)}" if others else name
    return plain, "auto" if value == "auto" else int(value)
