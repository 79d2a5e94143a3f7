"""The answers of a self-corpus on disk, and how far they are: ngramkit.evaluate.self_corpus's file.

Knows neither models nor tokens. A batch of answers is appended, then the state beside it tells the
new length: what is longer than that was being written when its process died, and is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngramkit.errors import InputError, UsageError
from ngramkit.formats.files import not_linked, open_stream
from ngramkit.formats.json_text import parse_json, read_json, whole_number
from ngramkit.formats.writer import write_text
from ngramkit.results import Result

AGAIN = "start over with force=True or another out"


@dataclass
class SelfCorpus(Result):
    """What was written, earlier calls included. A question that is too long for the model's
    context is left out; an answer that another question had already is not written twice."""

    path: Path
    answers: int = 0
    tokens: int = 0
    repeated: int = 0  # in this call
    left_out: int = 0
    seconds: float = 0.0  # of this call
    new_tokens: int = 0  # likewise

    def __repr__(self) -> str:
        return f"<SelfCorpus {self.path}: {self.answers:,} answers, {self.tokens:,} tokens>"


@dataclass(frozen=True)
class Answer:
    """A line of the file."""

    text: str
    prompt: str  # what the user said last
    question: int | str
    turn: int
    tokens: int
    ended_by: str  # eos or length


class AnswerFile:
    """Raises UsageError where another plan's answers are at `path` and `force` is off, or anything
    that no self-corpus wrote; InputError where it is damaged."""

    def __init__(self, path: Path, plan: dict[str, Any], *, force: bool) -> None:
        self.found = SelfCorpus(path)
        self.done = 0  # questions
        self._path, self._plan_path = path, beside(path, ".plan")
        self._plan: dict[str, Any] = json.loads(json.dumps(plan))  # as it reads back
        self._known: set[str] = set()
        begun = self._begun()
        if begun is not None and not force:
            self._recall(begun)
            return
        self._save(0)
        with open(path, "wb", opener=not_linked):
            pass

    def add(self, answers: Iterable[Answer], *, questions: int, left_out: int) -> None:
        """What came of so many questions; on disk when this returns."""
        lines = []
        for answer in answers:
            self.found.new_tokens += answer.tokens
            if answer.text.strip() and self._is_new(answer.text):
                lines.append(json.dumps(asdict(answer)) + "\n")
                self._count(answer.tokens)
            else:
                self.found.repeated += 1
        with open(self._path, "ab", opener=not_linked) as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self.done += questions
        self.found.left_out += left_out
        self._save(size)

    def _save(self, size: int) -> None:
        state = {"done": self.done, "bytes": size, "left_out": self.found.left_out}
        write_text(self._plan_path, json.dumps({"plan": self._plan, **state}, indent=1) + "\n")

    def _begun(self) -> Any:
        """What stands beside the answers, None where there are none."""
        if self._plan_path.exists():
            return read_json(self._plan_path, error=InputError, hint=AGAIN) or {}
        if self._path.exists():
            raise UsageError(
                f"{self._path} is there, and no self-corpus wrote it",
                "choose another out",
                option="out",
            )
        return None

    def _recall(self, state: Any) -> None:
        state = state if isinstance(state, dict) else {}
        if state.get("plan") != self._plan:
            raise UsageError(
                f"{self._path} holds answers of another model, to other questions or with other "
                "options",
                "choose another out, or replace it with force=True",
                option=("out", "force"),
            )
        there = self._path.stat().st_size if self._path.exists() else 0
        done, size, left_out = (state.get(name) for name in ("done", "bytes", "left_out"))
        if not all(map(whole_number, (done, size, left_out))) or there < size:
            raise self._damaged(f"{self._path} is shorter than it was")
        if there > size:
            os.truncate(self._path, size)
        self.done, self.found.left_out = done, left_out
        for where, body in self._lines():
            text, tokens = body.get("text"), body.get("tokens")
            if not isinstance(text, str) or not isinstance(tokens, int):
                raise self._damaged(f"{where}: no answer")
            self._is_new(text)
            self._count(tokens)

    def _damaged(self, what: str) -> InputError:
        return InputError(what, AGAIN, option=("out", "force"))

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with open_stream(self._path, error=InputError) as file:
            for number, raw in enumerate(file, 1):
                text = raw.decode("utf-8", errors="replace")
                where = f"{self._path}, line {number}"
                body = parse_json(text, where, error=InputError, hint=AGAIN)
                yield where, body if isinstance(body, dict) else {}

    def _is_new(self, text: str) -> bool:
        key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        new = key not in self._known
        self._known.add(key)
        return new

    def _count(self, tokens: int) -> None:
        self.found.answers += 1
        self.found.tokens += tokens


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
