"""Drafters side by side, told what a real model held likely: the table of docs/drafting.md.

    python -m benchmarks._evidence --data DIR [--work DIR] [--seconds S] [--limit N]    records
    python -m benchmarks._evidence --data DIR [--work DIR] --publish    writes docs/evidence.json

DIR of --data holds MT-Bench's and Spec-Bench's questions and a corpus of chat answers, as
benchmarks._real wants them. SmolLM2-135M-Instruct answers them, and functions of the standard
library's held-out files, whose docstrings are the questions; then it is asked for whatever else the
drafters of DRAFTERS would have had it verify. Stopped, or out of time, it goes on where it was;
--publish replays what is there without the model, in seconds.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._evidence_figures import BUDGETS, DOCS
from benchmarks._real import MODEL, QUESTIONS, artifacts, in_turns

if TYPE_CHECKING:
    from ngramkit.evaluate.oracle import Oracle
    from ngramkit.evaluate.questions import Question
    from ngramkit.evaluate.records import Record

OTHERS = "spec_bench_questions.jsonl"
OF_OTHERS = ("translation", "qa", "math_reasoning", "summarization", "rag")
EACH = 20  # of each of these
FUNCTIONS = 40
NEW_TOKENS = 96
FILLED = "filled.txt"  # questions of which everything is on record
LISTENING = ("blend", "recycling", "automaton")
Makers = dict[str, Callable[[], Any]]
LINES = (3, 40)  # of a function, docstring included


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._evidence", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/evidence"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S",
                        help="begin no question after so many")  # fmt: skip
    parser.add_argument("--publish", action="store_true", help="write what is recorded into docs/")
    options = parser.parse_args()
    if options.publish:
        publish(options.data, options.work)
    else:
        record(options.data, options.work, options.limit, options.seconds)


def questions(data: Path) -> list[Question]:
    """MT-Bench's first turns; then Spec-Bench's other categories and functions, in turns."""
    from ngramkit.evaluate.questions import read_questions

    others = read_questions(data / OTHERS)
    kinds = [[q for q in others if q.category == kind][:EACH] for kind in OF_OTHERS]
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*kinds, functions()))
    return [*in_turns(data / QUESTIONS), *(q for q in mixed if q is not None)]


def functions() -> list[Question]:
    """As HumanEval asks, of files that no datastore of the standard library holds."""
    from ngramkit.evaluate.questions import Question

    asked = "Complete this Python function. Answer with its whole code.\n\n```python\n{}\n```"
    found = [Question(f"code-{name}", "code", [asked.format(head)]) for name, head in _heads()]
    step = max(len(found) // FUNCTIONS, 1)
    return found[::step][:FUNCTIONS]


def _heads() -> Iterator[tuple[str, str]]:
    """(file:line, signature and docstring) of functions."""
    from ngramkit.corpus.stdlib import stdlib_split

    for name, path in stdlib_split("held-out"):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
                continue
            if LINES[0] <= (node.end_lineno or 0) - node.lineno <= LINES[1]:
                end = node.body[0].end_lineno
                yield f"{name}:{node.lineno}", "\n".join(lines[node.lineno - 1 : end])


def record(data: Path, work: Path, limit: int | None, seconds: float) -> None:
    """A question at a time: its answer with blend's widest drafts, then all else that is asked."""
    import ngramkit
    from ngramkit.decode.load import load_model
    from ngramkit.decode.pass_options import PassOptions
    from ngramkit.evaluate.oracle import Oracle
    from ngramkit.evaluate.oracle_model import asked_model
    from ngramkit.progress import SILENT

    begun = time.monotonic()
    model = load_model(MODEL)
    built, folder = artifacts(data, work, model, SILENT), work / "evidence"
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "out": folder, "artifacts": built}
    passes = PassOptions(budget=max(BUDGETS))
    filled = work / FILLED
    done = set(filled.read_text(encoding="utf-8").split("\n")) if filled.exists() else set()
    for number, question in enumerate(questions(data)[:limit], 1):
        if time.monotonic() - begun > seconds:
            break
        if str(question.id) in done:
            continue
        found = ngramkit.record([question], model, drafters="blend", passes=passes, **options)
        oracle = Oracle.open(folder)
        oracle.model = asked_model(oracle.folder, model, SILENT)
        (answer,) = (each for each in oracle.records() if each.name == str(question.id))
        before = oracle.rows
        told = {name: make for name, make in listeners(built).items() if name in LISTENING}
        for budget in BUDGETS:
            _replayed(told, [answer], budget, oracle)
        oracle.save()
        with (work / FILLED).open("a", encoding="utf-8") as file:
            file.write(f"{question.id}\n")
        print(
            f"{number} {question.category}: {found.tokens} tokens, {found.rows:,} contexts, then "
            f"{oracle.rows - before:,} more; {time.monotonic() - begun:.0f} s",
            flush=True,
        )


def listeners(built: list[Path]) -> Makers:
    """Drafters that are told; a new one knows nothing of earlier questions."""
    import ngramkit

    load = ngramkit.load_drafter
    store, _, bigram = map(ngramkit.open_artifact, built)
    record = store.tokenizer
    return {
        "blend": lambda: load("blend", datastores=[store], bigram=bigram),
        "blend, no corpus": lambda: load("blend", tokenizer=record),
        "recycling": lambda: load("recycling"),
        "automaton": lambda: load("automaton", datastores=[store]),
    }


def deaf(built: list[Path]) -> Makers:
    """Drafters that are told nothing, and blend if it were not."""
    import ngramkit
    from ngramkit.drafters.past_requests import PastRequests

    load = ngramkit.load_drafter
    store, frozen, bigram = map(ngramkit.open_artifact, built)
    past = lambda: PastRequests(tokenizer=store.tokenizer, background=False)  # noqa: E731
    return {
        "rest": lambda: load("rest", datastores=[store]),
        "cacheback": lambda: load("cacheback", frozen_table=frozen),
        "ngrammys": lambda: load("ngrammys", bigram=bigram),
        "ssd": lambda: load("ssd", past=past()),
        "prompt-lookup": lambda: load("prompt-lookup"),
    }


def _replayed(
    makers: Makers, records: list[Record], budget: int, oracle: Oracle | None
) -> dict[str, Any]:
    """ssd drafts from past requests: of the questions before."""
    from ngramkit.evaluate.replay import replay

    return {
        name: replay(name, make, records, budget, keep_state=name == "ssd", oracle=oracle)
        for name, make in makers.items()
    }


def publish(data: Path, work: Path) -> None:
    """docs/evidence.json, of the questions that were recorded whole."""
    from ngramkit.decode.load import load_model
    from ngramkit.evaluate.oracle import Oracle
    from ngramkit.progress import SILENT

    built = artifacts(data, work, load_model(MODEL), SILENT)
    oracle = Oracle.open(work / "evidence")
    records = [replace(each, category=_kind(each.category)) for each in oracle.records()]
    told, untold = listeners(built), deaf(built)
    steps: dict[str, dict[str, Any]] = {}
    missing: dict[str, float] = {}
    for budget in BUDGETS:
        found = {
            **_replayed(told, records, budget, oracle),
            "blend, not told": _replayed({"": told["blend"]}, records, budget, None)[""],
            **_replayed(untold, records, budget, None),
        }
        for name, each in found.items():
            by_category = {c: round(t.tokens_per_step, 4) for c, t in each.by_category.items()}
            steps.setdefault(name, {})[str(budget)] = {
                "all": round(each.total.tokens_per_step, 4), **by_category
            }  # fmt: skip
            if each.misses is not None and each.misses.missing:
                share = each.misses.missing / each.misses.rows
                missing[name] = max(missing.get(name, 0.0), round(share, 5))
            print(f"{name}, {budget} nodes: {each.total.tokens_per_step:.3f}", flush=True)
    counts = {kind: sum(r.category == kind for r in records) for kind in
              dict.fromkeys(r.category for r in records)}  # fmt: skip
    figures = {
        "model": MODEL,
        "questions": counts,
        "tokens": sum(len(t.answer) for r in records for t in r.turns),
        "max_new_tokens": NEW_TOKENS,
        "contexts": oracle.rows,
        "missing": missing,
        "steps": steps,
    }
    (DOCS / "evidence.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _kind(category: str) -> str:
    """MT-Bench's eight categories are few questions each: they are one."""
    return category if category in (*OF_OTHERS, "code") else "MT-Bench"


if __name__ == "__main__":
    main()
