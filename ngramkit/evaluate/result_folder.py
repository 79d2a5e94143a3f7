"""The folder of a result, of `replay` and of `bench`.

    results.json            the figures, the provenance, the machine
    results.csv             a row per drafter and budget
    table.md, table.tex     the same as tables, with 95 % intervals
    NAME.png, NAME.pdf      pictures

results.json is written first and marks the folder: `format` is "ngramkit-results", `of` the
command. A folder without it is never written to unless it is empty. A replay writes a new folder
and replaces the old one at once; a benchmark adds the files to the folder of its runs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import UsageError
from ngramkit.basics.untrusted import open_stream
from ngramkit.evaluate.plots import Picture, saved_figure
from ngramkit.evaluate.provenance import Provenance
from ngramkit.evaluate.result_tables import Table
from ngramkit.formats.outputs import partial_of, remove_entries, require_fit_for_output
from ngramkit.formats.replacing import (
    claim_output,
    exchange_or_rename_twice,
    exists_error,
    path_of_replaced,
    replace_text,
    require_writable,
    sync_folder,
)

CHARACTERS_PER_INCH = 8.5  # of a title per inch
FORMAT, VERSION = "ngramkit-results", 1
RESULTS_FILE = "results.json"
TEXT_FILES = (RESULTS_FILE, "results.csv", "table.md", "table.tex")
PICTURES = ("budgets", "learning", "categories", "bytes", "speedups", "lengths")
SUFFIXES = (".png", ".pdf")
WRITTEN_FILES = (*TEXT_FILES, *(f"{name}{suffix}" for name in PICTURES for suffix in SUFFIXES))


@dataclass(frozen=True)
class Contents:
    """The parts of a result that go into its folder."""

    of: str  # the command
    results: Mapping[str, Any]  # JSON
    rows: Sequence[Mapping[str, Any]]  # a row per drafter and budget
    tables: Sequence[Table]
    pictures: Sequence[Picture] = field(default=())


def require_replaceable_results(
    folder: Path, inputs: Iterable[Path] = (), *, force: bool = False
) -> None:
    """Raise UsageError unless a replay's results may be written to `folder`.

    It is new or empty, or with `force` holds only what a replay wrote.
    """
    require_fit_for_output(folder, inputs)
    if not os.path.lexists(folder):
        require_writable(folder)
        return
    if _require_files_of_replay(folder) and not force:
        raise exists_error(folder)


def _is_replay(folder: Path) -> bool:
    with suppress(FileNotFoundError), open_stream(folder / RESULTS_FILE) as file:
        return file.read(len(_BEGINNING)) == _BEGINNING
    return False


def _json_head(of: str) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "of": of}


_BEGINNING = json.dumps(_json_head("replay"), indent=2).removesuffix("\n}").encode()


def replace_folder(
    folder: Path, contents: Contents, provenance: Provenance, *, force: bool = False
) -> None:
    """Write all files to a new folder, which then takes the place of `folder` in one step.

    Raises as `require_replaceable_results`, and InputError if another process writes there.
    """
    partial = partial_of(folder)
    with claim_output(folder):
        _remove_results(partial)
        _remove_results(path_of_replaced(folder))
        try:
            write_folder(partial, contents, provenance)
            require_replaceable_results(folder, force=force)
            old = exchange_or_rename_twice(partial, folder)
        except BaseException:
            _remove_results(partial)
            raise
        sync_folder(folder.parent)
        if old is not None:
            _remove_results(old)


def _remove_results(folder: Path) -> None:
    """Delete a folder of results, or what a killed replay wrote of it."""
    if os.path.lexists(folder):
        _require_files_of_replay(folder)
        # The file that tells whose folder it is goes last, so that a kill leaves no other.
        files = sorted(folder.iterdir(), key=lambda path: path.name == RESULTS_FILE)
        remove_entries([*files, folder])


def _require_files_of_replay(folder: Path) -> list[str]:
    """Return the names in a folder. Raises UsageError if it has other files than a replay's."""
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{folder} must be a folder", "Choose another out.", option="out")
    if _is_replay(folder):
        return require_no_foreign_files(folder, WRITTEN_FILES, "replay")
    return require_no_foreign_files(folder, {f"{RESULTS_FILE}.tmp"}, "replay")  # by a killed one


def require_no_foreign_files(folder: Path, own: Collection[str], what: str) -> list[str]:
    """Return the names in a folder. Raises UsageError for one that `what` did not write."""
    names = sorted(path.name for path in folder.iterdir())
    for name in names:
        if name not in own and name.removesuffix(".tmp") not in own:
            raise UsageError(
                f"cannot write to {folder}: it holds {name}, which no {what} wrote",
                "Choose another out.",
                option="out",
            )
    return names


def write_folder(folder: Path, contents: Contents, provenance: Provenance) -> None:
    """Write all files; pictures of an earlier result are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {**_json_head(contents.of), **contents.results, **provenance.to_dict()}
    write_text(folder / RESULTS_FILE, json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    write_text(folder / "results.csv", _csv_table(contents.rows))
    command = provenance.command
    tables = [table.markdown() for table in contents.tables]
    if command is not None:
        tables.append(f"```sh\n{command}\n```")
    write_text(folder / "table.md", "\n\n".join(tables) + "\n")
    floats = "\n\n".join(table.latex() for table in contents.tables)
    comment = "".join(f"% {line}\n" for line in (command or "").splitlines())
    write_text(folder / "table.tex", f"{comment}% \\usepackage{{booktabs}}\n{floats}\n")
    drawn = {picture.name: picture for picture in contents.pictures}
    for name in PICTURES:
        paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        for path in paths:
            path.unlink(missing_ok=True)
        if name in drawn:
            _draw_picture(paths, drawn[name])


def write_text(path: Path, text: str) -> None:
    r"""Write a file of results; a byte of a path that is not UTF-8 becomes \udcff, as in JSON."""
    replace_text(path, text.encode("utf-8", "backslashreplace").decode())


def _draw_picture(paths: Sequence[Path], picture: Picture) -> None:
    with saved_figure(paths, picture.size) as figure:
        axes = figure.add_subplot()
        axes.set_title(textwrap.fill(picture.title, int(CHARACTERS_PER_INCH * picture.size[0])))
        picture.draw(axes)


def _csv_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of all keys; None is an empty cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
