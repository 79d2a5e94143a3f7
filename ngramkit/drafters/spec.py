"""A drafter and its options in one text: `rest:max_match=8,continuation=12`.

The options are those that its constructor declares (see `drafter_options`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ngramkit.drafters import drafter_entry, drafter_options
from ngramkit.errors import UsageError


@dataclass(frozen=True)
class DrafterSpec:
    """A drafter's name and the options that were given, as values."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DrafterSpec:
        """`NAME` or `NAME:OPTION=VALUE,OPTION=VALUE`.

        >>> DrafterSpec.parse("rest:max_match=8")
        DrafterSpec(name='rest', options={'max_match': 8})

        Raises UsageError, naming the right ones, for an unknown name or option, an option given
        twice, and a value that is out of bounds.
        """
        name, colon, rest = text.partition(":")
        drafter_entry(name)
        known = {option.name: option for option in drafter_options(name)}
        options: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or not key:
                raise UsageError(
                    f"{part.strip()!r} is no option of the drafter {name}",
                    f"write {name}:OPTION=VALUE,...; {_listed(known)}",
                )
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                raise UsageError(
                    f"the drafter {name} has no option {key!r}", f"{meant}{_listed(known)}"
                )
            if key in options:
                raise UsageError(f"{key} is given twice to the drafter {name}", "give it once")
            options[key] = known[key].read(value.strip())
        return cls(name, options)

    def __str__(self) -> str:
        """What `parse` reads."""
        given = ",".join(f"{key}={_text(value)}" for key, value in self.options.items())
        return f"{self.name}:{given}" if given else self.name


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(known: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(known)}" if known else "it has none"
