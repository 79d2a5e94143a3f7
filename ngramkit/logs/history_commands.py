"""Histories of past requests: made of logs, merged from several machines, trimmed, forgotten."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngramkit.basics.errors import (
    InputError,
    UsageError,
    given_paths,
    require_between,
    require_texts,
)
from ngramkit.basics.models import named_model
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.public import public
from ngramkit.basics.results import Result, Rows
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import TokenArray
from ngramkit.formats.history import History, clear_partials, merge_histories, require_no_other
from ngramkit.formats.manifest import NAME
from ngramkit.formats.request_log import PastRequest
from ngramkit.logs.read import Files, read_log
from ngramkit.logs.tokens import RequestTokenizer

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
    """The size of a history after it was written, and what was dropped of it."""

    path: Path
    requests: int
    tokens: int
    dropped: int = 0  # requests
    damaged_bytes: int = 0  # that were deleted, or put aside in requests.damaged

    @classmethod
    def of(cls, history: History, dropped: int = 0, damaged_bytes: int = 0) -> HistorySize:
        requests = history.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        return cls(history.path, len(requests), tokens, dropped, damaged_bytes)


@dataclass(frozen=True)
class ImportedHistory(Result):
    """A history after requests of logs have joined it."""

    path: Path
    imported: int  # requests
    imported_tokens: int
    dropped: int  # requests, the oldest
    requests: int
    tokens: int


@public
def history_import(
    files: Files,
    out: str | Path,
    *,
    model: str | Path | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    template: str = "auto",
    prompts: bool = False,
    tokens: int | None = None,
    reporter: Reporter = SILENT,
) -> ImportedHistory:
    """Add the requests of logs to the history `out`, in the order in which they stand; make it
    where there is none.

    `format`, `columns`, `where`: see ngramkit.logs.read.read_log; `template`: how conversations
    became prompts. `model`: whose tokenizer it is; None: the history's, else as
    `basics.models.chosen_model`. Outputs alone are remembered, unless `prompts`. Of more than
    `tokens` in all the oldest requests are dropped.

    Raises UsageError for what makes no sense, InputError for files that cannot be read or hold no
    request, ArtifactError for a history of another tokenizer. Nothing is added then.
    """
    if tokens is not None:
        require_between("tokens", tokens, 1)
    require_no_other(Path(out))
    if model is None and (Path(out) / NAME).exists():
        model = History.open(out).tokenizer.id
    tokenizer = load_tokenizer(named_model(model, reporter))
    encode = RequestTokenizer(tokenizer, template, reporter, prompts=prompts)
    requests: deque[tuple[TokenArray, int]] = deque()
    imported = total = waiting = 0
    read = read_log(files, format=format, columns=columns, where=where, reporter=reporter)
    for _, (prompt, output, _) in encode.encoded(read):
        if not imported:  # before it, what is wrong with the files is said
            reporter.stage("reading the log", unit="requests")
        ids = np.concatenate([prompt, output]) if prompts else output
        requests.append((ids, len(prompt) if prompts else 0))
        imported, total, waiting = imported + 1, total + len(ids), waiting + len(ids)
        while tokens is not None and waiting > tokens:
            waiting -= len(requests.popleft()[0])
        reporter.advance(1)
    if not imported:
        raise InputError("the log holds no request", "check the files")
    history = History.at(out, tokenizer.record)
    history.extend(requests)
    dropped = imported - len(requests)
    if tokens is not None:
        dropped += history.trim(tokens)[0]
    size = HistorySize.of(history)
    return ImportedHistory(Path(out), imported, total, dropped, size.requests, size.tokens)


@public
def history_merge(paths: Sequence[str | Path], out: str | Path) -> HistorySize:
    """Merge histories into a new one, the newest requests of each last.

    A request that several hold, as copies do, is there once (as often as in the one that holds it
    most often); the others are dropped. Raises ArtifactError for a damaged log.
    """
    given = given_paths("paths", paths)
    if not given:
        raise UsageError("there is no history to merge", "name at least one", option="paths")
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", "choose another out", option="out")
    return HistorySize.of(*merge_histories([History.open(path) for path in given], Path(out)))


@public
def history_trim(path: str | Path, tokens: int) -> HistorySize:
    """Drop the oldest requests, so that at most `tokens` stay.

    Damaged bytes go to requests.damaged. Processes that use the history notice.
    """
    history = History.open(path)
    return HistorySize.of(history, *history.trim(tokens))


@public
def history_forget(
    path: str | Path, *, text: str | None = None, everything: bool = False
) -> HistorySize:
    """Drop the requests whose text holds `text`, or everything, and all damaged bytes.

    Histories that a killed merge or pull left unfinished in the same folder are deleted too.
    Processes that use the history notice; an engine drafts from what it has read until it starts
    again. Raises UsageError unless one of the two is given, InputError where the tokenizer cannot
    be loaded to read the requests.
    """
    both = ("text", "everything")
    if text and everything:
        raise UsageError("text and everything exclude each other", "give one of them", option=both)
    if not text and not everything:
        raise UsageError(
            "it was not said what to forget", "give text, or everything=True", option=both
        )
    require_texts("text", [] if text is None else [text])
    clear_partials(Path(path))
    history = History.open(path)
    if everything:
        return HistorySize.of(history, *history.forget(lambda request: True))
    tokenizer = load_tokenizer(history.tokenizer.id)
    history.tokenizer.require(tokenizer.record, str(history.path))

    def holds(request: PastRequest) -> bool:
        return str(text) in tokenizer.decode(request.tokens)

    return HistorySize.of(history, *history.forget(holds))
