"""Histories of past requests: their contents, merged from several machines, trimmed, forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.errors import UsageError
from ngramkit.formats.history import History, merge
from ngramkit.formats.request_log import PastRequest
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


def history(path: str | Path, *, last: int = 0) -> HistoryContents:
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


def merge_histories(paths: Sequence[str | Path], out: str | Path) -> HistorySize:
    """Merge histories into a new one, the newest requests of each last."""
    return HistorySize.of(merge([History.open(path) for path in paths], Path(out)))


def trim_history(path: str | Path, tokens: int) -> HistorySize:
    """Drop the oldest requests, so that at most `tokens` stay.

    Processes that use the history notice.
    """
    history = History.open(path)
    return HistorySize.of(history, history.trim(tokens))


def forget_history(
    path: str | Path, *, text: str | None = None, everything: bool = False
) -> HistorySize:
    """Drop the requests whose text holds `text`, or everything, and all damaged bytes.

    Processes that use the history notice; an engine drafts from what it has read until it starts
    again. Raises UsageError unless one of the two is given, InputError where the tokenizer cannot
    be loaded to read the requests.
    """
    if (not text) == (not everything):
        raise UsageError(
            "it was not said what to forget",
            "give text, or everything=True",
            option=("text", "everything"),
        )
    history = History.open(path)
    if everything:
        return HistorySize.of(history, history.forget(lambda request: True))
    tokenizer = load_tokenizer(history.tokenizer.id)
    history.tokenizer.require(tokenizer.record, str(history.path))

    def holds(request: PastRequest) -> bool:
        return str(text) in tokenizer.decode(request.tokens)

    return HistorySize.of(history, history.forget(holds))
