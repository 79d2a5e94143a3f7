"""An artifact is a folder: manifest.json, README.md and `.safetensors` files.

Each kind is a subclass in a module of its own, whose docstring is the format's specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.manifest import Manifest, TokenizerRecord, read_manifest

# array name -> (allowed dtypes, number of dimensions)
Layout = Mapping[str, tuple[tuple[str, ...], int]]


class Artifact(ABC):
    """Opened, not read: arrays are memory maps."""

    kind: ClassVar[str]

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Raises ArtifactError where `path` holds no artifact of this kind."""
        path = Path(path)
        manifest = read_manifest(path)
        if manifest.kind != cls.kind:
            raise ArtifactError(f"{path} is a {manifest.kind}, not a {cls.kind}", "check the path")
        return cls(path, manifest)

    @property
    def tokenizer(self) -> TokenizerRecord:
        return self.manifest.tokenizer

    def arrays(self, name: str, layout: Layout) -> dict[str, Array]:
        """The arrays of one listed file, checked against its layout and its listed size."""
        if name not in self.manifest.files:
            raise ArtifactError(f"the manifest of {self.path} does not list {name}")
        path = self.path / name
        arrays = open_arrays(path)
        listed = self.manifest.files[name].bytes
        if path.stat().st_size != listed:
            raise ArtifactError(
                f"{path} has {path.stat().st_size:,} bytes where the manifest says {listed:,}",
                "build or pull the artifact again",
            )
        for array, (dtypes, dimensions) in layout.items():
            found = arrays.get(array)
            if found is None or found.dtype.name not in dtypes or found.ndim != dimensions:
                wanted = f"{' or '.join(dtypes)} in {dimensions} dimensions"
                raise ArtifactError(
                    f"{path} holds no {array!r} of {wanted}",
                    "build or pull the artifact again",
                )
        return arrays

    @abstractmethod
    def check(self) -> Iterator[str]:
        """Yields each invariant that holds; raises ArtifactError at the first breach."""


def require_one_tokenizer(artifacts: Sequence[Artifact]) -> None:
    """Raises ArtifactError, naming both, where one is of another tokenizer than the first."""
    for other in artifacts[1:]:
        other.tokenizer.require(artifacts[0].tokenizer, str(other.path))


def require(holds: bool | np.bool_, path: Path, breach: str) -> None:
    """Raises ArtifactError, naming `path` and the breach, unless `holds`."""
    if not holds:
        raise ArtifactError(f"{path} is damaged: {breach}", "build or pull the artifact again")


def token_dtype(vocabulary: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """The narrowest dtype for ids 0..vocabulary, where `vocabulary` itself is the separator."""
    return np.dtype(np.uint16) if vocabulary <= 0xFFFF else np.dtype(np.uint32)
