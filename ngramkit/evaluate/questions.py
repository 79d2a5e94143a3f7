"""Question files of the usual benchmarks, told apart by their keys.

    {"question_id": 81, "category": "writing", "turns": ["...", "..."]}      MT-Bench, Spec-Bench
    {"task_id": "HumanEval/0", "prompt": "...", "canonical_solution": ...}   HumanEval
    {"question": "...", "answer": "..."}                                     GSM8K
    {"prompt": "..."}                                                        plain, id and category
                                                                             optional
    a .txt file                                                              plain, one per line

Any of them may be gzipped. Knows neither tokens nor templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ngramkit.errors import InputError
from ngramkit.evaluate.jsonl import read_lines, text_lines

EMBEDDED = 20


@dataclass(frozen=True)
class Question:
    id: int | str
    category: str
    turns: list[str]  # what the user says, one after another


class Questions(tuple[Question, ...]):
    """Some questions, and what they are called: the file's name up to its first dot."""

    name: str

    def __new__(cls, questions: Iterable[Question], name: str) -> Self:
        made = super().__new__(cls, tuple(questions))
        made.name = name
        return made

    def first(self, count: int | None) -> Questions:
        """So many of them; None: all."""
        return Questions(self[:count], self.name)


def read_questions(path: Path) -> Questions:
    """All questions in the file's order.

    Raises InputError, with file and line, where a line is none of the above, or an id comes twice.
    """
    text = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    found = list(_plain(path) if text == ".txt" else _objects(path))
    if not found:
        raise InputError(f"{path} holds no questions", "check the path")
    return Questions(found, path.name.split(".")[0])


def embedded_questions(count: int = EMBEDDED) -> Questions:
    """Those of the embedded model: beginnings of functions and classes that it never saw."""
    from ngramkit.demo import demo_prompts

    prompts = demo_prompts(count)
    return Questions((Question(w, "python", [text]) for w, text in prompts), "python-stdlib")


def _plain(path: Path) -> Iterator[Question]:
    for number, (_, text) in enumerate(text_lines(path), 1):
        yield Question(number, "all", [text])


def _objects(path: Path) -> Iterator[Question]:
    seen: set[int | str] = set()
    for number, (where, body) in enumerate(read_lines(path), 1):
        question = _question(where, number, body)
        if question.id in seen:
            raise InputError(f"{where}: a second question {question.id}", "ids must be unique")
        seen.add(question.id)
        yield question


def _question(where: str, number: int, body: dict[str, Any]) -> Question:
    category = str(body.get("category", "all"))
    name = body.get("question_id", body.get("id", number))
    if not isinstance(name, int | str):
        raise InputError(f"{where}: the id {name!r} is neither a number nor a text")
    if "turns" in body:
        return Question(name, category, _texts(where, body["turns"]))
    if "prompt" in body:
        if "task_id" in body and "canonical_solution" in body:
            category, name = "humaneval", str(body["task_id"])
        return Question(name, category, _texts(where, [body["prompt"]], "prompt"))
    if "question" in body:
        given = str(body.get("category", "gsm8k"))
        return Question(name, given, _texts(where, [body["question"]], "question"))
    raise InputError(
        f"{where}: neither `turns` nor `prompt` nor `question`",
        "MT-Bench, Spec-Bench, HumanEval, GSM8K, or lines with a prompt",
    )


def _texts(where: str, value: Any, key: str = "turns") -> list[str]:
    whole = isinstance(value, list) and value
    if not whole or not all(isinstance(text, str) and text for text in value):
        wanted = "a list of texts" if key == "turns" else "a text"
        raise InputError(f"{where}: `{key}` is not {wanted}")
    return list(value)
