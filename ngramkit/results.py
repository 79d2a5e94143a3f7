"""What functions give back: dataclasses that turn into JSON, tables that turn into pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from ngramkit.formats.artifact import Artifact


class Result:
    """A dataclass that derives from this is told in plain JSON values by `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


class Tabular:
    """What derives from this gives its `rows` as a table, too."""

    def rows(self) -> Iterable[dict[str, Any]]:
        """Plain values by column, a row after the other."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """`rows` as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(list(self.rows()))


Entry = TypeVar("Entry")


class Entries(Sequence[Entry], Generic[Entry]):
    """A sequence that a class is made of."""

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


Told = TypeVar("Told", bound=Result)


class Rows(Entries[Told], Tabular):
    """Results of one kind, in order, each a row."""

    def __repr__(self) -> str:
        return f"<{len(self)} results: {self._entries!r}>"

    def rows(self) -> list[dict[str, Any]]:
        return self.to_dict()

    def to_dict(self) -> list[dict[str, Any]]:
        return [entry.to_dict() for entry in self]


def plain(value: Any) -> Any:
    """JSON's own types; an artifact is its path."""
    if isinstance(value, Artifact):
        return str(value.path)
    if is_dataclass(value) and not isinstance(value, type | Result):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Result | Rows):
        return value.to_dict()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
