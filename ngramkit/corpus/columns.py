"""Choice of the text column: the requested path, a usual name, or the only column of text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any

from ngramkit.basics.errors import BadRecordError, InputError
from ngramkit.basics.terminal_text import visible
from ngramkit.corpus.json_records import is_null
from ngramkit.corpus.turns import is_turn
from ngramkit.corpus.unpacking import is_string

TEXT_COLUMNS = ("text", "content")
CONVERSATION_COLUMNS = ("messages", "conversations", "conversation")
MAX_LISTED_COLUMNS = 30  # columns in an error
MAX_DEPTH = 4  # levels of nested objects whose fields are inspected
MAX_FIELDS = 1000


class ColumnContent(IntEnum):
    """The content of a column; the greatest over its values."""

    NULLS = 0  # only nulls
    OTHER = 1
    FIELDS = 2  # an object, or a list of them
    PARTS = 3  # a list of texts, or a text in each object of a list
    TURNS = 4  # a conversation
    TEXT = 5


@dataclass
class Columns:
    """The content of columns (`top`) and of paths inside them (`inside`)."""

    top: dict[str, ColumnContent] = field(default_factory=dict)
    inside: dict[str, ColumnContent] = field(default_factory=dict)

    @classmethod
    def of_schema(cls, schema: Any) -> Columns:
        columns = cls()
        columns.top = {f.name: columns._of_type(f.type, f.name) for f in schema}
        return columns

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            holds = self._of_value(value, str(name))
            self.top[name] = max(holds, self.top.get(name, holds))

    def _of_value(self, value: Any, path: str, depth: int = 0) -> ColumnContent:
        if isinstance(value, str):
            return ColumnContent.TEXT
        if is_null(value):
            return ColumnContent.NULLS
        if isinstance(value, Mapping):
            for name, inner in islice(value.items(), MAX_FIELDS if depth < MAX_DEPTH else 0):
                below = f"{path}.{name}"
                self._add_field(below, self._of_value(inner, below, depth + 1))
            return ColumnContent.FIELDS
        if not isinstance(value, list):
            return ColumnContent.OTHER
        first = next((item for item in value if not is_null(item)), None)
        if is_turn(first):
            return ColumnContent.TURNS
        return self._of_item(self._of_value(first, path, depth))

    def _of_type(self, kind: Any, path: str, depth: int = 0) -> ColumnContent:
        from pyarrow import types

        if types.is_dictionary(kind):
            return self._of_type(kind.value_type, path, depth)
        if is_string(kind):
            return ColumnContent.TEXT
        if types.is_null(kind):
            return ColumnContent.NULLS
        if types.is_struct(kind):
            for name, inner in ((f.name, f.type) for f in kind if depth < MAX_DEPTH):
                below = f"{path}.{name}"
                self._add_field(below, self._of_type(inner, below, depth + 1))
            return ColumnContent.FIELDS
        if not (types.is_list(kind) or types.is_large_list(kind)):
            return ColumnContent.OTHER
        item = kind.value_type
        if types.is_struct(item) and is_turn({f.name: None for f in item}):
            return ColumnContent.TURNS
        return self._of_item(self._of_type(item, path, depth))

    def _of_item(self, holds: ColumnContent) -> ColumnContent:
        """Return what a list of such items holds."""
        if holds >= ColumnContent.PARTS:
            return ColumnContent.PARTS
        return holds if holds is ColumnContent.FIELDS else ColumnContent.OTHER

    def _add_field(self, path: str, holds: ColumnContent) -> None:
        if path in self.inside or len(self.inside) < MAX_FIELDS:
            self.inside[path] = max(holds, self.inside.get(path, holds))

    def top_of(self, path: str) -> str | None:
        """Return the column that `path` names or begins with, or None."""
        if path in self.top:
            return path
        ends = [at for at, mark in enumerate(path) if mark == "."]
        return next((path[:at] for at in reversed(ends) if path[:at] in self.top), None)

    def with_usual_name(self, *, final: bool) -> str | None:
        """Return the first column of text with a usual name, or None.

        Unless `final`, also None while one of TEXT_COLUMNS has held only nulls.
        """
        for name in TEXT_COLUMNS:
            holds = self.top.get(name, ColumnContent.OTHER)
            if holds >= ColumnContent.PARTS:
                return name
            if holds is ColumnContent.NULLS and not final:
                return None
        return next(
            (name for name in CONVERSATION_COLUMNS if self.top.get(name) is ColumnContent.TURNS),
            None,
        )


def choose_text_column(columns: Columns, wanted: str | None, where: str) -> str:
    """Return the column to read.

    Raises BadRecordError if none fits, InputError if several hold text.
    """
    top = columns.top
    if wanted is not None:
        if columns.top_of(wanted) is None:
            raise BadRecordError(
                f"unknown column {wanted!r} of {where}",
                f"Choose one of its columns: {list_columns(top)}.",
            )
        return wanted
    if name := columns.with_usual_name(final=True):
        return name
    for name in TEXT_COLUMNS:
        if top.get(name, ColumnContent.FIELDS) is not ColumnContent.FIELDS:
            return name
    holding = [
        name
        for name, holds in top.items()
        if holds is ColumnContent.NULLS or holds >= ColumnContent.PARTS
    ]
    fields = [path for path, holds in columns.inside.items() if holds >= ColumnContent.PARTS]
    if len(holding) == 1 and not fields and top[holding[0]] is not ColumnContent.PARTS:
        return holding[0]
    kind = InputError if fields or any(top[name] for name in holding) else BadRecordError
    hint = "Give records or a table with columns."
    if top:
        listed = list_columns([*holding, *fields] or top)
        hint = (
            f"Give column, one of {listed}; for a mixture, in a recipe with a [[corpus]] for each."
        )
    raise kind(f"cannot choose the text among the columns of {where}", hint, option="column")


def list_columns(columns: Collection[str]) -> str:
    listed = [visible(str(name), 60) for name in islice(columns, MAX_LISTED_COLUMNS)]
    names, others = ", ".join(listed) or "none", len(columns) - len(listed)
    return f"{names} and {others:,} more" if others else names
