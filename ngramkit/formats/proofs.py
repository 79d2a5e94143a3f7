"""What this machine knows to be whole, so that an artifact's values are checked once, not always.

A proof is a small file in the user's own cache, never inside an artifact: its name is the checksum
of a manifest (which lists every file's sha256) and the version of the checks, so it speaks of
bytes, wherever they lie. It holds the identities (device, inode, size, times) of the copies whose
bytes were found to be the listed ones. Whoever is refused a cache is told once, and checks anew
each time.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ngramkit.caches import make_room, private_folder
from ngramkit.errors import ArtifactError
from ngramkit.formats.files import Identity, identity
from ngramkit.formats.json_text import read_json
from ngramkit.formats.manifest import Manifest

CHECKS = 1  # goes up when an artifact that passed before might not pass now
COPIES = 8  # of one artifact
MOST = 4096  # proofs kept; the oldest go first
# A file that is written again within a tick of the file system's clock looks the same.
TICK_NS = 20_000_000

Copy = dict[str, Identity]  # file name -> which file it is

log = logging.getLogger("ngramkit")
told = False


def recall(checksum: str) -> list[Copy] | None:
    """The copies of the manifest with this checksum that are known to be whole.

    None where its values were never checked by these checks.
    """
    folder = private_folder("proofs")
    if folder is None:
        return None
    try:
        body = read_json(folder / _name(checksum))
    except (FileNotFoundError, ArtifactError):
        return None
    copies = body.get("copies") if isinstance(body, dict) else None
    if not isinstance(copies, list):
        return None
    return [_copy(each) for each in copies if isinstance(each, dict)]


def remember(checksum: str, copy: Mapping[str, Identity]) -> None:
    """`copy` was found whole, bytes and values."""
    folder = private_folder("proofs")
    if folder is None:
        _tell_once()
        return
    if any(time.time_ns() - each[-1] < TICK_NS for each in copy.values()):
        copies = recall(checksum) or []
    else:
        copies = [each for each in recall(checksum) or [] if each != copy][-COPIES + 1 :]
        copies.append(dict(copy))
    temporary = folder / f"{_name(checksum)}.{os.getpid()}-{threading.get_ident()}"
    try:
        temporary.write_text(json.dumps({"copies": copies}), encoding="utf-8")
        temporary.replace(folder / _name(checksum))
        make_room(folder, MOST)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        _tell_once()


def vouch(folder: Path, manifest: Manifest) -> None:
    """This process has written the files that `manifest` lists, from arrays that it made."""
    with suppress(OSError):
        remember(
            manifest.checksum,
            {name: identity((folder / name).stat()) for name in manifest.files},
        )


def _name(checksum: str) -> str:
    return f"{checksum}-{CHECKS}.json"


def _copy(found: dict[str, object]) -> Copy:
    """What cannot be an identity is left out, so the copy is like no other."""
    return {
        name: (each[0], each[1], each[2], each[3], each[4])
        for name, each in found.items()
        if isinstance(each, list) and len(each) == 5 and {*map(type, each)} == {int}
    }


def _tell_once() -> None:
    global told
    if not told:
        told = True
        log.warning(
            "the cache folder cannot be used, so artifacts are checked each time they are opened"
        )
