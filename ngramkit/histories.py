"""Histories of past requests: their contents, merged from several machines, or trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.history import History, merge
from ngramkit.public import public
from ngramkit.results import Result, Rows

SHOWN = 300  # characters of a prompt and of an output


@dataclass(frozen=True)
class RememberedRequest(Result):
    """The text of a past request."""

    prompt: str  # its end
    output: str  # its beginning


@dataclass(frozen=True)
class HistoryContents(Result):
    """The content of a history; sizes are in tokens unless they say bytes."""

    path: Path
    tokenizer: str
    requests: int
    tokens: int
    prompt_tokens: int
    indexed_tokens: int
    bytes: int
    damaged_bytes: int
    torn_bytes: int
    last: Rows[RememberedRequest]


@public
def history_inspect(path: str | Path, *, last: int = 0) -> HistoryContents:
    """Return what past requests there are, with the text of the `last` newest ones."""
    opened = History.open(path)
    reading = opened.log.read()
    index = opened.load_index(0)
    shown = []
    if last:
        tokenizer = load_tokenizer(opened.tokenizer.id)
        opened.tokenizer.require(tokenizer.record, str(opened.path))
        for request in reading.requests[-last:]:
            prompt = tokenizer.decode(request.tokens[: request.prompt])
            output = tokenizer.decode(request.tokens[request.prompt :])
            shown.append(RememberedRequest(prompt[-SHOWN:], output[:SHOWN]))
    return HistoryContents(
        path=Path(path),
        tokenizer=opened.tokenizer.id,
        requests=len(reading.requests),
        tokens=sum(len(request.tokens) for request in reading.requests),
        prompt_tokens=sum(request.prompt for request in reading.requests),
        indexed_tokens=0 if index is None else len(index.tokens),
        bytes=sum(file.stat().st_size for file in Path(path).iterdir() if file.is_file()),
        damaged_bytes=reading.damaged,
        torn_bytes=reading.torn,
        last=Rows(shown),
    )


@dataclass(frozen=True)
class HistorySize(Result):
    """The size of a history after it was written, and how many requests were dropped."""

    path: Path
    requests: int
    tokens: int
    dropped: int = 0

    @classmethod
    def of(cls, history: History, dropped: int = 0) -> HistorySize:
        requests = history.log.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        return cls(history.path, len(requests), tokens, dropped)


@public
def history_merge(paths: Sequence[str | Path], out: str | Path) -> HistorySize:
    """Merge histories into a new one, the newest requests of each last."""
    return HistorySize.of(merge([History.open(path) for path in paths], Path(out)))


@public
def history_trim(path: str | Path, tokens: int) -> HistorySize:
    """Drop the oldest requests, so that at most `tokens` stay.

    Processes that use the history notice.
    """
    history = History.open(path)
    return HistorySize.of(history, history.trim(tokens))
