"""The drafters that a caller asks for: names with options, objects, or what makes them.

Each is resolved once; its label names it in results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from ngramkit.basics.errors import UsageError, hint_for_unknown, require_list
from ngramkit.basics.progress import Reporter
from ngramkit.drafters.checked import require_drafter
from ngramkit.drafters.spec import DrafterSpec, is_made, own_name


def listed_drafters(drafters: Any) -> list[Any]:
    """Return one drafter or several as a list."""
    if isinstance(drafters, str) or callable(drafters) or hasattr(drafters, "draft"):
        return [drafters]
    require_list("drafters", drafters)
    return list(drafters)


def asked_drafters(
    drafters: Any,
    reporter: Reporter,
    resolve: Callable[[Any], DrafterSpec] = DrafterSpec.parse,
) -> list[DrafterSpec]:
    """Resolve one drafter or several: each name once, own ones of one name numbered (`NAME-2`)."""
    by_label: dict[str, DrafterSpec] = {}
    for given in listed_drafters(drafters):
        asked = resolve(given)
        if asked.make is not None:
            asked = replace(asked, name=_unused_name(asked.name, by_label))
        if is_made(given):
            reporter.note(
                f"{asked.name} is one object for all requests: what it learns from an answer "
                "flatters the next figures; give its class"
            )
        by_label.setdefault(asked.label, asked)
    return list(by_label.values())


def label_among(drafter: Any, labels: Sequence[str]) -> str | None:
    """Return the label of a drafter, given as in `choose_drafter`; None for None.

    Raises UsageError, which lists the labels, for any other one, and for other objects.
    """
    if drafter is None or drafter in labels:
        return drafter  # type: ignore[no-any-return]
    if not isinstance(drafter, str):
        require_drafter(drafter, or_maker=True, name="baseline")
    label = drafter if isinstance(drafter, str) else own_name(drafter)
    with suppress(UsageError):
        label = str(DrafterSpec.parse(label))
    if label not in labels:
        raise UsageError(
            f"unknown drafter {label!r:.80}", hint_for_unknown(label, labels), option="baseline"
        )
    return label


def _unused_name(name: str, taken: Collection[str]) -> str:
    numbered = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
