"""The artifacts on the Hub, by what their cards say. Cards are strangers' words.

A card that cannot be read is an entry that says so: whoever wrote it spoils nobody's search. Knows
nothing of the artifacts' files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ngramkit.errors import hub_errors
from ngramkit.remote.pull import TAG, quiet
from ngramkit.results import Result

LONGEST = 200  # characters of a kind, an id or a fingerprint that a card may name
LARGEST = 1 << 63


@dataclass(frozen=True)
class Found(Result):
    """An artifact on the Hub, as its card describes it; `problem` says why a card has no say."""

    id: str
    kind: str = ""
    tokenizer: str = ""
    fingerprint: str = ""
    vocabulary: int = 0
    bytes: int = 0
    revision: str = ""
    downloads: int = 0
    problem: str = ""


def search(
    tokenizers: Callable[[], set[str]] | None = None, kind: str | None = None
) -> Iterator[Found]:
    """Yield every artifact that is tagged so; where a card cannot be read, with its problem.

    `tokenizers` gives the fingerprints or names to look for, and is called once the Hub has
    answered. Raises NetworkError where the Hub does not answer.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, paginate  # type: ignore[attr-defined]

    quiet()
    wanted: set[str] | None = None
    query = {"filter": [TAG, kind] if kind else TAG, "expand": ["cardData", "downloads", "sha"]}
    with hub_errors("the Hub's list of artifacts", "list"):
        # As raw JSON: huggingface_hub's own classes take a card's keys for their parameters.
        for item in paginate(f"{constants.ENDPOINT}/api/datasets", query, build_hf_headers()):
            if tokenizers is not None and wanted is None:
                wanted = tokenizers()
            found = read_card(item)
            if found is not None and (wanted is None or found.problem or _fits(found, wanted)):
                yield found


def _fits(found: Found, wanted: set[str]) -> bool:
    return bool(wanted & {found.fingerprint, found.tokenizer})


def read_card(item: Any) -> Found | None:
    """One entry of the Hub's list; None where the card does not speak of ngramkit."""
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
        return Found("?", problem="an entry of the list that names no repository")
    card = item.get("cardData")
    facts = card.get(TAG) if isinstance(card, Mapping) else None
    if facts is None:
        return None
    try:
        return _read(item, facts)
    except (TypeError, ValueError) as error:
        return Found(item["id"][:LONGEST], problem=f"its card cannot be read: {error}")


def _read(item: Mapping[str, Any], facts: Any) -> Found:
    if not isinstance(facts, Mapping):
        raise TypeError(f"`{TAG}` is no table")
    return Found(
        id=_text("id", item["id"]),
        kind=_text("kind", facts.get("kind")),
        tokenizer=_text("tokenizer", facts.get("tokenizer")),
        fingerprint=_text("fingerprint", facts.get("fingerprint", "")),
        vocabulary=_count("vocabulary", facts.get("vocabulary", 0)),
        bytes=_count("bytes", facts.get("bytes", 0)),
        revision=_text("sha", item.get("sha") or ""),
        downloads=_count("downloads", item.get("downloads") or 0),
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        raise ValueError(f"its {name} is {repr(value)[:40]}")
    return value


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < LARGEST:
        raise ValueError(f"its {name} is {repr(value)[:40]}")
    return value
