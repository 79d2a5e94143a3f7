"""Names of corpora in default places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngramkit.corpus.columns import CONVERSATION_COLUMNS, TEXT_COLUMNS
from ngramkit.formats.manifest import parts_of
from ngramkit.formats.outputs import ARTIFACTS, default_place, short_name

# Facts of a record known after reading the text.
COUNTED_FACTS = ("licenses", "left_out", "bad_records")


def default_artifact_paths(
    record: Mapping[str, Any], *parts: str, otherwise: str = "corpus", folder: Path = ARTIFACTS
) -> list[Path]:
    """Return `folder`/CORPUS-SELECTION-PART-..., and its name in 0.2.0, without the selection."""
    corpus, selection = corpus_name(record, otherwise), selection_name(record)
    cuts = [(corpus, selection), (corpus,)] if selection else [(corpus,)]
    return [default_place(*cut, *parts, folder=folder) for cut in cuts]


def corpus_name(record: Mapping[str, Any], otherwise: str = "corpus") -> str:
    parts = parts_of(record, "mixed") or [record]
    return "-".join(short_name(str(part.get("id", otherwise))) for part in parts)


def selection_name(record: Mapping[str, Any]) -> str:
    """Return the column, sample, seed and limit of a corpus, without usual columns.

    >>> selection_name({"id": "chats", "column": "answer", "sample": 0.1, "seed": 0, "limit": 50})
    'answer-sample0.1-limit50'
    """
    first = (parts_of(record, "mixed") or [record])[0]
    names = []
    column, dataset = first.get("column"), first.get("dataset")
    has_own_column = dataset is not None and dataset != first.get("id")  # a named corpus
    if column and not has_own_column and column not in (*TEXT_COLUMNS, *CONVERSATION_COLUMNS):
        names.append(str(column))
    if "sample" in first:
        names.append(f"sample{first['sample']:g}")
    if first.get("seed"):
        names.append(f"seed{first['seed']}")
    if "limit" in record:
        names.append(f"limit{record['limit']}")
    return "-".join(names)


def selection_text(record: Mapping[str, Any]) -> str:
    """Return which part of a corpus was kept, as "sample 0.1, limit 50", "" for all of it."""
    cuts = [f"{name} {record[name]}" for name in ("sample", "limit") if name in record]
    cuts += filter(None, map(selection_text, parts_of(record)))
    return ", ".join(dict.fromkeys(cuts))


def whole_corpus(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the corpus without its selection, and without what was counted."""
    return {
        name: value
        for name, value in record.items()
        if name not in ("sample", "weight", "seed", "limit", *COUNTED_FACTS)
    }


def planned_corpus(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without the facts that are counted while the text is read."""
    return {name: value for name, value in record.items() if name not in COUNTED_FACTS}


def without_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a corpus whose files changed while they were read."""
    facts = {name: value for name, value in record.items() if name != "sha256"}
    if mixed := parts_of(record, "mixed"):
        facts["mixed"] = [without_checksum(part) for part in mixed]
    return facts
