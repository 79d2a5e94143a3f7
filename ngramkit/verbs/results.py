"""What verbs give back: dataclasses that turn into JSON, and tables that turn into pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ngramkit.formats.artifact import Artifact

if TYPE_CHECKING:
    from ngramkit.builders.model_weights import Work

Table = TypeVar("Table", bound=Artifact)


class Result:
    """A dataclass that derives from this is told in plain JSON values by `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


Entry = TypeVar("Entry", bound=Result)


class Rows(Sequence[Entry], Generic[Entry]):
    """Results of one kind, in order."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        return self._entries[at]

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<{len(self)} results: {self._entries!r}>"

    def to_dict(self) -> list[dict[str, Any]]:
        return [entry.to_dict() for entry in self]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame, a row each."""
        import pandas

        return pandas.DataFrame(self.to_dict())


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


@dataclass(frozen=True)
class BuiltTable(Result, Generic[Table]):
    """A table read off a model; `work` says what it took, None where it was there already."""

    table: Table
    work: Work | None
