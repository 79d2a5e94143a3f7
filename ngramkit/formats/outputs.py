"""Places of outputs: where one may go, what it may replace, and where it goes by default.

Only what ngramkit wrote itself is replaced. A folder is ours if its manifest.json is, and every
name in it is one that we write; or if it is an export for transformers around such a folder. Where
anything else is in it, nothing of it is replaced, and the error names it.

By default artifacts are at

    artifacts/CORPUS-MODEL-KIND            built because somebody asked for it
    artifacts/automatic/CORPUS-MODEL-KIND  built by a command that needed one and found none

An artifact's bytes do not tell who asked for it, and must not: the same inputs give the same bytes.
So the folder is the mark; moved up by one, an artifact is its user's own.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.kinds import KINDS
from ngramkit.formats.manifest import NAME, Manifest, read_manifest

CARD = "README.md"
RECIPE = "recipe.json"  # what ngramkit.recipes built it from; not every artifact has one
PROGRESS = "progress.jsonl"  # of a folder that is being written
ARTIFACT = "artifact"  # an artifact's folder inside an export for transformers
CODE = ("custom_generate/generate.py", "custom_generate/requirements.txt")
# Every name that we write below a folder: data files by what they hold, then their number if any.
WRITTEN = re.compile(
    rf"({ARTIFACT}/)?({re.escape(NAME)}|{CARD}|{RECIPE}|progress\.jsonl?|requests\.log|lock|"
    rf"[a-z]+(-[a-z]+)*(-\d{{5,}})?\.safetensors(\.[0-9a-f]{{16}}(?=\.tmp))?)(\.tmp)?|"
    rf"{ARTIFACT}|custom_generate|{'|'.join(map(re.escape, CODE))}"
)
URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # as pathlib leaves it
LONGEST = 32  # bytes that we put behind a name while it is written

ARTIFACTS = Path("artifacts")
AUTOMATIC = ARTIFACTS / "automatic"
LONGEST_NAME = 60  # characters of a part
# Endings of file names that say nothing of their content.
ENDINGS = re.compile(r"(\.(txt|md|py|jsonl|json|parquet|arrow|gz|zst|bz2|xz|zip))+$")


def refusal(message: str, hint: str = "choose another out") -> UsageError:
    """Return the error for an output that cannot go there; the hint says where it could."""
    return UsageError(message, hint, option="out")


def require_fit_for_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise UsageError where nothing can or should be written to `path`.

    That is where it is no name ('', '.', '..', '/'), too long, below a file, the working directory
    or a folder above it; and where it is one of `inputs`, a folder above one, or inside one. A
    folder above or equal to the working directory may hold its outputs: everything is inside it.
    """
    if URL.match(str(path)):
        raise refusal(f"{path} is a URL, and this writes to folders")
    if path.name in ("", "..") or "\0" in str(path):
        raise refusal(f"{str(path)!r} is no name for an output")
    if len(os.fsencode(path.name)) + LONGEST > 255 or len(os.fsencode(path.absolute())) > 4000:
        raise refusal(f"the name {path.name[:40]}... is too long", "choose a shorter one")
    for above in path.parents:
        if os.path.lexists(above) and not above.is_dir():
            raise refusal(f"{above} is not a folder, so nothing can be in it")
    here, sources = Path.cwd(), _resolved(inputs)
    for place in {path.parent.resolve() / path.name, path.resolve()}:
        if place == here or place in here.parents:
            raise refusal(f"{path} is the folder that you are in, or above it")
        for source, given in sources.items():
            if place == source or place in source.parents:
                what = "is" if place == source else "holds"
                raise refusal(f"{path} {what} what is read: {given}")
            if source in place.parents and source != here and source not in here.parents:
                raise refusal(f"{path} is inside what is read: {given}")


def _resolved(inputs: Iterable[Path]) -> dict[Path, Path]:
    """Return {resolved path: as it was given}; a folder of many files is looked up once."""
    folders: dict[Path, Path] = {}
    sources = {}
    for given in inputs:
        if given.parent not in folders:
            folders[given.parent] = given.parent.resolve()
        file = folders[given.parent] / given.name
        sources[given.resolve() if given.is_dir() else file] = given
    return sources


def require_replaceable(path: Path) -> list[Path]:
    """Return everything in the folder `path`, files before their folders, itself last.

    Raises UsageError unless ngramkit wrote all of it, and can write it again: a history it cannot.
    """
    entries = ours_in(path)
    if (path / CODE[0]).is_file():
        expected = {CARD, ARTIFACT, "custom_generate", *CODE}
        expected |= {f"{ARTIFACT}/{name}" for name in _names(path / ARTIFACT, path)}
    elif len(entries) == 1:  # an empty folder
        return entries
    else:
        expected = _names(path, path)
    for entry in entries[:-1]:
        name = entry.relative_to(path).as_posix()
        if name.removesuffix(".tmp") not in expected:
            raise _foreign(path, name)
    return entries


def _names(folder: Path, path: Path) -> set[str]:
    try:
        manifest = read_manifest(folder)
    except ArtifactError as error:
        raise refusal(
            f"{path} is not replaced, because ngramkit did not write it: {error}"
        ) from error
    if manifest.kind == "history":
        raise refusal(
            f"{path} is a history: what is in it cannot be built again",
            "choose another out, or remove it yourself",
        )
    return {NAME, CARD, RECIPE, *manifest.files}


def ours_in(path: Path) -> list[Path]:
    """Return everything in the folder `path` as `require_replaceable` does, by its names alone.

    Raises UsageError where `path` is no folder, or something in it is nothing that we ever write.
    """
    if path.is_symlink():
        raise refusal(f"{path} is a link to {path.readlink()}", "name the folder itself")
    if not path.is_dir():
        raise refusal(f"{path} is not a folder")
    return [*_walk(path, path), path]


def _walk(folder: Path, top: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        name = entry.relative_to(top).as_posix()
        is_folder = entry.is_dir() and not entry.is_symlink()
        plain = is_folder == ("." not in entry.name and name != "lock")
        if entry.is_symlink() or not plain or not WRITTEN.fullmatch(name):
            raise _foreign(top, name)
        if is_folder:
            yield from _walk(entry, top)
        yield entry


def _foreign(path: Path, name: str) -> UsageError:
    return refusal(
        f"{path} holds {name}, which ngramkit did not write, so nothing there is replaced",
        "move that away, or choose another out",
    )


def remove(entries: Iterable[Path]) -> None:
    """Delete exactly these; a folder only once it is empty. What is gone already is no error."""
    for entry in entries:
        try:
            entry.rmdir() if entry.is_dir() else entry.unlink()
        except FileNotFoundError:
            continue


# Default places, and the artifacts that are there.


def default_place(*parts: str, folder: Path = ARTIFACTS) -> Path:
    """Return `folder`/PART-PART-..., each part by its `short_name`, kinds by their short names.

    ("data/*.jsonl", "./llama-2", "frozen-table") -> artifacts/data-llama-2-frozen
    """
    names = [KINDS[part].short if part in KINDS else short_name(part) for part in parts]
    return folder / "-".join(name for name in names if name)


def corpus_name(record: Mapping[str, Any], otherwise: str = "corpus") -> str:
    """Return a corpus's name for a file, by its record; of a mixture, each one's name."""
    parts = record.get("mixed") or [record]
    return "-".join(short_name(str(part.get("id", otherwise))) for part in parts)


def short_name(text: str) -> str:
    """Return a corpus's or model's name for a file: the last part of a path or a Hub id.

    "/data/chats/train-*.parquet" -> chats, "notes.txt" -> notes, "hf:me/code:python" -> code-python
    """
    parts = [part for part in re.split(r"[/\\]", text.removeprefix("hf:")) if part not in ("", ".")]
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    last = parts[max(wild - 1, 0)] if parts else ""
    return _plain(ENDINGS.sub("", last)) or _plain(last)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+\.?", "-", text)[:LONGEST_NAME].strip("-.")


@dataclass(frozen=True)
class Found:
    """An artifact's folder and its manifest, or why that cannot be read."""

    path: Path
    manifest: Manifest | None
    problem: str = ""


def artifacts_in(folder: Path) -> Iterator[Found]:
    """Yield every finished artifact right below `folder`, by name."""
    for manifest_path in sorted(folder.glob(f"*/{NAME}")):
        path = manifest_path.parent
        if path.suffix == ".partial":
            continue
        try:
            yield Found(path, read_manifest(path))
        except ArtifactError as error:
            yield Found(path, None, str(error))
