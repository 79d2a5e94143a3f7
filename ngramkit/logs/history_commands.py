"""Commands on histories of past requests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngramkit.basics.arguments import check_types
from ngramkit.basics.errors import (
    InputError,
    UsageError,
    given_paths,
    require_between,
    require_list,
    require_texts,
)
from ngramkit.basics.models import chosen_model
from ngramkit.basics.notebook import NOTEBOOK_BARS
from ngramkit.basics.progress import Reporter
from ngramkit.basics.results import Result, Rows
from ngramkit.corpus.agent_sessions.read import PRIVACY_WARNING
from ngramkit.corpus.chat import require_template
from ngramkit.corpus.tokenizer import TextTokenizer, load_tokenizer, load_tokenizer_of
from ngramkit.drafters.base import TokenArray
from ngramkit.formats.eviction import drop_matching, keep_newest_requests
from ngramkit.formats.history import History, clear_partials, merge_histories, require_no_other
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.logs.agent_sessions import without_earlier_answers
from ngramkit.logs.read import Files, NewestItems, read_log
from ngramkit.logs.request import LoggedRequest
from ngramkit.logs.request_tokenizer import RequestTokenizer

SHOWN_CHARS = 300  # per prompt and per output


@dataclass(frozen=True)
class RememberedRequest(Result):
    prompt: str  # its end
    output: str  # its beginning


@dataclass(frozen=True)
class HistoryContents(Result):
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
    private: bool = False


def history_inspect(
    path: str | Path, *, last: int = 0, model: str | Path | None = None
) -> HistoryContents:
    """Return a history's sizes, and the texts of its `last` newest requests.

    `model`: whose tokenizer decodes (default: the history's own).
    """
    check_types(int, last=last)
    require_between("last", last, 0)
    opened = History.open(path)
    reading = opened.log.read()
    index = opened.load_index(0)
    shown = []
    if last:
        tokenizer = _tokenizer_of(opened, model)
        for request in reading.requests[-last:]:
            prompt = tokenizer.decode(request.tokens[: request.prompt])
            output = tokenizer.decode_answer(request.tokens[request.prompt :])
            shown.append(RememberedRequest(prompt[-SHOWN_CHARS:], output[:SHOWN_CHARS]))
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
        private=opened.manifest.private,
    )


@dataclass(frozen=True)
class HistorySize(Result):
    path: Path
    requests: int
    tokens: int
    dropped: int = 0  # requests
    damaged_bytes: int = 0  # deleted, or moved to requests.damaged

    @classmethod
    def of(cls, history: History, dropped: int = 0, damaged_bytes: int = 0) -> HistorySize:
        requests = history.read().requests
        tokens = sum(len(request.tokens) for request in requests)
        return cls(history.path, len(requests), tokens, dropped, damaged_bytes)


@dataclass(frozen=True)
class ImportedHistory(Result):
    path: Path
    imported: int  # requests
    imported_tokens: int
    dropped: int  # oldest requests
    requests: int
    tokens: int


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
    reporter: Reporter = NOTEBOOK_BARS,
) -> ImportedHistory:
    """Add the requests of logs to the history `out`, which is created if it does not exist.

    Requests are added in the order of their times; one without a time stays after the one before
    it. Sessions of agents join without their copies, and with `prompts` each request with what was
    said since the model's last answer. Memory holds the token ids of the requests that will be
    kept, and the text of one request or session.

    Args:
        model: Whose tokenizer to use; None takes the history's, else the default model.
        format, columns, where: See `ngramkit.logs.read.read_log`.
        template: The chat template of conversations.
        prompts: Store prompts too.
        tokens: Drop the oldest requests beyond this many tokens.

    Raises InputError for unreadable files or no request, ArtifactError for another tokenizer's
    history; nothing is added then.
    """
    check_types(bool, prompts=prompts)
    require_template(template)
    if tokens is not None:
        require_between("tokens", tokens, 1)
    require_no_other(Path(out))
    exists = (Path(out) / MANIFEST_FILE).exists()
    if model is None and exists:
        model = _recorded_model(History.open(out))
    tokenizer = load_tokenizer(chosen_model(model, reporter).name)
    if exists:  # raise before the log is read, which may take minutes
        History.at(out, tokenizer.record)
    encode = RequestTokenizer(tokenizer, template, reporter, prompts=prompts)
    newest: NewestItems[tuple[TokenArray, int]] = NewestItems(tokens)
    total = 0
    warned = False
    read: Iterable[LoggedRequest] = read_log(
        files, format=format, columns=columns, where=where, reporter=reporter
    )
    if prompts:
        read = map(without_earlier_answers, read)
    for request, (prompt, output, _) in encode.encoded(read):
        if request.agent and not warned:
            warned = True
            reporter.note(f"{PRIVACY_WARNING}: only you can read {out}, and push refuses it")
        if not newest.given:  # only after any error about the files
            reporter.stage("reading the log", unit="requests")
        ids = np.concatenate([prompt, output]) if prompts else output
        assert request.time is not None
        newest.add(request.time, len(ids), (ids, len(prompt) if prompts else 0))
        total += len(ids)
        reporter.advance(1)
    imported = newest.given
    if not imported:
        raise InputError("cannot import the log: it has no requests", "Check the files.")
    history = History.at(out, tokenizer.record)
    history.extend(newest.in_order())
    dropped = imported - len(newest)
    if tokens is not None:
        dropped += keep_newest_requests(history, tokens)[0]
    size = HistorySize.of(history)
    return ImportedHistory(Path(out), imported, total, dropped, size.requests, size.tokens)


def history_merge(paths: Sequence[str | Path], out: str | Path) -> HistorySize:
    """Merge histories into a new one, the newest requests of each last.

    A shared request is kept as often as in the history that holds it most often. Raises
    ArtifactError for a damaged log.
    """
    require_list("paths", paths)
    given = given_paths("paths", paths)
    if not given:
        raise UsageError(
            "paths must name at least one history, got none", "Name one.", option="paths"
        )
    if os.path.lexists(out):
        raise UsageError(f"cannot write {out}: it exists", "Choose another out.", option="out")
    return HistorySize.of(*merge_histories([History.open(path) for path in given], Path(out)))


def history_trim(path: str | Path, tokens: int) -> HistorySize:
    """Drop the oldest requests so that at most `tokens` remain.

    Damaged bytes are moved to requests.damaged. Running processes see the change.
    """
    check_types(int, tokens=tokens)
    history = History.open(path)
    return HistorySize.of(history, *keep_newest_requests(history, tokens))


def history_forget(
    path: str | Path,
    *,
    text: str | None = None,
    everything: bool = False,
    model: str | Path | None = None,
) -> HistorySize:
    """Delete the requests that contain `text`, or everything, and all damaged bytes.

    Also deletes unfinished copies of killed merges and pulls in the same folder. Running engines
    see the change after a restart. `model`: whose tokenizer finds `text` (default: the history's
    own). Raises UsageError unless exactly one of `text` and `everything` is given, InputError if
    the tokenizer cannot be loaded.
    """
    check_types(bool, everything=everything)
    both = ("text", "everything")
    if text and everything:
        raise UsageError("cannot use text with everything", "Give one of them.", option=both)
    if not text and not everything:
        raise UsageError(
            "text or everything must be given", "Give text, or everything=True.", option=both
        )
    require_texts("text", [] if text is None else [text])
    clear_partials(Path(path))
    history = History.open(path)
    if everything:
        return HistorySize.of(history, *drop_matching(history, lambda request: True))
    tokenizer = _tokenizer_of(history, model)
    dropped = drop_matching(history, lambda each: str(text) in tokenizer.decode_answer(each.tokens))
    return HistorySize.of(history, *dropped)


def _recorded_model(history: History) -> str:
    """Return the model of a history. Raises InputError if an engine showed none."""
    if not history.tokenizer.is_known:
        raise InputError(
            f"cannot find the tokenizer of {history.path}: its engine showed none",
            "Give model.",
            option="model",
        )
    return history.tokenizer.id


def _tokenizer_of(history: History, model: str | Path | None) -> TextTokenizer:
    """Load a history's tokenizer, from `model` if given.

    Raises as `load_tokenizer_of`. If an engine showed no tokenizer, `model` is needed, and
    ArtifactError is raised if it lacks an id of the requests, or has more ids than the engine's.
    """
    record = history.tokenizer
    if record.is_known:
        return load_tokenizer_of(history, model)
    tokenizer = load_tokenizer(model or _recorded_model(history))
    highest = max((int(each.tokens.max(initial=0)) for each in history.read().requests), default=0)
    if not highest < tokenizer.record.vocabulary <= record.vocabulary:
        record.require(tokenizer.record, str(history.path), "Give the model that wrote it.")
    return tokenizer
