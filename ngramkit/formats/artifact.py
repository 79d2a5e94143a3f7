"""An artifact is a folder: manifest.json, README.md and `.safetensors` files.

Each kind is a subclass in a module of its own, whose docstring is the format's specification.
`open` is the one door: behind it every value has been checked, here and now or once before.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import Array, Opened, WrongFileError, open_container
from ngramkit.formats.files import Identity, identity
from ngramkit.formats.json_text import AGAIN, whole_number
from ngramkit.formats.manifest import Manifest, TokenizerRecord, read_manifest
from ngramkit.progress import SILENT, Reporter

# array name -> (allowed dtypes, number of dimensions)
Layout = Mapping[str, tuple[tuple[str, ...], int]]
# One independent part of a check: what holds, line by line; raises ArtifactError at a breach.
Part = Callable[[], list[str]]

SHARDS = re.compile(r"shard-\d{5,}\.safetensors")
MOST_PARAMETER = (1 << 31) - 1


class Artifact(ABC):
    """Opened, not read: arrays are memory maps."""

    kind: ClassVar[str]
    data_files: ClassVar[re.Pattern[str]] = SHARDS  # their names; there is at least one

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.origin: str | None = None  # the URL that it was fetched from, or written to
        self._places: dict[str, Path] = {name: path / name for name in manifest.files}
        self._identities: dict[str, Identity] = {}  # of the files that were found whole
        self._opened: dict[str, Opened] = {}  # those, mapped: a replacement changes nothing

    def __repr__(self) -> str:
        """<FrozenTable 46,111 leaders, llama-tokenizer, 27.6 MB>"""
        counts, tokenizer = self.manifest.counts, self.tokenizer.id.rstrip("/").rpartition("/")[2]
        name = next((name for name in ("leaders", "rows", "tokens") if name in counts), None)
        many = f"{counts[name]:,} {name}, " if name else ""
        return f"<{type(self).__name__} {many}{tokenizer}, {self.manifest.bytes / 1e6:,.1f} MB>"

    @classmethod
    def open(cls, path: str | Path, *, reporter: Reporter = SILENT) -> Self:
        """Raises ArtifactError where `path` holds no whole artifact of this kind."""
        from ngramkit.formats.checks import admit

        path = Path(path)
        manifest = read_manifest(path)
        while True:
            try:
                artifact = cls.unchecked(path, manifest)
                artifact._identities = admit(artifact, reporter)
                artifact._opened = {name: artifact._container(name) for name in manifest.files}
                return artifact
            except ArtifactError:
                before, manifest = manifest, read_manifest(path)
                if manifest == before:  # else it was replaced meanwhile: look at the new one
                    raise

    @classmethod
    def unchecked(cls, path: Path, manifest: Manifest) -> Self:
        """As `open`, but its values may be anything; for what checks them."""
        if manifest.kind != cls.kind:
            raise ArtifactError(f"{path} is a {manifest.kind}, not a {cls.kind}", "check the path")
        artifact = cls(path, manifest)
        artifact.require_files()
        return artifact

    def require_files(self) -> None:
        names = self.manifest.files
        fit = bool(names) and all(map(self.data_files.fullmatch, names))
        require(fit, self.path, f"its files are not those of a {self.kind}")

    @property
    def where(self) -> str:
        """Where it is for whoever asked for it: its URL, else its folder."""
        return self.origin or str(self.path)

    @property
    def tokenizer(self) -> TokenizerRecord:
        return self.manifest.tokenizer

    def identities(self) -> dict[str, Identity]:
        """Which files there are now. ArtifactError where one is missing or of another size."""
        found = {}
        for name, record in self.manifest.files.items():
            file = self._places[name]
            try:
                state = identity(file.stat())
            except OSError as error:
                raise ArtifactError(f"{file} is missing", AGAIN) from error
            if state[2] != record.bytes:
                why = f"{state[2]:,} bytes where {record.bytes:,} are listed"
                raise WrongFileError(file, why)
            found[name] = state
        return found

    def arrays(self, name: str, layout: Layout) -> dict[str, Array]:
        """The arrays of one listed file, exactly those of its layout."""
        if name not in self.manifest.files:
            raise ArtifactError(f"the manifest of {self.path} does not list {name}")
        opened = self._opened.get(name) or self._container(name)
        require_layout(self._places[name], opened.arrays, layout)
        return opened.arrays

    def _container(self, name: str) -> Opened:
        path = self._places[name]
        opened = open_container(path)
        if opened.identity != self._identities.get(name, opened.identity):
            raise ArtifactError(f"{path} was replaced after it was opened", "open it again")
        return opened

    def parameter(self, name: str) -> int:
        """A whole number from 1 on. Raises ArtifactError where the manifest has none."""
        value = self.manifest.parameters.get(name)
        if not whole_number(value, 1, MOST_PARAMETER):
            raise ArtifactError(f"{self.path} has no valid {name}", AGAIN)
        return int(value)  # type: ignore[arg-type]

    @abstractmethod
    def parts(self) -> list[Part]:
        """Every invariant, in parts that may run on threads, in any order."""

    def check(self) -> Iterator[str]:
        """Yields each invariant that holds; raises ArtifactError at the first breach."""
        for part in self.parts():
            yield from part()


def require_one_tokenizer(artifacts: Sequence[Artifact]) -> None:
    """Raises ArtifactError, naming both, where one is of another tokenizer than the first."""
    for other in artifacts[1:]:
        other.tokenizer.require(artifacts[0].tokenizer, str(other.path))


def require(holds: bool | np.bool_, path: Path, breach: str) -> None:
    """Raises ArtifactError, naming `path` and the breach, unless `holds`."""
    if not holds:
        raise ArtifactError(f"{path} is damaged: {breach}", AGAIN)


def require_layout(path: Path, arrays: Mapping[str, Array], layout: Layout) -> None:
    """Raises ArtifactError unless the arrays are those of the layout, no others."""
    for name, (dtypes, dimensions) in layout.items():
        found = arrays.get(name)
        if found is None or _name_of(found.dtype) not in dtypes or found.ndim != dimensions:
            wanted = f"{' or '.join(dtypes)} in {dimensions} dimensions"
            raise ArtifactError(f"{path} holds no {name!r} of {wanted}", AGAIN)
    require(arrays.keys() == layout.keys(), path, "it holds other arrays too")


@lru_cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which numpy puts together anew each time


def token_dtype(vocabulary: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """The narrowest dtype for ids 0..vocabulary, where `vocabulary` itself is the separator."""
    return np.dtype(np.uint16) if vocabulary <= 0xFFFF else np.dtype(np.uint32)
