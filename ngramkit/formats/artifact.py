"""The base of artifacts: folders with manifest.json, README.md and `.safetensors` files.

Each kind is a subclass, whose module specifies its bytes. `Artifact.open` checks every value once
per machine (`formats.proofs`).
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from ngramkit.basics.errors import ArtifactError, WrongKindError
from ngramkit.basics.html_tables import html_table
from ngramkit.basics.kinds import a_kind
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.machine import cores
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import size_text, visible
from ngramkit.basics.untrusted import TRY_AGAIN, Identity, file_identity, whole_number
from ngramkit.formats.manifest import Manifest, read_manifest
from ngramkit.formats.proofs import is_proven, write_proof
from ngramkit.formats.safetensors import (
    Array,
    FileRecord,
    WrongFileError,
    open_arrays,
    require as require,
    sha256_of,
)
from ngramkit.formats.tokenizer_record import TokenizerRecord

# array name -> (allowed dtypes, number of dimensions)
Layout = Mapping[str, tuple[tuple[str, ...], int]]
# A part of a check: returns a line for each invariant, or raises ArtifactError.
ValueCheck = Callable[[], list[str]]

TABLE = "table.safetensors"
IDS = ("uint16", "uint32")  # the dtypes of ids, of which the vocabulary decides one
SHARDS = re.compile(r"shard-\d{5,}\.safetensors")
LOG = logging.getLogger("ngramkit")


@dataclass(eq=False, repr=False)
class Artifact(ABC):
    """An opened artifact, whose arrays are memory maps. It can be used as a path."""

    kind: ClassVar[str]
    data_files: ClassVar[re.Pattern[str]] = SHARDS  # names of its files, at least one

    path: Path
    manifest: Manifest
    origin: str | None = field(default=None, init=False)  # its URL, if it is from or at one
    _identities: dict[str, Identity] = field(default_factory=dict, init=False)  # of checked files
    # Arrays by file, mapped at opening, so that replacing the folder changes nothing.
    _opened: dict[str, dict[str, Array]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        counts, tokenizer = self.manifest.counts, self.tokenizer.id.rstrip("/").rpartition("/")[2]
        name = next((name for name in ("leaders", "rows", "tokens") if name in counts), None)
        many = f"{counts[name]:,} {name}, " if name else ""
        size = f"{self.manifest.bytes / 1e6:,.1f} MB"
        return visible(f"<{type(self).__name__} {many}{tokenizer}, {size}: {self.path}>")

    def _repr_html_(self) -> str:
        rows = [
            ("path", self.path),
            ("tokenizer", self.tokenizer.id),
            *self.manifest.counts.items(),
            ("size", size_text(self.manifest.bytes)),
        ]
        return html_table(type(self).__name__, (), rows)

    def __fspath__(self) -> str:
        return str(self.path)

    @classmethod
    def open(
        cls, path: str | Path, manifest: Manifest | None = None, *, reporter: Reporter = SILENT
    ) -> Self:
        """Open the artifact; give its `manifest` if it was read.

        Raises ArtifactError if it is missing, damaged or of another kind.
        """
        path = Path(path)
        manifest = read_manifest(path) if manifest is None else manifest
        while True:
            try:
                if manifest.kind != cls.kind:
                    raise WrongKindError(
                        f"{path} must be {a_kind(cls.kind)}, got {a_kind(manifest.kind)}",
                        "Check the path.",
                    )
                artifact = cls(path, manifest)
                artifact.require_files()
                artifact._identities = check_unless_proven(artifact, reporter)
                artifact._opened = {
                    name: open_arrays(path / name, artifact._identities.get(name))
                    for name in manifest.files
                }
                return artifact
            except ArtifactError:
                before, manifest = manifest, read_manifest(path)
                if manifest == before:  # otherwise it was replaced meanwhile: try the new one
                    raise

    def require_files(self) -> None:
        names = self.manifest.files
        fit = bool(names) and all(map(self.data_files.fullmatch, names))
        require(fit, self.path, f"its files are not those of a {self.kind}")

    @property
    def where(self) -> str:
        return self.origin or str(self.path)

    @property
    def tokenizer(self) -> TokenizerRecord:
        return self.manifest.tokenizer

    @property
    def separator(self) -> int:
        return self.tokenizer.separator

    def identities(self) -> dict[str, Identity]:
        """Return the listed files' identities. Raises ArtifactError if a file or size is wrong."""
        identities = {}
        for name, record in self.manifest.files.items():
            file = self.path / name
            try:
                state = file_identity(file.stat())
            except OSError as error:
                raise ArtifactError(f"cannot read {file}: it is missing", TRY_AGAIN) from error
            if state[2] != record.bytes:
                why = f"it has {state[2]:,} bytes, the manifest lists {record.bytes:,}"
                raise WrongFileError(file, why)
            identities[name] = state
        return identities

    def arrays(self, name: str, layout: Layout) -> dict[str, Array]:
        if name not in self.manifest.files:
            raise ArtifactError(f"cannot read {name} of {self.path}: its manifest does not list it")
        path, arrays = self.path / name, self._opened.get(name)
        if not arrays:
            arrays = open_arrays(path, self._identities.get(name))
        require_layout(path, arrays, layout)
        width = token_dtype(self.tokenizer.vocabulary)
        for array, (dtypes, _) in layout.items():
            fits = dtypes is not IDS or arrays[array].dtype == width
            require(fits, path, f"ids are not {width}")
        return arrays

    def parameter(self, name: str) -> int:
        value = self.manifest.parameters.get(name)
        if not whole_number(value, 1, LIMITS.parameter):
            raise ArtifactError(f"{self.path} is damaged: it has no valid {name}", TRY_AGAIN)
        return int(value)  # type: ignore[arg-type]

    @abstractmethod
    def value_checks(self) -> list[ValueCheck]:
        """Return the checks of all invariants. They may run on threads, in any order."""


class TableArtifact(Artifact):
    """An artifact of one file. The arrays of `layout` are its attributes."""

    data_files = re.compile(re.escape(TABLE))
    layout: ClassVar[Layout]

    def __getattr__(self, name: str) -> Array:
        if name not in self.layout:
            raise AttributeError(f"unknown attribute {name!r}", name=name, obj=self)
        return self.table[name]

    @cached_property
    def table(self) -> dict[str, Array]:
        arrays = self.arrays(TABLE, self.layout)
        self.require_lengths(arrays)
        return arrays

    @abstractmethod
    def require_lengths(self, arrays: Mapping[str, Array]) -> None:
        """Raise ArtifactError if the arrays' lengths do not fit each other or the manifest."""


def require_one_tokenizer(artifacts: Sequence[Artifact]) -> None:
    for other in artifacts[1:]:
        other.tokenizer.require(artifacts[0].tokenizer, other.where)


def require_layout(path: Path, arrays: Mapping[str, Array], layout: Layout) -> None:
    for name, (dtypes, dimensions) in layout.items():
        array = arrays.get(name)
        if array is None or array.dtype.name not in dtypes or array.ndim != dimensions:
            wanted = f"{' or '.join(dtypes)} in {dimensions} dimensions"
            raise ArtifactError(f"{path} is damaged: it has no {name!r} of {wanted}", TRY_AGAIN)
    require(arrays.keys() == layout.keys(), path, "it has other arrays too")


def token_dtype(vocabulary: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """Return the narrowest dtype for ids 0..vocabulary, the last of which is the separator."""
    return np.dtype(np.uint16) if vocabulary <= 0xFFFF else np.dtype(np.uint32)


def check_unless_proven(artifact: Artifact, reporter: Reporter = SILENT) -> dict[str, Identity]:
    """Check an artifact unless a proof exists; return its files' identities."""
    checksum, identities = artifact.manifest.checksum, artifact.identities()
    if not identities or is_proven(checksum, identities):  # a history is checked as it is read
        return identities
    started = time.perf_counter()
    reporter.stage(f"checking {artifact.path}", artifact.manifest.bytes, "bytes")
    for _ in verify_checksums_and_values(artifact, reporter, values=not is_proven(checksum)):
        pass
    if artifact.identities() != identities:
        raise ArtifactError(
            f"cannot open {artifact.path}: it was replaced while it was checked", "Open it again."
        )
    write_proof(checksum, identities)
    seconds = time.perf_counter() - started
    if seconds > 1.0:
        LOG.info("checked %s once, byte by byte: %.1f s", artifact.path, seconds)
    return identities


def verify_checksums_and_values(
    artifact: Artifact, reporter: Reporter = SILENT, *, values: bool = True
) -> Iterator[str]:
    """Yield a line for every valid size and checksum and, with `values`, every invariant."""
    artifact.identities()
    files = sorted(artifact.manifest.files.items())

    def checksum(entry: tuple[str, FileRecord]) -> None:
        name, record = entry
        if sha256_of(artifact.path / name) != record.sha256:
            raise WrongFileError(artifact.path / name, "its checksum is not the listed one")
        reporter.advance(record.bytes)

    with ThreadPoolExecutor(cores()) as pool:
        for (name, _), _ in zip(files, pool.map(checksum, files), strict=True):
            yield f"{name}: size"
            yield f"{name}: checksum"
        if values:
            for lines in pool.map(lambda check: check(), artifact.value_checks()):
                yield from lines
