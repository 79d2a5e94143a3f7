"""`search`: artifacts on the Hub, by the untrusted cards of their repositories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import NgramkitError, UsageError, hint_for_unknown, hub_errors
from ngramkit.basics.limits import LIMITS, SHA256
from ngramkit.basics.models import HUB_IDS, resolve_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.basics.untrusted import whole_number
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.opening import CLASS_OF_KIND
from ngramkit.remote.fetch import silence_client

HUB_TAG = "ngramkit"


@dataclass(frozen=True)
class HubArtifact(Result):
    """An artifact as its card describes it; `problem` is why the card is invalid."""

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
    tokenizer: str | Path | None = None,
    kind: str | None = None,
    *,
    reporter: Reporter = NOTEBOOK_BARS,
) -> Rows[HubArtifact]:
    """Return the artifacts on the Hub, optionally for one tokenizer or of one kind.

    `tokenizer` is a fingerprint, or a model whose tokenizer's fingerprint is compared; if that
    cannot be loaded, names are compared. Raises NetworkError if the Hub does not answer.
    """
    if kind is not None and kind not in CLASS_OF_KIND:
        raise UsageError(
            f"unknown kind {kind!r}", hint_for_unknown(kind, CLASS_OF_KIND), option="kind"
        )
    if tokenizer is not None:
        local = isinstance(tokenizer, Path) or tokenizer.startswith((".", "/", "~"))
        tokenizer = str(resolve_model(tokenizer) if local else tokenizer)
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, paginate  # type: ignore[attr-defined]

    silence_client()
    query = {
        "filter": [HUB_TAG, kind] if kind else HUB_TAG,
        "expand": ["cardData", "downloads", "sha"],
    }
    with hub_errors("the list of artifacts", "list"):
        # Raw JSON: huggingface_hub's classes pass a card's keys as their parameters.
        items = paginate(f"{constants.ENDPOINT}/api/datasets", query, build_hf_headers())
        entries = [entry for entry in map(_read_entry, items) if entry is not None]
    if tokenizer is None:
        return Rows(entries)
    wanted = _tokenizer_identities(tokenizer, reporter)
    return Rows(
        entry for entry in entries if entry.problem or wanted & {entry.fingerprint, entry.tokenizer}
    )


def _tokenizer_identities(tokenizer: str, reporter: Reporter) -> set[str]:
    if SHA256.fullmatch(tokenizer):
        return {tokenizer}
    try:
        return {load_tokenizer(tokenizer).record.fingerprint}
    except NgramkitError as error:
        reporter.note(f"comparing names instead of tokenizers: {error}")
        return {tokenizer, HUB_IDS.get(tokenizer, tokenizer)}


def _read_entry(item: Any) -> HubArtifact | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
        return HubArtifact("?", problem="the Hub's list has an entry without an id")
    card = item.get("cardData")
    facts = card.get(HUB_TAG) if isinstance(card, Mapping) else None
    if facts is None:
        return None
    try:
        return _parse_card(item, facts)
    except (TypeError, ValueError) as error:
        return HubArtifact(
            item["id"][: LIMITS.card_text], problem=f"its card cannot be read: {error}"
        )


def _parse_card(item: Mapping[str, Any], facts: Any) -> HubArtifact:
    if not isinstance(facts, Mapping):
        raise TypeError(f"`{HUB_TAG}` must be a table")
    texts = {
        "id": item["id"],
        "kind": facts.get("kind"),
        "tokenizer": facts.get("tokenizer"),
        "fingerprint": facts.get("fingerprint", ""),
        "revision": item.get("sha") or "",
    }
    counts = {
        "vocabulary": facts.get("vocabulary", 0),
        "bytes": facts.get("bytes", 0),
        "downloads": item.get("downloads") or 0,
    }
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > LIMITS.card_text or not text.isprintable():
            raise ValueError(f"its {name} must be short printable text, got {repr(text)[:40]}")
    for name, count in counts.items():
        if not whole_number(count):
            raise ValueError(f"its {name} must be a whole number, got {repr(count)[:40]}")
    return HubArtifact(**texts, **counts)
