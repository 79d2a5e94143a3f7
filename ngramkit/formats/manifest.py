"""manifest.json: an artifact's kind and origin, and every file's size and checksum.

    {
      "format": "ngramkit", "version": 1, "kind": "datastore",
      "build": sha256 over everything that decided the bytes (see `build_id`),
      "parameters": {...}, "counts": {"documents": ..., "tokens": ...},
      "tokenizer": {"id", "vocabulary", "fingerprint", "eos", "encodes"},
      "corpus": {"id", "revision", "split", "sample", "seed", "licenses", ...},
      "files": {"shard-00000.safetensors": {"bytes": ..., "sha256": ...}},
      "checksum": sha256 over the canonical JSON of everything else
    }

Canonical JSON has no spaces, sorted keys, and unescaped characters (UTF-8). There are no times or
host names. Older manifests have no checksum.

An artifact is private if its corpus has `"private": true`, or a corpus of its `mixed` or `merged`
(at any depth) has it. A history is always private. Everything made from a private artifact keeps
the mark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError
from ngramkit.basics.limits import FILE_NAME, SHA256, is_short_text
from ngramkit.basics.untrusted import read_json, whole_number
from ngramkit.formats.safetensors import FileRecord, require
from ngramkit.formats.tokenizer_record import TokenizerRecord, parse_tokenizer

FORMAT_NAME = "ngramkit"
FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
HISTORY = "history"  # the kind of users' requests
MANIFEST_KEYS = {
    "format", "version", "kind", "build", "parameters", "counts", "tokenizer", "corpus", "files"
}  # fmt: skip
OWN_NAMES = {MANIFEST_FILE, "readme.md", "recipe.json"}  # files that a manifest must not list
# The types of a corpus record's known keys; None is "unknown".
CORPUS_KEYS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("id", "dataset", "config", "revision", "split", "column", "data_dir", "format", "sha256",
         "listing", "excluded"), str,
    ),
    "licenses": dict, "licenses_kept": list, "merged": list, "mixed": list,
    "dataset_license": (str, list), "sample": (float, int), "weight": (float, int), "seed": int,
    "limit": int, "files": int, "join_turns": bool, "private": bool,
}  # fmt: skip

Corpus = Mapping[str, Any]  # the record of a corpus


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
        return sum(record.bytes for record in self.files.values())

    @property
    def private(self) -> bool:
        """Whether the artifact is made of private texts."""
        return self.kind == HISTORY or is_private_corpus(self.corpus)

    @property
    def corpus_key(self) -> str | None:
        """A text that is equal for corpora of the same documents, in any order; None if unknown."""
        counts = self.counts.get("documents"), self.counts.get("tokens")
        return None if None in counts else json.dumps([self.corpus, counts], sort_keys=True)

    @cached_property
    def checksum(self) -> str:
        text = json.dumps(
            self._body(), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        body = {**self._body(), "checksum": self.checksum}
        return json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def _body(self) -> dict[str, Any]:
        tokenizer = asdict(self.tokenizer)
        if self.tokenizer.encodes is None:
            del tokenizer["encodes"]
        files = {name: vars(record) for name, record in self.files.items()}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        body = {"format": FORMAT_NAME, "version": FORMAT_VERSION, **own}
        return {**body, "tokenizer": tokenizer, "files": files}


def is_private_corpus(corpus: Corpus) -> bool:
    """Return whether a corpus record, or one of those that it is made of, is marked private."""
    return corpus.get("private") is True or any(map(is_private_corpus, parts_of(corpus)))


def parts_of(corpus: Corpus, *names: str) -> list[Corpus]:
    """Return the records of the corpora in a mixture and a merge, or in that of `names` only."""
    listed = [corpus.get(name) for name in names or ("mixed", "merged")]
    parts = chain.from_iterable(each for each in listed if isinstance(each, list))
    return [part for part in parts if isinstance(part, Mapping)]


def build_id(plan: Mapping[str, Any]) -> str:
    """Return the sha256 of the plan's JSON with sorted keys. Equal plans give equal artifacts."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest. Raises ArtifactError if it is missing, invalid or newer."""
    path = folder / MANIFEST_FILE
    try:
        body = read_json(path, strict=True)
    except FileNotFoundError as error:
        if not folder.exists():
            hint = "Check the path, or build it."
            raise ArtifactError(f"no such artifact: {folder}", hint) from error
        raise ArtifactError(
            f"cannot open {folder}: it has no {MANIFEST_FILE}, so it is not an ngramkit artifact",
            "Check the path.",
        ) from error
    return parse_manifest(path, body)


def require_version(path: object, version: Any, newest: int) -> None:
    if not whole_number(version, 1, newest):
        raise ArtifactError(
            f"{path} must have a format version of at most {newest}, got {version!r:.20}",
            "Upgrade: pip install -U ngramkit",
        )


def parse_manifest(path: object, body: Any) -> Manifest:
    if not isinstance(body, dict) or body.get("format") != FORMAT_NAME:
        raise ArtifactError(
            f"cannot read {path}: it is not an ngramkit manifest", "Check the path."
        )
    require_version(path, body.get("version"), FORMAT_VERSION)
    complete = body.keys() - {"checksum"} == MANIFEST_KEYS
    require(complete, path, "its keys are not those of a manifest")
    texts = is_short_text(body["kind"]) and is_short_text(body["build"])
    require(texts, path, "`kind` or `build` is not a text")
    tokenizer = parse_tokenizer(path, body["tokenizer"])
    parameters, counts = body["parameters"], body["counts"]
    require(isinstance(parameters, dict), path, "`parameters` is not an object")
    for name, value in parameters.items():
        simple = value is None or isinstance(value, bool | float) or is_short_text(value)
        simple = simple or whole_number(value, -(1 << 63))
        require(simple, path, f"the parameter {name!r:.40} is invalid")
    _require_corpus(path, body["corpus"])
    fits = isinstance(counts, dict) and all(map(whole_number, counts.values()))
    require(fits, path, "`counts` are not whole numbers")
    manifest = Manifest(
        kind=body["kind"],
        build=body["build"],
        tokenizer=tokenizer,
        parameters=parameters,
        corpus=body["corpus"],
        counts=counts,
        files=_parse_files(path, body["files"]),
    )
    listed = body.get("checksum", manifest.checksum)
    require(listed == manifest.checksum, path, "its checksum is wrong: it was changed")
    return manifest


def _require_corpus(path: object, body: Any) -> None:
    require(isinstance(body, dict), path, "`corpus` is not an object")
    for name, value in body.items():
        wanted = CORPUS_KEYS.get(name, object)
        fits = value is None or isinstance(value, wanted)
        fits = fits and (wanted in (bool, object) or not isinstance(value, bool))
        require(fits, path, f"{name!r:.40} of its corpus is invalid")
    for part in [*(body.get("merged") or []), *(body.get("mixed") or [])]:
        _require_corpus(path, part)
    licences = body.get("licenses") or {}
    require(all(map(whole_number, licences.values())), path, "licences without counts")
    for name in ("licenses_kept", "dataset_license"):
        listed = body.get(name) or []
        texts = isinstance(listed, str) or all(map(is_short_text, listed))
        require(texts, path, "licences are not texts")


def _parse_files(path: object, body: Any) -> dict[str, FileRecord]:
    require(isinstance(body, dict), path, "`files` is not an object")
    for name, record in body.items():
        if not FILE_NAME.fullmatch(name):
            raise ArtifactError(
                f"cannot use {path}: it names the file {name!r:.80}, which is not inside its "
                "folder",
                "Do not use this artifact; build it, or pull it from somebody you trust.",
            )
        require(name.lower() not in OWN_NAMES, path, f"it lists {name}, which holds no arrays")
        fits = isinstance(record, dict) and record.keys() == {"bytes", "sha256"}
        require(fits, path, f"{name} is not listed with bytes and sha256")
        digest = record["sha256"]
        listed = isinstance(digest, str) and SHA256.fullmatch(digest) is not None
        require(
            listed and whole_number(record["bytes"]), path, f"bytes or sha256 of {name} are invalid"
        )
    # Some file systems ignore the case of names.
    require(len({name.lower() for name in body}) == len(body), path, "two files have the same name")
    return {name: FileRecord(**record) for name, record in body.items()}
