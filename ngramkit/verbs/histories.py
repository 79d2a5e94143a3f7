"""Histories of several machines joined, and old requests forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ngramkit.results import Result

if TYPE_CHECKING:
    from ngramkit.formats.history import History


@dataclass(frozen=True)
class HistorySize(Result):
    """A history after it was written; `dropped` requests of it went."""

    path: Path
    requests: int
    tokens: int
    dropped: int = 0

    @classmethod
    def of(cls, history: History, dropped: int = 0) -> HistorySize:
        requests = history.log.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        return cls(history.path, len(requests), tokens, dropped)


def merge_histories(paths: Sequence[str | Path], out: str | Path) -> HistorySize:
    """A new history of all requests of several, the newest of each last."""
    from ngramkit.formats.history import History
    from ngramkit.formats.history_merge import merge as merged

    return HistorySize.of(merged([History.open(path) for path in paths], Path(out)))


def trim_history(path: str | Path, tokens: int) -> HistorySize:
    """Forgets the oldest requests, so that at most `tokens` stay.

    Processes that use the history notice.
    """
    from ngramkit.formats.history import History

    history = History.open(path)
    return HistorySize.of(history, history.trim(tokens))
