"""The options of a drafter: its constructor's annotated parameters, and their bounds.

A constructor declares `scan: Annotated[int, Limits("read whole up to so many", 1, 1024)] = 48` and
is decorated with `within_limits`; then every call is checked, and `options_of` lists the options.
Parameters without Limits are sources or internals, not options.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Union, get_args, get_origin, get_type_hints

from ngramkit.errors import UsageError, require_between

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
class Limits:
    """One line of help, and the values allowed, both ends included."""

    help: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class DrafterOption:
    """One option of a drafter, as its constructor declares it."""

    name: str
    type: type[int] | type[float] | type[bool]
    default: Any  # None: the drafter, or its artifact, decides
    least: float | None  # None: no bound
    most: float | None
    help: str

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
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"

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


def options_of(drafter: type) -> list[DrafterOption]:
    """Return a drafter class's options, in the order of its constructor."""
    return list(_declared(drafter.__init__))  # type: ignore[misc]


def within_limits(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate a constructor so that it checks its options first."""

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        given = inspect.signature(init).bind(*args, **kwargs).arguments
        for option in _declared(init):
            if option.name in given:
                option.check(given[option.name])
        init(*args, **kwargs)

    return checked


@functools.cache
def _declared(init: Callable[..., None]) -> tuple[DrafterOption, ...]:
    init = inspect.unwrap(init)
    hints = get_type_hints(init, include_extras=True)
    options = []
    for name, parameter in inspect.signature(init).parameters.items():
        kind, *extras = get_args(hints.get(name, Any)) or (Any,)
        for limits in (extra for extra in extras if isinstance(extra, Limits)):
            bounds = (limits.least, limits.most)
            default = parameter.default
            options.append(DrafterOption(name, _plain(kind), default, *bounds, limits.help))
    return tuple(options)


def _plain(kind: Any) -> Any:
    """Return int for `int | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    return kind
