"""The drafters that a caller asks for: names with options, objects, or what makes them.

Each is resolved once; its label names it in results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from ngramkit.basics.errors import UsageError, hint_for_unknown, require_list
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.drafters.spec import DrafterSpec, split_budget

if TYPE_CHECKING:
    from ngramkit.drafters.base import Drafter


@dataclass(frozen=True)
class AskedDrafter:
    label: str
    spec: DrafterSpec
    make: Callable[[], Drafter] | None = None  # creates the caller's own drafter
    budget: int | Literal["auto"] = 0  # nodes per pass; 0: not given

    @classmethod
    def of(cls, drafter: Any) -> AskedDrafter:
        """Resolve a drafter. Raises UsageError for an unknown name or option, and other objects."""
        if isinstance(drafter, AskedDrafter):
            return drafter
        if isinstance(drafter, str):
            spec = DrafterSpec.parse(drafter)
            return cls(str(spec), spec)
        require_drafter(drafter, or_maker=True)
        name = _own_name(drafter)
        return cls(name, DrafterSpec(name), (lambda: drafter) if _is_made(drafter) else drafter)

    @classmethod
    def with_budget(cls, drafter: Any) -> AskedDrafter:
        """Resolve as `of`, and a name's `budget` too."""
        if not isinstance(drafter, str):
            return cls.of(drafter)
        plain, budget = split_budget(drafter)
        asked = cls.of(plain)
        if not budget:
            return asked
        label = f"{asked.label}{',' if ':' in asked.label else ':'}budget={budget}"
        return replace(asked, label=label, budget=budget)

    @property
    def needs_evidence(self) -> bool:
        return self.make is None and DRAFTERS[self.spec.name].needs_evidence


def listed_drafters(drafters: Any) -> list[Any]:
    """Return one drafter or several as a list."""
    if isinstance(drafters, str) or callable(drafters) or hasattr(drafters, "draft"):
        return [drafters]
    require_list("drafters", drafters)
    return list(drafters)


def asked_drafters(
    drafters: Any, resolve: Callable[[Any], AskedDrafter] = AskedDrafter.of
) -> list[AskedDrafter]:
    """Resolve one drafter or several: each name once, own ones of one name numbered (`NAME-2`)."""
    by_label: dict[str, AskedDrafter] = {}
    for asked in map(resolve, listed_drafters(drafters)):
        label = asked.label if asked.make is None else _unused_name(asked.label, by_label)
        by_label.setdefault(label, replace(asked, label=label))
    return list(by_label.values())


def label_among(drafter: Any, labels: Sequence[str]) -> str | None:
    """Return the label of a drafter, given as in `choose_drafter`; None for None.

    Raises UsageError, which lists the labels, for any other one.
    """
    if drafter is None or drafter in labels:
        return drafter  # type: ignore[no-any-return]
    label = drafter if isinstance(drafter, str) else _own_name(drafter)
    with suppress(UsageError):
        label = str(DrafterSpec.parse(label))
    if label not in labels:
        raise UsageError(
            f"unknown drafter {label!r:.80}", hint_for_unknown(label, labels), option="baseline"
        )
    return label


def _own_name(drafter: Any) -> str:
    if _is_made(drafter):
        return type(drafter).__name__
    return str(getattr(drafter, "__name__", "drafter"))


def _is_made(drafter: Any) -> bool:
    return hasattr(drafter, "draft") and not isinstance(drafter, type)


def _unused_name(name: str, taken: Collection[str]) -> str:
    numbered = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
