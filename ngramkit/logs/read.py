"""Read requests from logs of any format."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from ngramkit.basics.errors import InputError, UsageError, hint_for_unknown
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.terminal_text import counted, size_text, visible
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.logs import agent_sessions, agents, openai, prompt_columns, rollouts, servers
from ngramkit.logs.files import LogFile, log_files
from ngramkit.logs.request import FilePlace, Found, Line, LoggedRequest, Reader, SkippedRecord
from ngramkit.logs.skipped import SkipReport

Files = str | Path | Iterable[str | Path]
T = TypeVar("T")


@dataclass(frozen=True)
class LogFormat:
    """A format, recognized by an object or line near a file's beginning."""

    name: str
    title: str
    read: Reader
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    matches_line: Callable[[str], bool] | None = None


def _has_keys(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda body: body.keys() >= set(keys)


# In the order of recognition: formats with distinctive keys come first.
FORMATS = {
    each.name: each
    for each in (
        LogFormat("vllm", "vLLM's log", servers.read_vllm, matches_line=servers.is_vllm),
        LogFormat(
            "sglang", "SGLang's request log", servers.read_sglang, matches_line=servers.is_sglang
        ),
        LogFormat(
            "sessions",
            "sessions of agents",
            agent_sessions.read_sessions,
            agent_sessions.is_session,
        ),
        LogFormat(
            "mini-swe-agent",
            "mini-swe-agent's trajectories",
            agents.read_mini_swe_agent,
            lambda body: str(body.get("trajectory_format", "")).startswith("mini-swe-agent"),
        ),
        LogFormat(
            "swe-agent",
            "SWE-agent's trajectories",
            agents.read_swe_agent,
            _has_keys("trajectory", "history", "info"),
        ),
        LogFormat(
            "openhands", "OpenHands' trajectories", agents.read_openhands, agents.is_openhands
        ),
        LogFormat(
            "tau-bench", "tau-bench's results", agents.read_tau_bench, _has_keys("task_id", "traj")
        ),
        LogFormat(
            "verl",
            "verl's rollouts",
            rollouts.read_verl,
            _has_keys("input", "output", "score", "step"),
        ),
        LogFormat("nemo-rl", "NeMo-RL's rollouts", rollouts.read_nemo_rl, rollouts.is_nemo_rl),
        LogFormat("prime-rl", "prime-rl's rollouts", rollouts.read_prime_rl, rollouts.is_prime_rl),
        LogFormat(
            "slime",
            "slime's rollouts",
            rollouts.read_slime,
            _has_keys("response", "response_length"),
        ),
        LogFormat("openai", "requests of OpenAI's API", openai.read_openai, openai.is_openai),
        LogFormat(
            "columns", "prompts and outputs", prompt_columns.read_columns, prompt_columns.is_columns
        ),
    )
}
NAMED_FORMATS = [name for name in FORMATS if name != "columns"]
BYTES_PER_CHARACTER = 16  # of a session's file, for what was said in it
COPIED_REQUEST = "a request that another file holds, too (a rotated log may be a copy)"
WHOLE_NUMBER = re.compile(r"\A(-?\d+)\.0\Z")  # in records it is without its .0
WHERE = ("model", "kind", "run", "name")  # fields that requests can be selected by


@dataclass
class NewestRequests:
    """The limit of what is read of agents' sessions, and what it leaves out of a log."""

    characters: int  # of the requests
    left_out: int = 0  # requests of the files that were read, which `where` selects
    sessions_read: int = 0  # files
    sessions_found: int = 0
    bytes_read: int = 0  # of these files
    bytes_found: int = 0


def read_log(
    files: Files,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    newest: NewestRequests | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[LoggedRequest]:
    """Yield every request of the files; folders are searched, `hf:ID` is a dataset of the Hub.

    A request without a time gets that of the one before it.

    Args:
        format: A key of FORMATS; None recognizes the format of each file.
        columns: Names of a JSON log's columns by field (prompt, output, ...).
        where: Values by field of WHERE; other requests are not yielded.
        newest: Read only the newest requests of agents' sessions, from the files that end last; if
            `where` is given, from as many files as it needs. It counts what is left out.

    Counts unusable records by reason. Raises UsageError for an unknown format or field; InputError
    for a file that is missing, damaged or in no known format, and if no request remains.
    """
    named = None if format is None and columns is None else _named_format(format, columns)
    wanted = [] if where is None else _parse_conditions(where)

    accepted = [(field, {text, WHOLE_NUMBER.sub(r"\1", text)}) for field, text in wanted]

    def is_wanted(request: LoggedRequest) -> bool:
        return all(getattr(request, field) in texts for field, texts in accepted)

    skips = SkipReport()
    listed = log_files(files, reporter)
    formats: list[tuple[LogFile, LogFormat]] = []
    for path in listed.paths:
        reason = "files that cannot be opened"
        try:
            file = LogFile(path, skips.parts)
            reason = "files in no known format"
            formats.append((file, named or _recognize_format(file)))
        except (InputError, FileNotFoundError) as error:  # a rotated log may be gone
            if path not in listed.in_folders:
                raise
            skips.add_file(reason, error)
    if not formats:
        raise skips.no_readable_file(NAMED_FORMATS)
    skips.files.update(listed.skipped)
    models: Counter[str] = Counter()
    places: dict[int, Path] = {}
    time = -math.inf
    for form, of_form in _files_by_format(formats):
        what = counted(len(of_form), "file") if len(of_form) > 1 else str(of_form[0].path)
        reporter.note(f"log: {what}, {form.title}" + ("" if named else " (by its content)"))
        sessions: _NewestSessions | None = None
        if newest is not None and form.name == "sessions":
            sessions = _NewestSessions(of_form, newest, is_wanted, reporter, selects=bool(wanted))
        lines = chain.from_iterable(
            _read_file(file, form, skips, listed.in_folders)
            for file in (of_form if sessions is None else sessions.files())
        )
        read = form.read(lines)
        if sessions is not None:
            read = sessions.requests(read)
        for found in read:
            if isinstance(found, SkippedRecord):
                skips.add(found)
            elif wanted and not is_wanted(found):
                skips.not_selected += 1
            else:
                models[found.model] += 1
                if len(listed.paths) > 1 and _is_copy_in_another_file(found, places):
                    skips.parts[COPIED_REQUEST] += 1
                found.time = time = time if found.time is None else found.time
                yield found
    skips.print(reporter, models.total())
    if len(models) > 1:
        _warn_of_several_models(models, reporter)
    if not models and (skips.first or skips.not_selected):
        raise skips.no_request(wanted)


def _is_copy_in_another_file(request: LoggedRequest, places: dict[int, Path]) -> bool:
    """Return whether an equal request with a name was found in another file."""
    if not request.name or request.where is None:
        return False
    output = request.output if isinstance(request.output, str) else request.output.tobytes()
    key = hash((request.name, request.turn, request.run, request.time, output))
    return places.setdefault(key, request.where.path) != request.where.path


def _files_by_format(
    formats: Iterable[tuple[LogFile, LogFormat]],
) -> Iterator[tuple[LogFormat, list[LogFile]]]:
    """Yield files of one format that follow each other; all sessions at once, by their begin."""
    rest = [pair for pair in formats if pair[1].name != "sessions"]
    of_agents = [pair for pair in formats if pair[1].name == "sessions"]
    of_agents.sort(key=lambda pair: agent_sessions.start_time(pair[0]))
    for form, group in groupby([*rest, *of_agents], key=lambda pair: pair[1]):
        yield form, [file for file, _ in group]


class _NewestSessions:
    """The newest files of sessions, and the newest requests in them.

    The bytes of the files are enough for all characters. If `selects`, older files are read until
    the selected requests have that many characters.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        newest: NewestRequests,
        is_wanted: Callable[[LoggedRequest], bool],
        reporter: Reporter,
        *,
        selects: bool,
    ) -> None:
        self._files, self._newest, self._is_wanted = files, newest, is_wanted
        self._reporter, self._selects = reporter, selects
        self._times = {file.path: agent_sessions.last_time(file) for file in files}
        self._characters = 0  # of the selected requests

    def files(self) -> Iterator[LogFile]:
        """Yield the newest files, group by group, each group in the order of `files`."""
        newest, most = self._newest, self._newest.characters
        sizes = {file.path: file.path.stat().st_size for file in self._files}
        rest = sorted(sizes, key=lambda path: self._times[path])
        newest.sessions_found, newest.bytes_found = len(rest), sum(sizes.values())
        while rest and (not newest.sessions_read or (self._selects and self._characters < most)):
            group: set[Path] = set()
            end = newest.bytes_read + max(BYTES_PER_CHARACTER * most, newest.bytes_read)
            while rest and newest.bytes_read < end:
                newest.bytes_read += sizes[rest[-1]]
                group.add(rest.pop())
            newest.sessions_read += len(group)
            if rest or newest.sessions_read > len(group):
                self._reporter.note(
                    f"reading the newest {newest.sessions_read:,} of "
                    f"{counted(newest.sessions_found, 'session')}: {size_text(newest.bytes_read)} "
                    f"of {size_text(newest.bytes_found)} (newest)"
                )
            yield from (file for file in self._files if file.path in group)

    def requests(self, found: Iterable[Found]) -> Iterator[Found]:
        """Yield what is skipped or not selected, then the newest requests by time."""
        kept: NewestItems[LoggedRequest] = NewestItems(self._newest.characters, least=1)
        time, path = -math.inf, None
        for each in found:
            if isinstance(each, SkippedRecord):
                yield each
                continue
            assert each.where is not None
            if each.time is not None:
                time = each.time
            elif each.where.path != path:
                time = self._times[each.where.path]
            path = each.where.path
            if not self._is_wanted(each):
                yield each
                continue
            said = each.prompt[-1].content if isinstance(each.prompt, MessagePrefix) else ""
            size = len(said) + len(each.output)
            self._characters += size
            kept.add(time, size, each)
        dropped = kept.given - len(kept)
        self._newest.left_out += dropped
        if dropped:
            self._reporter.note(
                f"keeping the newest {len(kept):,} of {counted(kept.given, 'request')}"
            )
        yield from kept.in_order()


def _warn_of_several_models(models: Counter[str], reporter: Reporter) -> None:
    named = [name for name in models if name]
    if len(named) > 1:
        counts = ", ".join(f"{visible(name, 60)} ({models[name]:,})" for name in named[:5])
        reporter.note(
            f"answers of {counted(len(named), 'model')} are mixed: {counts}; "
            f"select one with where, model={visible(named[0], 60)}"
        )


def _parse_conditions(where: Mapping[str, str]) -> list[tuple[str, str]]:
    _require_texts_by_name("where", where, "texts by field", 'Give {"model": "NAME"}.')
    for name in where:
        if name not in WHERE:
            raise UsageError(
                f"unknown field {name!r} of where", hint_for_unknown(name, WHERE), option="where"
            )
    return list(where.items())


def _require_texts_by_name(name: str, value: Any, wanted: str, hint: str) -> None:
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) for text in [*value, *value.values()]
    ):
        raise UsageError(f"{name} must be {wanted}, got {value!r:.60}", hint, option=name)


def _named_format(name: str | None, names: Mapping[str, str] | None) -> LogFormat | None:
    if names is not None:
        hint = 'Give {"prompt": "question", "output": "answer"}.'
        _require_texts_by_name("columns", names, "names by field", hint)
    if names:
        if name not in (None, "columns"):
            raise UsageError(
                f"cannot use columns with the format {name}",
                "Leave out one of them.",
                option=("columns", "format"),
            )
        return replace(FORMATS["columns"], read=prompt_columns.reader_of(names))
    if name is not None and name not in FORMATS:
        raise UsageError(
            f"unknown format {name!r}", hint_for_unknown(name, FORMATS), option="format"
        )
    return FORMATS[name] if name else None


def _recognize_format(file: LogFile) -> LogFormat:
    """Return a file's format. Raises InputError for an unknown one."""
    if file.is_torch:
        return FORMATS["slime"]
    first: Any = None
    for body in file.samples:
        first = body if first is None else first
        for form in FORMATS.values():
            if form.matches and form.matches(body):
                return form
    beginning = file.beginning
    for line in beginning:
        for form in FORMATS.values():
            if form.matches_line and form.matches_line(line):
                return form
    if not beginning:
        raise InputError(f"cannot read {file.path}: it holds no requests", "Check the path.")
    where = f"{file.path}, line 1" if file.is_json else str(file.path)
    if isinstance(first, dict) and "question_id" in first:
        if "choices" not in first:
            raise InputError(
                f"cannot read {where}: a question without an answer",
                "Run `ngramkit bench`, which has a model answer it.",
            )
        raise InputError(
            f"cannot read {where}: FastChat writes an answer without its question",
            "Run `ngramkit replay` or `ngramkit prune`, which take the questions' file, or read a "
            "log with prompts.",
            option="questions",
        )
    raise InputError(
        f"cannot read {where}: it has no requests in a known format",
        f"Name one ({', '.join(NAMED_FORMATS)}), or the columns of prompt and output.",
        option=("format", "columns"),
    )


def _read_file(
    file: LogFile, form: LogFormat, skips: SkipReport, in_folders: Container[Path]
) -> Iterator[Line]:
    """Yield a file's records. A session in a folder may be damaged, or have a line without end."""
    try:
        if file.is_torch and form is FORMATS["slime"]:
            yield from rollouts.torch_samples(file.path, file.unread)
        elif file.is_torch:
            raise InputError(
                f"cannot detect the format of {file.path}, a file of torch.save",
                "Give slime as its format.",
            )
        elif form.matches_line:
            yield from file.lines()
        else:
            yield from file.objects(lambda at, error: skips.add(SkippedRecord.of(at, error)))
    except InputError as error:
        if form.name != "sessions" or file.path not in in_folders:
            raise
        skips.add(SkippedRecord.of(FilePlace(file.path), error))


class NewestItems(Generic[T]):
    """The newest items of at most `most` in size (None: all), given in any order.

    It keeps at least `least` items. If times are equal, the item given later is newer.
    """

    def __init__(self, most: int | None, least: int = 0) -> None:
        self.given = 0
        self._most, self._least = most, least
        self._size = 0
        self._kept: list[tuple[float, int, int, T]] = []  # a heap of (time, number, size, item)
        self._dropped = (-math.inf, -1)  # (time, number) of the newest that was dropped

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, time: float, size: int, item: T) -> None:
        place = time, self.given
        self.given += 1
        if place < self._dropped:
            return
        heappush(self._kept, (*place, size, item))
        self._size += size
        while self._most is not None and self._size > self._most and len(self) > self._least:
            time, number, size, _ = heappop(self._kept)
            self._size -= size
            self._dropped = time, number

    def in_order(self) -> list[T]:
        return [item for *_, item in sorted(self._kept, key=itemgetter(0, 1))]
