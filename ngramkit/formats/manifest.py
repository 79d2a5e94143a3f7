"""manifest.json: what an artifact is, what it was made from, and every file's size and checksum.

    {
      "format": "ngramkit", "version": 1, "kind": "datastore",
      "build": sha256 over everything that decided the bytes (see `build_id`),
      "parameters": {...}, "counts": {"documents": ..., "tokens": ...},
      "tokenizer": {"id", "vocabulary", "fingerprint", "eos"},
      "corpus": {"id", "revision", "split", "sample", "seed", "licenses", ...},
      "files": {"shard-00000.safetensors": {"bytes": ..., "sha256": ...}}
    }

Same inputs, same bytes: no times, no host names, keys sorted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import FileRecord

FORMAT = "ngramkit"
VERSION = 1
NAME = "manifest.json"
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class TokenizerRecord:
    """Which tokenizer the ids belong to. `fingerprint` decides; `id` is for people."""

    id: str
    vocabulary: int  # one more than the highest id
    fingerprint: str  # sha256, see ngramkit.corpus.tokenizer.fingerprint
    eos: int | None = None

    def require(self, other: TokenizerRecord, where: str) -> None:
        """Raises ArtifactError unless `other` gives the same ids; `where` names what has `self`."""
        if self.fingerprint != other.fingerprint:
            raise ArtifactError(
                f"{where} was built for the tokenizer of {self.id} "
                f"({self.vocabulary:,} tokens, {self.fingerprint[:12]}), not for that of "
                f"{other.id} ({other.vocabulary:,} tokens, {other.fingerprint[:12]})",
                f"build it again with model={other.id}",
                option="model",
            )


@dataclass(frozen=True)
class Manifest:
    kind: str
    build: str
    tokenizer: TokenizerRecord
    parameters: dict[str, Any] = field(default_factory=dict)
    corpus: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of all listed files."""
        return sum(record.bytes for record in self.files.values())

    def to_json(self) -> str:
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build_id(plan: Mapping[str, Any]) -> str:
    """sha256 of the plan's canonical JSON: equal plans give equal artifacts."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact folder.

    Raises ArtifactError where there is none, or it is damaged, newer, or names files elsewhere.
    """
    path = folder / NAME
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _missing(folder) from error
    except NotADirectoryError as error:
        raise ArtifactError(f"{folder} is a file", "name the artifact's folder") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is not JSON", "build or pull the artifact again") from error
    return _parse(path, body)


def _missing(folder: Path) -> ArtifactError:
    if not folder.exists():
        return ArtifactError(f"there is no artifact at {folder}", "check the path, or build it")
    return ArtifactError(
        f"{folder} holds no {NAME}, so it is not an ngramkit artifact", "check the path"
    )


def _parse(path: Path, body: Any) -> Manifest:
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ArtifactError(f"{path} is not an ngramkit manifest", "check the path")
    version = body.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ArtifactError(
            f"{path} has format version {version}; this ngramkit reads up to {VERSION}",
            "upgrade: pip install -U ngramkit",
        )
    try:
        manifest = Manifest(
            kind=str(body["kind"]),
            build=str(body["build"]),
            tokenizer=TokenizerRecord(**body["tokenizer"]),
            parameters=dict(body["parameters"]),
            corpus=dict(body["corpus"]),
            counts=dict(body["counts"]),
            files={name: FileRecord(**record) for name, record in body["files"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is damaged: {error!r}", "build or pull the artifact again"
        ) from error
    for name in manifest.files:
        if not PLAIN_NAME.fullmatch(name):
            raise ArtifactError(
                f"{path} names the file {name!r}, which is not inside its folder",
                "do not use this artifact; build it, or pull it from somebody you trust",
            )
    return manifest
