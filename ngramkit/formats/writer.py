"""Crash-safe writing of an artifact folder.

Everything goes to `NAME.partial/`. Each file, once whole, is recorded with its checksum in
`progress.json`; the rename to `NAME/` comes last. A killed build, run again, keeps the recorded
files and gives the bytes of an undisturbed run. A plan that changed starts over.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ngramkit.errors import ArtifactError, InputError, UsageError
from ngramkit.formats.card import card
from ngramkit.formats.container import Array, FileRecord, sha256_of, write_arrays
from ngramkit.formats.manifest import NAME, Manifest, TokenizerRecord, build_id, read_manifest

PROGRESS = "progress.json"
LOCK = "lock"
PARTIAL = ".partial"


def already_built(path: str | Path, plan: Mapping[str, Any]) -> bool:
    """Whether `path` is a finished artifact of exactly this plan."""
    try:
        return read_manifest(Path(path)).build == build_id(plan)
    except ArtifactError:
        return False


def in_progress(path: Path, plan: Mapping[str, Any]) -> bool:
    """Whether a build of exactly this plan was begun at `path` and left unfinished."""
    progress = path.with_name(path.name + PARTIAL) / PROGRESS
    try:
        return bool(json.loads(progress.read_text()).get("build") == build_id(plan))
    except (OSError, ValueError):
        return False


class ArtifactWriter:
    """Use as a context manager; leaving without `commit` keeps the partial folder for a resume.

    `plan` is everything that decides the bytes: kind, parameters, tokenizer, corpus. Raises
    UsageError where `path` holds something else already and `force` is off, InputError where
    another process is building the same path.
    """

    def __init__(
        self, path: str | Path, kind: str, plan: Mapping[str, Any], *, force: bool = False
    ) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + PARTIAL)
        self.kind = kind
        self.build = build_id(plan)
        self._force = force
        self._finished: dict[str, tuple[FileRecord, dict[str, Any]]] = {}
        self._lock: IO[str] | None = None
        self._recording = threading.Lock()

    def __enter__(self) -> Self:
        if self.path.exists() and not self._force:
            raise UsageError(
                f"{self.path} exists and was built otherwise",
                "choose another out, or replace it with force=True",
                option=("out", "force"),
            )
        self.partial.mkdir(parents=True, exist_ok=True)
        self._lock = (self.partial / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise InputError(
                f"another process is building {self.path}",
                "wait for it, or choose another out",
                option="out",
            ) from error
        self._recall()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._finished:
            shutil.rmtree(self.partial, ignore_errors=True)  # there is nothing to resume
        if self._lock is not None:
            self._lock.close()

    def finished(self, name: str) -> dict[str, Any] | None:
        """The facts recorded with a file that is already written, else None."""
        return self._finished[name][1] if name in self._finished else None

    def write(self, name: str, arrays: Mapping[str, Array], **facts: Any) -> None:
        """Writes one file and records it; `facts` (JSON) come back from `finished` on a resume.

        Threads may write different files at a time.
        """
        record = write_arrays(self.partial / name, arrays)
        with self._recording:
            self._finished[name] = (record, facts)
            self._remember()

    def discard(self, name: str) -> None:
        """Takes back a file that only a resume would have needed; `commit` deletes it."""
        self._finished.pop(name, None)

    def commit(
        self,
        tokenizer: TokenizerRecord,
        *,
        parameters: Mapping[str, Any],
        corpus: Mapping[str, Any],
        counts: Mapping[str, int],
    ) -> Path:
        """Writes the manifest and the card, and gives the folder its name."""
        manifest = Manifest(
            kind=self.kind,
            build=self.build,
            tokenizer=tokenizer,
            parameters=dict(parameters),
            corpus=dict(corpus),
            counts=dict(counts),
            files={name: record for name, (record, _) in sorted(self._finished.items())},
        )
        write_text(self.partial / "README.md", card(manifest))
        write_text(self.partial / NAME, manifest.to_json())
        keep = {"README.md", NAME, *self._finished}
        for stray in self.partial.iterdir():
            if stray.name not in keep:
                stray.unlink()
        self._rename()
        return self.path

    def _rename(self) -> None:
        replaced = self.path.with_name(self.path.name + ".replaced.partial")
        if self.path.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            self.path.rename(replaced)
        self.partial.rename(self.path)
        shutil.rmtree(replaced, ignore_errors=True)
        _sync_folder(self.path.parent)

    def _remember(self) -> None:
        body = {
            "build": self.build,
            "files": {n: {**asdict(r), "facts": f} for n, (r, f) in self._finished.items()},
        }
        write_text(self.partial / PROGRESS, json.dumps(body, sort_keys=True))

    def _recall(self) -> None:
        try:
            body = json.loads((self.partial / PROGRESS).read_text())
        except (FileNotFoundError, ValueError):
            return
        if body.get("build") != self.build:
            return
        for name, entry in body["files"].items():
            record = FileRecord(entry["bytes"], entry["sha256"])
            path = self.partial / name
            if path.is_file() and sha256_of(path) == record.sha256:
                self._finished[name] = (record, entry["facts"])


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: a temporary file, then a rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
