"""Which column of a table holds the text, and how a record becomes a row.

Knows records (column name -> value); not where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ngramkit.corpus.document import Row
from ngramkit.errors import InputError
from ngramkit.visible import visible

PREFERRED = ("text", "content")
LISTED = 30  # columns that an error names
LICENSES = ("license", "licenses", "licence", "max_stars_repo_licenses")
REPOSITORIES = ("repo_name", "max_stars_repo_name", "repository_name", "repository", "repo")


def text_column(columns: Mapping[str, bool], wanted: str | None, where: str) -> str:
    """The column to read; `columns` says of each whether it holds strings.

    `wanted` if given, else `text`, else `content`, else the only string column. Raises InputError
    where that decides nothing.
    """
    listed = ", ".join(visible(name, 60) for name in islice(columns, LISTED)) or "none"
    if len(columns) > LISTED:
        listed += f" and {len(columns) - LISTED:,} more"
    if wanted is not None:
        if wanted not in columns:
            raise InputError(f"{where} has no column {wanted!r}", f"its columns: {listed}")
        return wanted
    strings = [name for name, is_string in columns.items() if is_string]
    for name in PREFERRED:
        if name in columns:
            return name
    if len(strings) == 1:
        return strings[0]
    raise InputError(
        f"nothing tells which of its columns holds the text of {where}",
        f"choose a column of {listed}",
        option="column",
    )


@dataclass(frozen=True)
class RowMaker:
    """Turns records into rows. `join_turns` makes one document of a conversation's turns."""

    column: str
    license_column: str | None = None
    repository_column: str | None = None
    join_turns: bool = False

    @classmethod
    def of(cls, columns: Mapping[str, bool], column: str, *, join_turns: bool = False) -> RowMaker:
        """Finds the licence and the repository column by their usual names."""
        return cls(column, _first(LICENSES, columns), _first(REPOSITORIES, columns), join_turns)

    @property
    def columns(self) -> list[str]:
        """All that needs reading."""
        names = (self.column, self.license_column, self.repository_column)
        return [name for name in names if name is not None]

    def row(self, record: Mapping[str, Any]) -> Row:
        """Raises KeyError without the column, TypeError where it holds no text."""
        texts = texts_of(record[self.column])
        if self.join_turns and len(texts) > 1:
            texts = ("\n\n".join(texts),)
        licenses = _strings(record.get(self.license_column)) if self.license_column else ()
        names = _strings(record.get(self.repository_column)) if self.repository_column else ()
        return Row(texts, licenses, names[0] if names else "")


def texts_of(value: Any) -> Sequence[str]:
    """The texts in a column's value: a string, a list of turns, a list of {role, content}.

    >>> texts_of([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}])
    ('Hi.', 'Hello!')
    """
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ("",)
    if isinstance(value, list):
        return tuple(_turn(turn) for turn in value)
    raise TypeError(f"{type(value).__name__} where a text was expected")


def _turn(turn: Any) -> str:
    if isinstance(turn, str):
        return turn
    content = turn.get("content", turn.get("value")) if isinstance(turn, Mapping) else None
    if isinstance(content, str):
        return content
    raise TypeError(f"a turn that is neither a text nor has a text as content: {turn!r:.60}")


def _first(names: Sequence[str], columns: Mapping[str, bool]) -> str | None:
    return next((name for name in names if name in columns), None)


def _strings(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    return tuple(str(entry) for entry in values if entry)
