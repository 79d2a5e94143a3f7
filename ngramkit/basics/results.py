"""Results: dataclasses that convert to JSON, tables that convert to pandas."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, overload

from ngramkit.basics.html_tables import html_table
from ngramkit.basics.terminal_text import counted


class Result:
    """The base of dataclasses that convert to JSON values."""

    def to_dict(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


class Tabular:
    def rows(self) -> Iterable[dict[str, Any]]:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        import pandas

        return pandas.DataFrame(list(self.rows()))

    def _repr_html_(self) -> str:
        rows = list(self.rows())
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name) for name in names] for row in rows]
        return html_table(f"{type(self).__name__}: {counted(len(rows), 'row')}", names, cells)


class Summarized(Tabular):
    """Results with a summary of their rows, a row per drafter and budget."""

    def summary(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the summary as a DataFrame."""
        import pandas

        return pandas.DataFrame(self.summary())

    def questions_to_pandas(self) -> Any:
        """Return a DataFrame with a row per question or conversation."""
        return super().to_pandas()


Entry = TypeVar("Entry")


class Entries(Sequence[Entry], Generic[Entry]):
    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        return self._entries[at]

    def __len__(self) -> int:
        return len(self._entries)


Row = TypeVar("Row", bound=Result)


class Rows(Entries[Row], Tabular):
    def __repr__(self) -> str:
        return f"<{len(self)} results: {self._entries!r}>"

    def rows(self) -> list[dict[str, Any]]:
        return self.to_dict()

    def to_dict(self) -> list[dict[str, Any]]:
        return [entry.to_dict() for entry in self]


def plain(value: Any) -> Any:
    """Convert to JSON's types; a path or an artifact becomes its path."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_dataclass(value) and not isinstance(value, type | Result):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Result | Rows):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
