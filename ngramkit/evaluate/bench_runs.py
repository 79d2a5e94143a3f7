"""The runs of a benchmark: one line per answered question and drafter.

The first line of runs.jsonl is the plan; each further line is a QuestionRun. An unfinished last
line is dropped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.terminal_text import visible
from ngramkit.basics.untrusted import not_linked, open_stream, read_plain
from ngramkit.evaluate.result_folder import WRITTEN_FILES, require_no_foreign_files
from ngramkit.formats.outputs import require_fit_for_output
from ngramkit.formats.replacing import hold_lock, replace_text, require_writable, sync_folder

BASELINE_DRAFTER = "none"  # the drafter that others are compared with
RUNS_FILE = "runs.jsonl"
REPORT_FILE = "report.html"
MAX_RUNS_BYTES = 1 << 31  # bytes of runs.jsonl
MAX_FIRST_LINE_BYTES = 1 << 26  # bytes of its first line
T = TypeVar("T")
Key = tuple[str, str]  # drafter, question


@dataclass(frozen=True)
class TurnRun:
    """One request. Seconds are wall-clock, the prefill included."""

    text: str
    token_ids: list[int]  # written tokens
    tokens_per_pass: list[int]  # tokens written per pass, the model's own included
    seconds: float
    prefill_seconds: float
    draft_seconds: float
    verify_seconds: float
    drafted: int | None = None  # verified draft nodes; missing in runs of earlier versions


@dataclass(frozen=True)
class QuestionRun:
    drafter: str
    question: int | str
    category: str
    turns: list[TurnRun]
    load: float = 0.0  # 1-minute load average of the machine at the start
    others: float | None = None  # cores that other programs used; None if unknown

    @property
    def key(self) -> Key:
        return self.drafter, str(self.question)

    @property
    def tokens(self) -> int:
        """Tokens without the prefills' own."""
        return sum(len(turn.token_ids) - 1 for turn in self.turns)

    @property
    def new_tokens(self) -> int:
        return sum(len(turn.token_ids) for turn in self.turns)

    @property
    def tokens_per_pass(self) -> list[int]:
        return [length for turn in self.turns for length in turn.tokens_per_pass]

    @property
    def passes(self) -> int:
        return sum(len(turn.tokens_per_pass) for turn in self.turns)

    @property
    def drafted(self) -> int | None:
        nodes = [turn.drafted for turn in self.turns]
        return None if None in nodes else sum(filter(None, nodes))

    @property
    def seconds(self) -> float:
        return sum(turn.seconds for turn in self.turns)

    def same_text(self, other: QuestionRun) -> bool:
        return [t.token_ids for t in self.turns] == [t.token_ids for t in other.turns]


def require_room(folder: Path) -> None:
    """Raise UsageError for a folder that no benchmark wrote."""
    require_fit_for_output(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} must be a folder", "Choose another out.", option="out")
    require_writable(folder)
    _plan_line(folder)


def require_begun_with(folder: Path, settings: Mapping[str, Any]) -> None:
    if (line := _plan_line(folder)) is not None:
        there = _plan_in(folder / RUNS_FILE, line)
        _require_same(folder, {name: there[name] for name in settings if name in there}, settings)


def _plan_line(folder: Path) -> bytes | None:
    path = folder / RUNS_FILE
    with suppress(FileNotFoundError):
        with open_stream(path) as file:
            first = file.readline(MAX_FIRST_LINE_BYTES)
        if first.startswith(b'{"plan": ') and first.endswith(b"\n"):
            return first
        if not b'{"plan": '.startswith(first[:9]):
            raise UsageError(
                f"cannot replace {path}: it is not of a benchmark",
                "Choose another out.",
                option="out",
            )
    if folder.is_dir():
        require_no_foreign_files(folder, {RUNS_FILE}, "benchmark")
    return None


def _remove_results(folder: Path, plan_line: bytes) -> None:
    """Delete what the benchmark of this plan wrote, except its runs."""
    drafters: Any = []
    with suppress(InputError):
        drafters = _plan_in(folder / RUNS_FILE, plan_line).get("drafters")
    named = drafters if isinstance(drafters, list) else []
    answers = (answers_file(str(each)) for each in (BASELINE_DRAFTER, *named))
    for name in (*WRITTEN_FILES, REPORT_FILE, *answers):
        (folder / name).unlink(missing_ok=True)


def answers_file(drafter: str) -> str:
    return f"answers-{re.sub(r'[^A-Za-z0-9._-]+', '-', drafter)}.jsonl"


def _require_same(folder: Path, there: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    here = json.loads(json.dumps(plan))  # as read back from JSON, with lists for tuples
    if there != here:
        raise UsageError(
            f"cannot continue {folder}, another benchmark: {plan_difference(there, here)}",
            "Choose another out, or replace it with force=True.",
            option=("out", "force"),
        )


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    require_fit_for_output(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.parent / f"{folder.name}.lock"
    with hold_lock(lock, busy=f"another benchmark is writing to {folder}"):
        yield


class Runs:
    """The runs of a folder. Raises UsageError for another plan without `force`."""

    def __init__(self, folder: Path, plan: Mapping[str, Any], *, force: bool = False) -> None:
        self.path = folder / RUNS_FILE
        self.found: dict[Key, QuestionRun] = {}
        require_fit_for_output(folder)
        line = _plan_line(folder)
        if line is not None and not force:
            _require_same(folder, _plan_in(self.path, line), plan)
            self._read()
        else:
            if line is not None:
                _remove_results(folder, line)
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(self.path, json.dumps({"plan": plan}) + "\n")
            sync_folder(folder.parent)

    def add(self, run: QuestionRun) -> None:
        with open(self.path, "a", encoding="utf-8", opener=not_linked) as file:
            file.write(json.dumps(asdict(run)) + "\n")
        self.found[run.key] = run

    def forget(self, drafter: str) -> None:
        self.found = {key: run for key, run in self.found.items() if run.drafter != drafter}

    @property
    def answers(self) -> int:
        return sum(len(run.turns) for run in self.found.values())

    @property
    def others(self) -> float | None:
        """The cores that other programs used on average; None if unknown."""
        known = [(run.others, run.seconds) for run in self.found.values() if run.others is not None]
        seconds = sum(each for _, each in known)
        return sum(others * each for others, each in known) / seconds if seconds else None

    def answered(self, drafter: str, question: int | str) -> QuestionRun | None:
        return self.found.get((drafter, str(question)))

    def shared_by(self, drafters: Sequence[str]) -> dict[str, list[QuestionRun]]:
        questions = dict.fromkeys(question for _, question in self.found)
        shared = [q for q in questions if all((name, q) in self.found for name in drafters)]
        return {name: [self.found[name, question] for question in shared] for name in drafters}

    def _read(self) -> None:
        raw = read_plain(self.path, MAX_RUNS_BYTES, error=InputError)
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if len(whole) < len(raw):
            os.truncate(self.path, len(whole))
        for number, line in enumerate(lines[1:], 2):
            run = _parse_line(self.path, number, line, _parse_run)
            self.found[run.key] = run


# Names of plan settings in messages; values of digests are not shown.
SETTINGS = {
    "count": "the number of questions",
    "questions": "the questions' file",
    "questions_sha256": "the text of the questions",
}
DIGEST = re.compile(r"[0-9a-f]{64}")


def plan_difference(there: Any, here: Mapping[str, Any]) -> str:
    """Return the first differing setting of two plans, and the number of others.

    >>> plan_difference({"budget": 8, "count": 1}, {"budget": 8, "count": 2})
    'the number of questions was 1, is 2'
    """
    there = there if isinstance(there, dict) else {}
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    if "count" in names and "questions_sha256" in names:  # a consequence of the count
        names.remove("questions_sha256")
    first, more = names[0], len(names) - 1
    name = SETTINGS.get(first, first.replace("_", " "))
    was, now = (str(json.dumps(plan.get(first))) for plan in (there, here))
    values = "" if DIGEST.search(now) else f" was {visible(was, 60)}, is {visible(now, 60)}"
    return f"{name}{values or ' differs'}" + (f", and {more} more" if more else "")


def _plan_in(path: Path, line: bytes) -> dict[str, Any]:
    return _parse_line(path, 1, line, lambda body: {**body["plan"]})


def _parse_run(body: dict[str, Any]) -> QuestionRun:
    return QuestionRun(**{**body, "turns": [TurnRun(**turn) for turn in body["turns"]]})


def _parse_line(path: Path, number: int, line: bytes, make: Callable[[Any], T]) -> T:
    try:
        return make(json.loads(line))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"cannot read {path}, line {number}: {error}",
            "Start over with force=True or another out.",
            option=("out", "force"),
        ) from error
