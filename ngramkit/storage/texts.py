"""The texts beside an artifact's arrays, at a URL: its manifest, its card, its recipe's record."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ngramkit.formats.manifest import NAME
from ngramkit.formats.outputs import RECIPE
from ngramkit.storage.place import Place
from ngramkit.storage.staging import MOST_TEXT, find_remote, write_whole


def fetch_texts(place: Place, folder: Path) -> bool:
    """Whether an artifact is there; its manifest and its recipe's record are then in `folder`."""
    there = find_remote(place)
    if there is None:
        return False
    folder.mkdir()
    recipe = place.read(RECIPE, MOST_TEXT)
    if recipe is not None:
        write_whole(folder / RECIPE, recipe)
    write_whole(folder / NAME, there[0])
    return True


def put_texts(place: Place, folder: Path, *names: str) -> None:
    """Uploads those that `folder` has, where others are there, or none."""
    for name in names:
        if (folder / name).is_file():
            text = (folder / name).read_bytes()
            if place.read(name, MOST_TEXT) != text:
                place.put(folder / name, name)


def put_text(place: Place, name: str, text: str) -> None:
    """The same of a `text` that is in no file yet."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, encoding="utf-8")
        put_texts(place, Path(folder), name)
