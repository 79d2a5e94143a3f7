"""Drafters side by side, told what a model held likely: the tables of docs/evidence.md.

    python -m benchmarks._evidence [--model MODEL] [--work DIR] [--seconds S] [--limit N]    records
    python -m benchmarks._evidence [--work DIR] --publish             writes docs/evidence.json

MODEL is demo, on its held-out prompts, or smollm2-135m, with --data DIR as benchmarks._real wants
it and Spec-Bench's questions there: MT-Bench, both turns, Spec-Bench's other categories and
functions of the standard library's held-out files, in turns. The model answers with small drafts,
then, many rows a pass, for whatever the drafters of `listeners` would have had it verify.
Stopped, or out of time, it goes on where it was; --publish replays what is there without the
models, and says what was not on record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._evidence_figures import DOCS
from benchmarks._evidence_questions import kind_of, of_demo, of_smollm2

if TYPE_CHECKING:
    from ngramkit.evaluate.oracle import Oracle
    from ngramkit.evaluate.records import Question, Record

NEW_TOKENS = 96
MODELS = ("demo", "smollm2-135m")
BUDGETS = (8, 16, 32, 64, 96)
# Drafters for which a model is asked for what is not on record: a real one takes its time.
ASKED = {"smollm2-135m": ("blend", "automaton", "recycling")}
ANSWERING = 8  # draft nodes
AT_ONCE = 8  # questions answered before the model is asked about them
Makers = dict[str, Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._evidence", description=__doc__)
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
    asked = of_demo() if options.model == "demo" else of_smollm2(options.data)
    record(work, asked[: options.limit], options.seconds)


@dataclass(frozen=True)
class Work:
    """Where a model's artifacts and records lie."""

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
        corpus = "python-stdlib-demo" if self.model == "demo" else f"chat-{self.model}"
        names = (f"{corpus}-datastore", f"{corpus}-frozen", f"{self.model}-model-bigram")
        return [self.folder / "artifacts" / name for name in names]

    def build(self, data: Path | None) -> None:
        """What is missing."""
        import ngramkit
        from benchmarks import _real
        from ngramkit.decode.load import load_model
        from ngramkit.progress import SILENT

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


def record(work: Work, asked: list[Question], seconds: float) -> None:
    """A few questions at a time: their answers, then what is asked."""
    import ngramkit
    from ngramkit.decode.load import load_model
    from ngramkit.decode.options import DecodeOptions
    from ngramkit.evaluate.oracle import Oracle
    from ngramkit.evaluate.record import ask, asked_model
    from ngramkit.progress import SILENT

    begun = time.monotonic()
    model = load_model(work.model)
    asking = list(_asked(work).values())
    done = set(work.filled.read_text(encoding="utf-8").split("\n")) if work.filled.exists() else ()
    left = iter(question for question in asked if str(question.id) not in done)
    oracle: Oracle | None = None
    while time.monotonic() - begun < seconds and (some := list(itertools.islice(left, AT_ONCE))):
        ngramkit.record(
            some,
            model,
            out=work.evidence,
            drafters="blend",
            artifacts=work.artifacts,
            max_new_tokens=NEW_TOKENS,
            passes=DecodeOptions(budget=ANSWERING),
        )
        if oracle is None:
            oracle = Oracle.open(work.evidence)
            oracle.model = asked_model(oracle.folder, model, SILENT)
        oracle.refresh()
        names = [str(question.id) for question in some]
        answers = [each for each in oracle.records() if each.name in names]
        for answer, rows in zip(answers, ask(oracle, answers, asking, BUDGETS), strict=True):
            oracle.save()
            with work.filled.open("a", encoding="utf-8") as file:
                file.write(f"{answer.name}\n")
            seen = f"{time.monotonic() - begun:.0f} s, {time.process_time():.0f} s of processor"
            print(f"{answer.name} {answer.category}: {rows:,} contexts; {seen}", flush=True)


def listeners(work: Work) -> Makers:
    """Drafters that are told; a new one knows nothing of earlier questions."""
    import ngramkit

    load = ngramkit.load_drafter
    opened = [ngramkit.open_artifact(path) for path in work.artifacts]
    store, bigram, record = opened[0], opened[2], opened[0].tokenizer
    return {
        "blend": lambda: load("blend", datastores=[store], bigram=bigram),
        "blend, no corpus": lambda: load("blend", tokenizer=record),
        "automaton": lambda: load("automaton", datastores=[store]),
        "recycling": lambda: load("recycling"),
    }


def _asked(work: Work) -> Makers:
    told = listeners(work)
    return {name: told[name] for name in ASKED.get(work.model, told)}


def deaf(work: Work) -> Makers:
    """Drafters that are told nothing."""
    import ngramkit
    from ngramkit.drafters.past_requests import PastRequests

    load = ngramkit.load_drafter
    store, frozen, bigram = map(ngramkit.open_artifact, work.artifacts)
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
    from ngramkit.evaluate.simulation import replay_drafter

    return {
        name: replay_drafter(name, make, records, budget, keep_state=name == "ssd", oracle=oracle)
        for name, make in makers.items()
    }


def publish(work: Path) -> None:
    """docs/evidence.json, of the questions of which everything is on record."""
    figures = [replayed(Work(work, m)) for m in MODELS if Work(work, m).filled.exists()]
    text = json.dumps(figures, indent=1) + "\n"
    (DOCS / "evidence.json").write_text(text, encoding="utf-8")


def replayed(work: Work) -> dict[str, Any]:
    """One model's figures."""
    from ngramkit.evaluate.oracle import Oracle

    oracle = Oracle.open(work.evidence)
    done = set(work.filled.read_text(encoding="utf-8").split("\n"))
    records = [
        replace(each, category=kind_of(each.category))
        for each in oracle.records()
        if each.name in done
    ]
    told, untold = _asked(work), deaf(work)
    steps: dict[str, dict[str, Any]] = {}
    missing: dict[str, float] = {}
    for budget in BUDGETS:
        found = {
            **_replayed(told, records, budget, oracle),
            "blend, told nothing": _replayed({"": told["blend"]}, records, budget, None)[""],
            **_replayed(untold, records, budget, None),
        }
        for name, each in found.items():
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
        "contexts": oracle.rows,
        "missing": missing,
        "steps": steps,
    }


if __name__ == "__main__":
    main()
