"""Where artifacts are when nobody says, what they are called there, and which there are.

    artifacts/CORPUS-MODEL-KIND            built because somebody asked for it
    artifacts/automatic/CORPUS-MODEL-KIND  built by a command that needed one and found none

An artifact's bytes do not tell who asked for it, and must not: the same inputs give the same bytes.
So the folder is the mark; moved up by one, an artifact is its user's own.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError
from ngramkit.formats.manifest import NAME, Manifest, read_manifest

ARTIFACTS = Path("artifacts")
AUTOMATIC = ARTIFACTS / "automatic"
SHORT = {"frozen-table": "frozen", "model-bigram": "bigram", "model-unigram": "unigram"}
LONGEST = 60  # characters of a part
# What a file's name ends in; the name says what it holds without them.
ENDINGS = re.compile(r"(\.(txt|md|py|jsonl|json|parquet|arrow|gz|zst|bz2|xz|zip))+$")


def default_place(*parts: str, folder: Path = ARTIFACTS) -> Path:
    """`folder`/PART-PART-..., each part by its `short_name`, kinds as people call them.

    ("data/*.jsonl", "./llama-2", "frozen-table") -> artifacts/data-llama-2-frozen
    """
    names = [SHORT.get(part, short_name(part)) for part in parts]
    return folder / "-".join(name for name in names if name)


def corpus_name(record: Mapping[str, Any], otherwise: str = "corpus") -> str:
    """What a corpus is called in a file's name, by its record; of a mixture, each one's name."""
    parts = record.get("mixed") or [record]
    return "-".join(short_name(str(part.get("id", otherwise))) for part in parts)


def short_name(text: str) -> str:
    """What a corpus or model is called in a file's name: the last part of a path or a Hub id.

    "/data/chats/train-*.parquet" -> chats, "notes.txt" -> notes, "hf:me/code:python" -> code-python
    """
    parts = [part for part in re.split(r"[/\\]", text.removeprefix("hf:")) if part not in ("", ".")]
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    last = parts[max(wild - 1, 0)] if parts else ""
    return _plain(ENDINGS.sub("", last)) or _plain(last)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+\.?", "-", text)[:LONGEST].strip("-.")


@dataclass(frozen=True)
class Found:
    """An artifact's folder and its manifest, or why that cannot be read."""

    path: Path
    manifest: Manifest | None
    problem: str = ""


def artifacts_in(folder: Path) -> Iterator[Found]:
    """Every finished artifact right below `folder`, by name."""
    for manifest_path in sorted(folder.glob(f"*/{NAME}")):
        path = manifest_path.parent
        if path.suffix == ".partial":
            continue
        try:
            yield Found(path, read_manifest(path))
        except ArtifactError as error:
            yield Found(path, None, str(error))
