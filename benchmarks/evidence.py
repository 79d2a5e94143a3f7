"""Drafters with the same evidence, side by side: the tables of docs/evidence.md.

    python -m benchmarks.evidence [--model MODEL] [--work DIR] [--seconds S] [--limit N]    record
    python -m benchmarks.evidence [--work DIR] --publish                      write the figures

MODEL is demo, on its held-out prompts, or smollm2-135m with --data DIR. That folder holds what
benchmarks._real needs and Spec-Bench's questions. The questions are MT-Bench (both turns), the
other categories of Spec-Bench, and functions from the standard library's held-out files, one of
each in rotation. The model answers with small drafts. Then it verifies the drafts that drafters
with evidence make in replays of its answers. An interrupted run resumes. --publish replays what is
on record without the models, and counts the missing contexts.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _real, markdown
from benchmarks._data import Makers, makers_over
from benchmarks._figures import provenance, read_figures, write_figures

if TYPE_CHECKING:
    from ngramkit.evaluate.recorded_evidence import RecordedEvidence
    from ngramkit.evaluate.records import Question, Record

COMMAND = "python -m benchmarks.evidence --publish"
NEW_TOKENS = 96
MODELS = ("demo", "smollm2-135m")
BUDGETS = (8, 16, 32, 64, 96)
# Drafters that want evidence, whose drafts the model verifies; a real model is slow.
RECORDED = {
    "demo": ("blend", "blend, no corpus", "automaton", "recycling"),
    "smollm2-135m": ("blend", "automaton", "recycling"),
}
WITHOUT_EVIDENCE = ("rest", "cacheback", "ngrammys", "ssd", "prompt-lookup")
ANSWERING = 8  # draft nodes
AT_ONCE = 8  # questions answered before their replays


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="demo")
    parser.add_argument("--data", type=Path, metavar="DIR", help="for smollm2-135m")
    parser.add_argument("--work", type=Path, default=Path("build/evidence"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S",
                        help="begin no question after so many")  # fmt: skip
    parser.add_argument("--publish", action="store_true", help="write what is recorded into docs/")
    options = parser.parse_args()
    if options.publish:
        publish(options.work)
        return
    if options.model == "smollm2-135m" and options.data is None:
        parser.error("--model smollm2-135m needs --data DIR")
    work = Work(options.work, options.model)
    work.build(options.data)
    questions = of_demo() if options.model == "demo" else of_smollm2(options.data)
    record(work, questions[: options.limit], options.seconds)


@dataclass(frozen=True)
class Work:
    """The folder of a model's artifacts and records."""

    folder: Path
    model: str

    @property
    def evidence(self) -> Path:
        return self.folder / f"evidence-{self.model}"

    @property
    def filled(self) -> Path:
        """A line per question of which everything is on record."""
        return self.folder / f"evidence-{self.model}.filled"

    @property
    def artifacts(self) -> list[Path]:
        """Datastore, frozen table, bigram table."""
        return _real.built_in(self.folder, self.model)

    def build(self, data: Path | None) -> None:
        """Build what is missing."""
        import ngramkit
        from ngramkit.basics.progress import SILENT
        from ngramkit.decode.load import load_model

        store, frozen, bigram = self.artifacts
        if all(path.is_dir() for path in self.artifacts):
            return
        if data is not None and self.model == _real.MODEL:
            _real.artifacts(data, self.folder, load_model(self.model), SILENT)
            return
        for build, path in ((ngramkit.build_datastore, store), (ngramkit.build_frozen, frozen)):
            if not path.is_dir():
                build("python-stdlib", path, model=self.model)
        if not bigram.is_dir():
            ngramkit.model_bigram(self.model, bigram)


def record(work: Work, questions: list[Question], seconds: float) -> None:
    """Record a few questions at a time: their answers, then all that drafters draft for them."""
    import ngramkit
    from ngramkit.basics.progress import SILENT
    from ngramkit.decode.load import load_model
    from ngramkit.evaluate.record import verifying_model
    from ngramkit.evaluate.recorded_evidence import RecordedEvidence

    begun = time.monotonic()
    model = load_model(work.model)
    recorded_makers = makers(work, RECORDED[work.model])
    done = set(work.filled.read_text(encoding="utf-8").split("\n")) if work.filled.exists() else ()
    left = iter(question for question in questions if str(question.id) not in done)
    while time.monotonic() - begun < seconds and (some := list(itertools.islice(left, AT_ONCE))):
        ngramkit.record(
            some,
            model,
            out=work.evidence,
            drafters="blend",
            artifacts=work.artifacts,
            max_new_tokens=NEW_TOKENS,
            budget=ANSWERING,
        )
        recorded = RecordedEvidence.open(work.evidence)
        recorded.model = verifying_model(recorded.folder, model, SILENT)
        names = {str(question.id) for question in some}
        for answer in recorded.answers():
            if answer.name in names:
                before = recorded.rows
                for budget in reversed(BUDGETS):
                    _replayed(recorded_makers, [answer], budget, recorded)
                recorded.save()
                with work.filled.open("a", encoding="utf-8") as file:
                    file.write(f"{answer.name}\n")
                spent = f"{time.monotonic() - begun:.0f} s"
                rows = recorded.rows - before
                print(f"{answer.name} {answer.category}: {rows:,} contexts; {spent}", flush=True)


def makers(work: Work, names: Iterable[str]) -> Makers:
    """Return drafters over the work's artifacts; a new one knows nothing of earlier questions."""
    import ngramkit

    every = makers_over(*map(ngramkit.open_artifact, work.artifacts))
    return {name: every[name] for name in names}


def _replayed(
    makers: Makers, records: list[Record], budget: int, recorded: RecordedEvidence | None
) -> dict[str, Any]:
    """Replay each drafter; ssd drafts from past requests, those of the questions before."""
    from ngramkit.evaluate.replay_loop import replay_drafter

    return {
        name: replay_drafter(
            name, make, records, budget, keep_state=name == "ssd", recorded_evidence=recorded
        )
        for name, make in makers.items()
    }


def publish(work: Path) -> None:
    """Write the figures of the questions whose contexts are all on record."""
    models = [Work(work, model) for model in MODELS]
    done = [replayed(each) for each in models if each.filled.exists()]
    write_figures("evidence", COMMAND, {"models": done})


def replayed(work: Work) -> dict[str, Any]:
    from ngramkit.evaluate.recorded_evidence import RecordedEvidence

    recorded = RecordedEvidence.open(work.evidence)
    done = set(work.filled.read_text(encoding="utf-8").split("\n"))
    records = [
        replace(each, category=kind_of(each.category))
        for each in recorded.answers()
        if each.name in done
    ]
    wanting, others = makers(work, RECORDED[work.model]), makers(work, WITHOUT_EVIDENCE)
    steps: dict[str, dict[str, Any]] = {}
    missing: dict[str, float] = {}
    for budget in BUDGETS:
        replays = {
            **_replayed(wanting, records, budget, recorded),
            "blend, without evidence": _replayed({"": wanting["blend"]}, records, budget, None)[""],
            **_replayed(others, records, budget, None),
        }
        for name, each in replays.items():
            kinds = {kind: round(t.tokens_per_step, 4) for kind, t in each.by_category.items()}
            whole = {"all": round(each.total.tokens_per_step, 4)}
            steps.setdefault(name, {})[str(budget)] = whole | kinds
            if each.misses is not None and each.misses.missing:
                share = each.misses.missing / each.misses.rows
                missing[name] = max(missing.get(name, 0.0), round(share, 5))
            print(f"{name}, {budget} nodes: {each.total.tokens_per_step:.3f}", flush=True)
    kinds = dict.fromkeys(each.category for each in records)
    return {
        "model": work.model,
        "questions": {kind: sum(each.category == kind for each in records) for kind in kinds},
        "tokens": sum(len(turn.answer) for each in records for turn in each.turns),
        "max_new_tokens": NEW_TOKENS,
        "contexts": recorded.rows,
        "missing": missing,
        "steps": steps,
    }


# The questions.


PROMPTS = 40  # of the embedded model
OTHERS = "spec_bench_questions.jsonl"
OF_OTHERS = ("translation", "qa", "math_reasoning", "summarization", "rag")
EACH = 20  # of each of these
FUNCTIONS = 40
LINES = (3, 40)  # of a function, docstring included


def of_demo() -> list[Question]:
    """Return beginnings of functions and classes that the embedded model never saw."""
    from ngramkit.evaluate.records import embedded_questions

    return list(embedded_questions(PROMPTS))


def of_smollm2(data: Path) -> list[Question]:
    """Return MT-Bench's questions, Spec-Bench's other categories and functions, in rotation.

    Any prefix holds some of each."""
    from ngramkit.evaluate.records import read_questions

    others = read_questions(data / OTHERS)
    kinds = [[q for q in others if q.category == kind][:EACH] for kind in OF_OTHERS]
    bench = _real.in_turns(data / _real.QUESTIONS, turns=2)
    half = [bench[0::2], bench[1::2]]  # twice as often as the others: there are more
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*half, *kinds, functions()))
    return [question for question in mixed if question is not None]


def functions() -> list[Question]:
    """Ask as HumanEval does, about files that no datastore of the standard library holds."""
    from ngramkit.evaluate.records import Question

    asked = "Complete this Python function. Answer with its whole code.\n\n```python\n{}\n```"
    found = [Question(f"code-{name}", "code", [asked.format(head)]) for name, head in _heads()]
    step = max(len(found) // FUNCTIONS, 1)
    return found[::step][:FUNCTIONS]


def _heads() -> Iterator[tuple[str, str]]:
    """Yield (file:line, signature and docstring) of functions."""
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


def kind_of(category: str) -> str:
    """Return the category; MT-Bench's eight are few questions each, and count as one."""
    return category if category in (*OF_OTHERS, "code", "python") else "MT-Bench"


# The published figures and the tables of docs/evidence.md.


NAMES = {"demo": "the embedded model", "smollm2-135m": "SmolLM2-135M-Instruct"}
Figures = Mapping[str, Any]


def page() -> str:
    """Return Markdown: for every model what was measured, and where blend does not lead."""
    parts = []
    record = read_figures("evidence")
    for figures in record["models"]:
        budgets, kinds = list(figures["steps"]["blend"]), list(figures["questions"])
        parts.append(facts(figures))
        parts.append(table(figures, "draft nodes", {budget: (budget, "all") for budget in budgets}))
        if len(kinds) > 1:
            parts.append(table(figures, "64 nodes", {kind: ("64", kind) for kind in kinds}))
        parts.append(behind(figures))
    return "\n\n".join([*parts, provenance(record)])


def facts(figures: Figures) -> str:
    """Return what the figures hold for."""
    count = sum(figures["questions"].values())
    asked = ", ".join(f"{each} of {kind}" for kind, each in figures["questions"].items())
    missing = ", ".join(f"{name} {share:.1%}" for name, share in figures["missing"].items())
    return (
        f"**{NAMES[figures['model']]}**, float32, greedy, {count} questions, answers of up to "
        f"{figures['max_new_tokens']} tokens ({asked}; {figures['tokens']:,} tokens), "
        f"{figures['contexts']:,} contexts on record. "
        + (f"Not on record, at most: {missing}." if missing else "All contexts are on record.")
    )


def table(figures: Figures, title: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return tokens/step, a row per drafter; `columns`: {head: (budget, category)}."""
    rows = [
        [_code(name), *(f"{steps[budget][kind]:.2f}" for budget, kind in columns.values())]
        for name, steps in figures["steps"].items()
    ]
    return markdown([title, *columns], rows)


def behind(figures: Figures) -> str:
    """Name every budget and category in which another drafter is ahead of blend."""
    leads = []
    for kind in ("all", *figures["questions"]):
        for budget in figures["steps"]["blend"]:
            ours = figures["steps"]["blend"][budget][kind]
            leads += [
                f"{_code(name)} in {kind} at {budget} ({steps[budget][kind]:.2f} to {ours:.2f})"
                for name, steps in figures["steps"].items()
                if not name.startswith("blend") and steps[budget][kind] > ours
            ]
    if not leads:
        return "`blend` leads at every budget, in every category."
    return f"`blend` is behind: {'; '.join(leads)}."


def _code(name: str) -> str:
    """Format a name, as `blend`, no corpus."""
    drafter, comma, rest = name.partition(",")
    return f"`{drafter}`{comma}{rest}"


if __name__ == "__main__":
    main()
