"""Files of elsewhere, staged on this machine by their sha256, because a memory map needs a file.

    FOLDER/blobs/SHA256        a file, read-only; SHA256.used beside it is as old as its last use
    FOLDER/artifacts/KEY/NAME  an artifact: its manifest, and links to its blobs
    FOLDER/work/KEY/NAME       an artifact that is built here before it is uploaded
    FOLDER/incoming/           what is being fetched; what a killed process left is deleted

Where `size` bytes are held, those go first that were unused longest. A blob that is deleted while
a process has it mapped stays that process's until it ends. Knows bytes; not where they come from.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from ngramkit.caches import private_folder
from ngramkit.errors import InputError
from ngramkit.formats.locks import locked
from ngramkit.formats.manifest import SHA256
from ngramkit.machine import parse_size

DIR, SIZE = "NGRAMKIT_CACHE_DIR", "NGRAMKIT_CACHE_SIZE"
ABANDONED = 24 * 3600.0  # seconds after which what is incoming has no process any more

_chosen: ContextVar[tuple[Path | None, int | None]] = ContextVar("cache", default=(None, None))


@contextmanager
def using_cache(folder: str | Path | None = None, size: int | str | None = None) -> Iterator[None]:
    """Inside, what is staged is in `folder`, at most `size` bytes (or "20G"); None leaves it as is.

    Outside: NGRAMKIT_CACHE_DIR and NGRAMKIT_CACHE_SIZE, else the user's cache folder and half of
    what is free there. Raises UsageError where `size` is no size.
    """
    bound = parse_size(size) if isinstance(size, str) else size
    before = _chosen.get()
    bound = before[1] if bound is None else bound
    token = _chosen.set((Path(folder) if folder else before[0], bound))
    try:
        yield
    finally:
        _chosen.reset(token)


@dataclass(frozen=True)
class Cache:
    folder: Path
    bound: int | None  # bytes; None: half of what would be free were it empty

    @classmethod
    def chosen(cls) -> Cache:
        """As `using_cache` says. Raises InputError where no folder can be made."""
        folder, size = _chosen.get()
        given = folder or (Path(os.environ[DIR]) if os.environ.get(DIR) else None)
        if size is None and os.environ.get(SIZE):
            size = parse_size(os.environ[SIZE])
        own = given.expanduser().absolute() if given else private_folder("staged")
        if own is None:
            raise InputError("there is no cache folder to fetch into", "give one", option=_OPTION)
        try:
            for part in ("blobs", "artifacts", "work", "incoming"):
                (own / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why = f"{own} cannot be a cache: {error.strerror}"
            raise InputError(why, "give another folder", option=_OPTION) from error
        return cls(own, size)

    @property
    def size(self) -> int:
        """Bytes that are held at most."""
        if self.bound is not None:
            return self.bound
        return (shutil.disk_usage(self.folder).free + self.held()) // 2

    def held(self) -> int:
        """Bytes of all blobs."""
        return sum(size for _, size, _ in self._blobs())

    def find(self, sha256: str, size: int) -> Path | None:
        """The blob, used now; None where it is not there whole."""
        path = self.blob(sha256)
        try:
            if path.stat().st_size != size:
                return None
        except FileNotFoundError:
            return None
        self._use(path)
        return path

    def blob(self, sha256: str) -> Path:
        return self.folder / "blobs" / sha256

    def add(self, sha256: str, fill: Callable[[Path], None]) -> Path:
        """The blob, after `fill` has written it to the path that it is given, and proven it.

        Of several processes that need it, one fetches it.
        """
        path = self.blob(sha256)
        with locked(self.folder / "incoming" / f"{sha256}.lock"):
            if not path.exists():
                temporary = self.folder / "incoming" / f"{sha256}.{os.getpid()}"
                try:
                    fill(temporary)
                    temporary.chmod(0o400)
                    temporary.replace(path)
                finally:
                    temporary.unlink(missing_ok=True)
            self._use(path)
        return path

    def adopt(self, sha256: str, file: Path) -> None:
        """`file`, proven to be that blob, moves here."""
        file.chmod(0o400)
        file.replace(self.blob(sha256))
        self._use(self.blob(sha256))

    def drop(self, sha256: str) -> None:
        """A blob that turned out not to be what its name says."""
        self.blob(sha256).unlink(missing_ok=True)

    def make_room(self, needed: int, keep: Collection[str], what: str) -> None:
        """Deletes what was unused longest until `needed` more bytes fit; never one of `keep`.

        Raises InputError, naming `what`, where it does not fit beside those.
        """
        with locked(self.folder / "lock"):
            self._tidy()
            blobs = sorted(self._blobs(), key=lambda blob: blob[2])
            kept = sum(size for path, size, _ in blobs if path.name in keep)
            bound = self.size
            if kept + needed > bound:
                raise InputError(
                    f"{what} has {kept + needed:,} bytes, and {self.folder} may hold {bound:,}",
                    "give a larger cache_size, or a cache_dir on a larger disk",
                    option=("cache_size", "cache_dir"),
                )
            held = sum(size for _, size, _ in blobs)
            for path, size, _ in blobs:
                if held + needed <= bound:
                    break
                if path.name not in keep:
                    path.unlink(missing_ok=True)
                    path.with_name(f"{path.name}.used").unlink(missing_ok=True)
                    held -= size

    def _blobs(self) -> Iterator[tuple[Path, int, float]]:
        """Path, bytes, time of the last use."""
        for path in (self.folder / "blobs").iterdir():
            if SHA256.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    yield path, path.stat().st_size, _used(path)

    def _use(self, path: Path) -> None:
        # Not the blob's own time: that is part of which file it is, see formats.proofs.
        path.with_name(f"{path.name}.used").touch()

    def _tidy(self) -> None:
        for path in (self.folder / "incoming").iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()


_OPTION = ("cache_dir",)


def _used(path: Path) -> float:
    try:
        return path.with_name(f"{path.name}.used").stat().st_mtime
    except FileNotFoundError:
        return 0.0
