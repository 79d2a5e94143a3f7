"""Places of outputs: which are allowed, what they may replace, and the defaults.

Only ngramkit's own output is replaced: a folder with a valid manifest.json and only names that
ngramkit writes, or an export for transformers around one. Default places:

    artifacts/CORPUS-SELECTION-MODEL-KIND  built on request; see `corpus.naming.selection_name`
    artifacts/automatic/CORPUS-MODEL-KIND  built by a command that needed one
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.kinds import ARTIFACTS as ARTIFACTS, KINDS
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, read_manifest

CARD = "README.md"
PREVIEW = "preview/phrases.parquet"  # of a repository; the manifest does not list it
RECIPE = "recipe.json"  # written by ngramkit.recipes
PROGRESS = "progress.jsonl"  # in the folder of an unfinished build
PARTIAL = ".partial"  # the end of that folder's name
ARTIFACT = "artifact"  # an artifact's folder inside an export for transformers
CODE = ("custom_generate/generate.py", "custom_generate/requirements.txt")
# Every name that is written below a folder; data files are named by content and number.
WRITTEN = re.compile(
    rf"({ARTIFACT}/)?({re.escape(MANIFEST_FILE)}|{CARD}|{RECIPE}|progress\.jsonl?|requests\.log|lock|"
    rf"[a-z]+(-[a-z]+)*(-\d{{5,}})?\.safetensors(\.[0-9a-f]{{16}}(?=\.tmp))?)(\.tmp)?|"
    rf"preview|{re.escape(PREVIEW)}|{ARTIFACT}|custom_generate|{'|'.join(map(re.escape, CODE))}"
)
URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # as pathlib leaves it
SUFFIX_BYTES = 32  # room for the suffix of temporary names

AUTOMATIC = ARTIFACTS / "automatic"
MAX_PART = 60  # UTF-8 bytes of a part of a default name
# File name extensions to strip.
ENDINGS = re.compile(r"(\.(txt|md|py|jsonl|json|parquet|arrow|gz|zst|bz2|xz|zip))+$")


def output_refusal(message: str, hint: str = "Choose another out.") -> UsageError:
    return UsageError(message, hint, option="out")


def require_fit_for_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise UsageError if `path` is not suitable for an output.

    It must not be at, above or inside one of `inputs`; inputs at or above the working directory may
    contain it.
    """
    if URL.match(str(path)):
        raise output_refusal(f"out must be a folder, got the URL {path}")
    if path.name in ("", "..") or "\0" in str(path):
        raise output_refusal(f"out must be a file name, got {str(path)!r}")
    if len(os.fsencode(path.name)) + SUFFIX_BYTES > 255 or len(os.fsencode(path.absolute())) > 4000:
        raise output_refusal(f"the name {path.name[:40]}... is too long", "Choose a shorter one.")
    for above in path.parents:
        if os.path.lexists(above) and not above.is_dir():
            raise output_refusal(f"cannot write {path}: {above} is not a folder")
    here, sources = Path.cwd(), _resolved_inputs(inputs)
    for place in {path.parent.resolve() / path.name, path.resolve()}:
        if place == here or place in here.parents:
            raise output_refusal(f"cannot write {path}: it is the working directory, or above it")
        for source, given in sources.items():
            if place == source or place in source.parents:
                what = "is" if place == source else "contains"
                raise output_refusal(f"cannot write {path}: it {what} the input {given}")
            if source in place.parents and source != here and source not in here.parents:
                raise output_refusal(f"cannot write {path}: it is inside the input {given}")


def _resolved_inputs(inputs: Iterable[Path]) -> dict[Path, Path]:
    inputs = list(inputs)
    folders = {folder: folder.resolve() for folder in {given.parent for given in inputs}}
    return {
        given.resolve() if given.is_dir() else folders[given.parent] / given.name: given
        for given in inputs
    }


def require_written_by_us(path: Path) -> list[Path]:
    """Return everything in the folder, files before their folders, `path` last.

    Raises UsageError unless ngramkit wrote all of it and can build it again, unlike a history.
    """
    entries = entries_with_our_names(path)
    if (path / CODE[0]).is_file():
        expected = {CARD, ARTIFACT, "custom_generate", *CODE}
        expected |= {f"{ARTIFACT}/{name}" for name in _names_of_artifact(path / ARTIFACT, path)}
    elif len(entries) == 1:  # an empty folder
        return entries
    else:
        expected = _names_of_artifact(path, path)
    for entry in entries[:-1]:
        name = entry.relative_to(path).as_posix()
        if name.removesuffix(".tmp") not in expected:
            raise _foreign_file(path, name)
    return entries


def _names_of_artifact(folder: Path, path: Path) -> set[str]:
    try:
        manifest = read_manifest(folder)
    except ArtifactError as error:
        raise output_refusal(
            f"cannot replace {path}: ngramkit did not write it ({error})"
        ) from error
    if manifest.kind == "history":
        raise output_refusal(
            f"cannot replace {path}: a history cannot be built again",
            "Choose another out, or remove it yourself.",
        )
    return {MANIFEST_FILE, CARD, RECIPE, "preview", PREVIEW, *manifest.files}


def entries_with_our_names(path: Path) -> list[Path]:
    """Return the entries as `require_written_by_us`, but check only names."""
    if path.is_symlink():
        raise output_refusal(
            f"{path} must be a folder, got a link to {path.readlink()}", "Name the folder."
        )
    if not path.is_dir():
        raise output_refusal(f"{path} must be a folder")
    return [*_walk_files(path, path), path]


def _walk_files(folder: Path, top: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        name = entry.relative_to(top).as_posix()
        is_folder = entry.is_dir() and not entry.is_symlink()
        plain = is_folder == ("." not in entry.name and name != "lock")
        if entry.is_symlink() or not plain or not WRITTEN.fullmatch(name):
            raise _foreign_file(top, name)
        if is_folder:
            yield from _walk_files(entry, top)
        yield entry


def _foreign_file(path: Path, name: str) -> UsageError:
    return output_refusal(
        f"cannot replace {path}: ngramkit did not write {name} in it",
        "Move that away, or choose another out.",
    )


def remove_entries(entries: Iterable[Path]) -> None:
    for entry in entries:
        try:
            entry.rmdir() if entry.is_dir() else entry.unlink()
        except FileNotFoundError:
            continue


# Default places, and the artifacts in them.


def default_place(*parts: str, folder: Path = ARTIFACTS) -> Path:
    """Return `folder`/PART-PART-..., with short names.

    ("data/*.jsonl", "./llama-2", "frozen-table") -> artifacts/data-llama-2-frozen
    """
    names = [KINDS[part].short if part in KINDS else short_name(part) for part in parts]
    return folder / "-".join(name for name in names if name)


def partial_of(path: Path) -> Path:
    """Return the folder of an unfinished build of `path`."""
    return path.parent / f"{path.name}{PARTIAL}"


def short_name(text: str) -> str:
    """Return the name of a corpus or model for a file: the last part of a path or Hub id.

    "/data/chats/train-*.parquet" -> chats, "hf:me/code:python" -> code-python
    """
    parts = [part for part in re.split(r"[/\\]", text.removeprefix("hf:")) if part not in ("", ".")]
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    last = parts[max(wild - 1, 0)] if parts else ""
    return _plain_name(ENDINGS.sub("", last)) or _plain_name(last)


def _plain_name(text: str) -> str:
    name = re.sub(r"[^\w.]+\.?", "-", text)
    return name.encode()[:MAX_PART].decode(errors="ignore").strip("-.")


@dataclass(frozen=True)
class Found:
    path: Path
    manifest: Manifest | None
    problem: str = ""


def artifacts_in(folder: Path) -> Iterator[Found]:
    for manifest_path in sorted(folder.glob(f"*/{MANIFEST_FILE}")):
        path = manifest_path.parent
        if path.suffix == PARTIAL:
            continue
        try:
            yield Found(path, read_manifest(path))
        except ArtifactError as error:
            yield Found(path, None, str(error))
