"""What `benchmarks._evidence` asks its models."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._real import QUESTIONS, in_turns

if TYPE_CHECKING:
    from ngramkit.evaluate.records import Question

PROMPTS = 40  # of the embedded model
OTHERS = "spec_bench_questions.jsonl"
OF_OTHERS = ("translation", "qa", "math_reasoning", "summarization", "rag")
EACH = 20  # of each of these
FUNCTIONS = 40
LINES = (3, 40)  # of a function, docstring included


def of_demo() -> list[Question]:
    """Beginnings of functions and classes that it never saw."""
    from ngramkit.evaluate.records import embedded_questions

    return list(embedded_questions(PROMPTS))


def of_smollm2(data: Path) -> list[Question]:
    """MT-Bench, both turns, Spec-Bench's other categories and functions, in turns: wherever one
    stops, all have some."""
    from ngramkit.evaluate.records import read_questions

    others = read_questions(data / OTHERS)
    kinds = [[q for q in others if q.category == kind][:EACH] for kind in OF_OTHERS]
    bench = in_turns(data / QUESTIONS, turns=2)
    half = [bench[0::2], bench[1::2]]  # twice as often as the others: there are more
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*half, *kinds, functions()))
    return [question for question in mixed if question is not None]


def functions() -> list[Question]:
    """As HumanEval asks, of files that no datastore of the standard library holds."""
    from ngramkit.evaluate.records import Question

    asked = "Complete this Python function. Answer with its whole code.\n\n```python\n{}\n```"
    found = [Question(f"code-{name}", "code", [asked.format(head)]) for name, head in _heads()]
    step = max(len(found) // FUNCTIONS, 1)
    return found[::step][:FUNCTIONS]


def _heads() -> Iterator[tuple[str, str]]:
    """(file:line, signature and docstring) of functions."""
    from ngramkit.corpus.files import stdlib_split

    for name, path in stdlib_split("held-out"):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
                continue
            if LINES[0] <= (node.end_lineno or 0) - node.lineno <= LINES[1]:
                end = node.body[0].end_lineno
                yield f"{name}:{node.lineno}", "\n".join(lines[node.lineno - 1 : end])


def kind_of(category: str) -> str:
    """MT-Bench's eight categories are few questions each: they are one."""
    return category if category in (*OF_OTHERS, "code", "python") else "MT-Bench"
