"""Rows of a table that come slowly and in order: kept on the way, so that a killed build resumes.

A quick build writes nothing here. A slow one loses what came since the last save.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.writer import ArtifactWriter

SAVE_AFTER = 30.0  # seconds


class SavedRows:
    """`arrays` of equal length, filled from the front; `end` rows are there.

    Parts lie in the writer's partial folder, named after `stage`, until `discard`.
    """

    def __init__(self, writer: ArtifactWriter, stage: str, arrays: Mapping[str, Array]) -> None:
        self._writer = writer
        self._stage = stage
        self.arrays = arrays
        self.end = 0
        self._parts = 0
        self._recall()
        self._saved = self.end
        self._saved_at = time.monotonic()

    def add(self, **rows: Array) -> None:
        """The next rows, of every array."""
        end = self.end + len(next(iter(rows.values())))
        for name, values in rows.items():
            self.arrays[name][self.end : end] = values
        self.end = end
        if time.monotonic() - self._saved_at >= SAVE_AFTER:
            self._save()

    def discard(self) -> None:
        """The rows are in the table: the parts have done their duty."""
        for part in range(self._parts):
            self._writer.discard(self._name(part))

    def _save(self) -> None:
        rows = slice(self._saved, self.end)
        self._writer.write(
            self._name(self._parts),
            {name: np.ascontiguousarray(array[rows]) for name, array in self.arrays.items()},
            end=self.end,
        )
        self._parts += 1
        self._saved = self.end
        self._saved_at = time.monotonic()

    def _recall(self) -> None:
        while (facts := self._writer.finished(self._name(self._parts))) is not None:
            found = open_arrays(self._writer.partial / self._name(self._parts))
            for name, array in self.arrays.items():
                array[self.end : facts["end"]] = found[name]
            self.end = facts["end"]
            self._parts += 1

    def _name(self, part: int) -> str:
        return f"{self._stage}-{part:05d}.safetensors"
