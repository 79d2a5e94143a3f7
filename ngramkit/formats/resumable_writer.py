"""Crash-safe writing of an artifact's folder: a killed build resumes when it is run again.

Complete files in `NAME.partial/` are recorded in `progress.jsonl`: {"build", "name", "bytes",
"sha256", "facts"} per line. The next build of the same plan keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.basics.machine import Lock
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import not_linked, open_stream, parse_json
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import artifact_card
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, build_id, read_manifest
from ngramkit.formats.outputs import CARD, PROGRESS, RECIPE
from ngramkit.formats.proofs import write_proof_of_own_files
from ngramkit.formats.replacing import (
    PRIVATE,
    Replacement,
    clear_killed_run,
    partial_of,
    replace_text,
)
from ngramkit.formats.safetensors import Array, FileRecord, sha256_of, write_arrays_atomically
from ngramkit.formats.tokenizer_record import TokenizerRecord

SCRATCH = "scratch"  # fact of files that only the build needs
Made = TypeVar("Made", bound=Artifact)


def already_built(path: str | Path, plan: Mapping[str, Any]) -> Manifest | None:
    """Return the manifest if `path` is a finished artifact of this plan, else None.

    Cleans up after killed runs.
    """
    clear_killed_run(Path(path))
    with suppress(ArtifactError):
        manifest = read_manifest(Path(path))
        if manifest.build == build_id(plan):
            return manifest
    return None


def in_progress(path: Path, plan: Mapping[str, Any]) -> bool:
    return any(True for _ in _entries_of_same_build(partial_of(path), build_id(plan)))


def _entries_of_same_build(partial: Path, build: str) -> Iterator[dict[str, Any]]:
    try:
        opened = open_stream(partial / PROGRESS)
    except (OSError, InputError):
        return
    with opened as lines:
        for line in lines:
            try:
                entry = parse_json(line, PROGRESS)
            except InputError:  # torn by a kill
                continue
            if isinstance(entry, dict) and entry.get("build") == build and "name" in entry:
                yield entry


class ArtifactWriter:
    """A context for writing an artifact. Without `commit`, a later run resumes.

    `plan` decides the bytes: kind, parameters, tokenizer, corpus. `recipe` is the content of
    recipe.json. Only the owner can read a `private` artifact. Raises as `Replacement`.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        plan: Mapping[str, Any],
        *,
        inputs: Iterable[Path] = (),
        recipe: Mapping[str, Any] | None = None,
        private: bool = False,
        force: bool = False,
    ) -> None:
        self.path = Path(path)
        self.manifest: Manifest  # set by `commit`
        self.kind = kind
        self.plan = plan
        self.build = build_id(plan)
        self._recipe = recipe
        self._mode = PRIVATE if private else 0o777
        self._place = Replacement(self.path, force=force, inputs=inputs)
        self.partial = self._place.partial
        self._finished: dict[str, tuple[FileRecord, dict[str, Any]]] = {}
        self._recording = Lock()
        self.resumed = False  # whether an earlier process wrote some files

    def __enter__(self) -> Self:
        self._place.__enter__()
        entries = _entries_of_same_build(self.partial, self.build)
        for name, entry in {entry["name"]: entry for entry in entries}.items():  # the latest
            path = self.partial / name
            if "sha256" in entry and path.is_file() and sha256_of(path) == entry["sha256"]:
                record = FileRecord(entry["bytes"], entry["sha256"])
                self._finished[name] = (record, entry["facts"])
                self.resumed = True
        if not self._finished:
            self._place.empty(self._mode)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._finished:
            self._place.keep = True
            size = sum(record.bytes for record, _ in self._finished.values())
            files = counted(len(self._finished), "file")
            error.add_note(
                f"kept in {self.partial}: {files}, {size:,} bytes; the same command resumes there"
            )
        self._place.__exit__(kind, error, trace)

    def finished(self, name: str) -> dict[str, Any] | None:
        return self._finished[name][1] if name in self._finished else None

    def write(self, name: str, arrays: Mapping[str, Array], **facts: Any) -> None:
        """Write one file and record it with `facts` (JSON). Threads may write different files."""
        self.record(name, write_arrays_atomically(self.partial / name, arrays), **facts)

    def record(self, name: str, record: FileRecord, **facts: Any) -> None:
        """Record a complete file. `commit` deletes those with the fact SCRATCH."""
        with self._recording:
            self._finished[name] = (record, facts)
            entry = {"build": self.build, "name": name, **asdict(record), "facts": facts}
            with open(self.partial / PROGRESS, "a", encoding="utf-8", opener=not_linked) as file:
                # The last line may be torn.
                file.write(f"\n{json.dumps(entry, sort_keys=True)}")

    def abandon(self) -> None:
        """Keep nothing for a later run, which would fail in the same way."""
        self._finished.clear()

    def commit(
        self,
        tokenizer: TokenizerRecord,
        *,
        parameters: Mapping[str, Any],
        corpus: Mapping[str, Any],
        counts: Mapping[str, int],
        foreign: bool = False,
    ) -> Path:
        """Write the manifest and the card, and give the folder its name.

        `foreign` values, from somebody else's file, are checked when they are opened.
        """
        self.manifest = manifest = Manifest(
            kind=self.kind,
            build=self.build,
            tokenizer=tokenizer,
            parameters=dict(sorted(parameters.items())),  # in the order of the file
            corpus=dict(sorted(corpus.items())),
            counts=dict(sorted(counts.items())),
            files={
                name: record
                for name, (record, facts) in sorted(self._finished.items())
                if SCRATCH not in facts
            },
        )
        replace_text(self.partial / CARD, artifact_card(manifest))
        replace_text(self.partial / MANIFEST_FILE, manifest.to_json())
        keep = {CARD, MANIFEST_FILE, *manifest.files}
        if self._recipe is not None:
            replace_text(self.partial / RECIPE, recipe_text(self.build, self._recipe))
            keep.add(RECIPE)
        self._place.put_in_place(keep)
        if not self.resumed and not foreign:
            write_proof_of_own_files(self.path, manifest)
        self._finished.clear()  # a later error has nothing to resume
        return self.path


@dataclass(frozen=True, kw_only=True)
class Build(Generic[Made]):
    """An artifact to build, unless it exists: what decides its bytes, and how they are written.

    `plans` are alternatives, the best first: a finished or begun one is kept. `write` writes the
    files of `writer.plan` and commits. Other options are as in `ArtifactWriter`.
    """

    kind: type[Made]
    plans: Sequence[Mapping[str, Any]]
    write: Callable[[ArtifactWriter], object]
    inputs: Sequence[Path] = ()
    recipe: Mapping[str, Any] | None = None
    private: bool = False

    def at(
        self, path: Path, *, name: str = "", reporter: Reporter = SILENT, force: bool = False
    ) -> Made:
        """Open the artifact at `path`, or build it there; notes call it `name`.

        With `force`, also replace a damaged one.
        """
        chosen = self.plans[0]
        for plan in self.plans:
            if built := already_built(path, plan):
                try:
                    artifact = self.kind.open(path, built)
                except ArtifactError as error:
                    if not force:
                        error.hint, error.option = "Replace it with force=True.", ("force",)
                        raise
                    reporter.note(f"building {name or path} again: {error}")
                    chosen = plan
                    break
                reporter.note(f"{name or path} is up to date")
                return artifact
            if in_progress(path, plan):
                chosen = plan
                break
        with ArtifactWriter(
            path,
            self.kind.kind,
            chosen,
            inputs=self.inputs,
            recipe=self.recipe,
            private=self.private,
            force=force,
        ) as writer:
            if writer.resumed:
                reporter.resumed()
            self.write(writer)
            return self.kind.open(path, writer.manifest)  # while no other build can replace it


def recipe_text(build: str, inputs: Mapping[str, Any]) -> str:
    body = {"build": build, "inputs": inputs}
    return json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
