"""The README's first table and picture: drafters on SmolLM2-135M-Instruct (`make real`).

    python -m benchmarks._real --data DIR [--work DIR] [--limit N]    measures, goes on where it was
    python -m benchmarks._real --data DIR --publish                   writes docs/real.json and .svg

DIR of --data holds MT-Bench's questions and a corpus of chat answers, by the names below. Whatever
is measured lies in --work: the artifacts, and a line per answer. Questions are asked category by
category in turns, so that the first few are like all; of a run that is not over, --publish takes
the questions that everybody has answered. Speed-ups come with the machine's load.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._picture import lines_picture
from benchmarks._real_figures import DOCS, read_figures

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.evaluate.bench import Bench
    from ngramkit.evaluate.records import Question

MODEL = "smollm2-135m"
QUESTIONS, CORPUS, COLUMN = "mt_bench_questions.jsonl", "chat-corpus/*.parquet", "output"
TITLE = "Tokens per pass on MT-Bench, SmolLM2-135M-Instruct"
NEW_TOKENS = 160
BUDGETS = (4, 8, 16, 32, 64)
LOOK_UPS = ("blend", "rest", "cacheback", "ngrammys")
DRAFTERS = ("generate", "generate-lookup", *(f"{name}:budget=auto" for name in LOOK_UPS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._real", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/real"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions")
    parser.add_argument("--publish", action="store_true", help="write what is measured into docs/")
    parser.add_argument("--load", type=float, default=float("inf"), metavar="X",
                        help="publish no question that was answered at a higher load")  # fmt: skip
    options = parser.parse_args()
    if options.publish:
        publish(options.data, options.work, options.load)
    else:
        measure(options.data, options.work, options.limit)


def measure(data: Path, work: Path, limit: int | None) -> None:
    """Builds what is missing, then asks every question that was not answered yet."""
    import ngramkit
    from ngramkit.decode.load import BUDGETS as BY_DEVICE, load_model
    from ngramkit.decode.options import DecodeOptions
    from ngramkit.decode.profiles import profile_file
    from ngramkit_cli.bars import LineReporter

    reporter = LineReporter(lambda line: print(line, flush=True))
    model = load_model(MODEL)
    built = artifacts(data, work, model, reporter)
    if profile_file(model.model) is None:
        ngramkit.calibrate(model, seconds=90.0, reporter=reporter)
    ngramkit.bench(
        in_turns(data / QUESTIONS)[:limit],
        model,
        drafters=DRAFTERS,
        artifacts=built,
        max_new_tokens=NEW_TOKENS,
        passes=DecodeOptions(budget=BY_DEVICE[model.model.device.type]),
        out=work / f"bench-{limit or 'all'}",
        reporter=reporter,
    )


def artifacts(data: Path, work: Path, model: LanguageModel, reporter: Any) -> list[Path]:
    """Of the corpus a datastore and a frozen table, of the model its bigram table."""
    import ngramkit

    found = {
        kind: work / "artifacts" / f"chat-{MODEL}-{kind}"
        for kind in ("tokens", "datastore", "frozen")
    }
    bigram = work / "artifacts" / f"{MODEL}-model-bigram"
    if not found["tokens"].is_dir():
        ngramkit.tokenize(
            str(data / CORPUS), MODEL, found["tokens"], column=COLUMN, reporter=reporter
        )
    if not found["datastore"].is_dir():
        ngramkit.build_datastore(found["tokens"], found["datastore"], reporter=reporter)
    if not found["frozen"].is_dir():
        ngramkit.build_frozen(found["tokens"], found["frozen"], reporter=reporter)
    if not bigram.is_dir():
        ngramkit.model_bigram(model, bigram, reporter=reporter)
    return [found["datastore"], found["frozen"], bigram]


def in_turns(path: Path, turns: int = 1) -> list[Question]:
    """One of every category, then the next of each; of each its first turns."""
    from dataclasses import replace

    from ngramkit.evaluate.records import read_questions

    asked = [replace(question, turns=question.turns[:turns]) for question in read_questions(path)]
    kinds = dict.fromkeys(question.category for question in asked)
    columns = [[q for q in asked if q.category == kind] for kind in kinds]
    rows = itertools.zip_longest(*columns)
    return [question for row in rows for question in row if question is not None]


def publish(data: Path, work: Path, load: float) -> None:
    """docs/real.json and docs/real.svg, of the questions that everybody has answered."""
    figures = json.dumps(read_runs(data, work, load), indent=1) + "\n"
    (DOCS / "real.json").write_text(figures, encoding="utf-8")
    drawn = lines_picture(TITLE, read_figures()["steps"])
    (DOCS / "real.svg").write_text(drawn, encoding="utf-8")


def read_runs(data: Path, work: Path, load: float) -> dict[str, Any]:
    from ngramkit.decode.load import load_model
    from ngramkit.evaluate.results import machine, summarize
    from ngramkit.evaluate.runs import NAME, Runs

    folder = max(work.glob(f"bench-*/{NAME}"), key=lambda found: found.stat().st_size).parent
    with (folder / NAME).open(encoding="utf-8") as file:
        plan = json.loads(file.readline())["plan"]
    runs = Runs(folder, plan)
    model = load_model(MODEL)
    count: Callable[[str], int] = lambda text: len(model.tokenizer.encode_prompt(text))  # noqa: E731
    noisy = {key[1] for key, run in runs.found.items() if run.load > load}
    runs.found = {key: run for key, run in runs.found.items() if key[1] not in noisy}
    names = ["none", *plan["drafters"]]
    if not any(all((n, q) in runs.found for n in names) for _, q in runs.found):
        raise SystemExit(f"no question of {folder} has been answered by everybody yet")
    results = summarize(runs, plan["drafters"], count)
    done = {key[1] for key in runs.found if all((r.drafter, key[1]) in runs.found for r in results)}
    counted = [run for run in runs.found.values() if run.key[1] in done]
    loads = sorted(run.load for run in counted)
    facts = {key: str(plan[key]) for key in ("device", "dtype", "engine", "max_new_tokens")}
    return {
        "questions": len(done),
        "of": plan["count"],
        "tokens": results[0].tokens,
        "machine": machine(facts),
        "load": {"least": loads[0], "median": statistics.median(loads), "most": loads[-1]},
        "results": [_kept(result) for result in results],
        "steps": replayed(model, data, work, runs, done),
    }


def _kept(result: Any) -> dict[str, Any]:
    names = ("drafter", "speedup", "speedup_low", "speedup_high", "tokens_per_step", "passes",
             "tokens", "tokens_per_second", "spec_bench", "draft_seconds", "seconds")  # fmt: skip
    found = {name: getattr(result, name) for name in names}
    return {**found, "differing": len(result.differing)}


def replayed(
    model: LanguageModel, data: Path, work: Path, runs: Any, done: set[str]
) -> dict[str, dict[str, float]]:
    """tokens/step by budget on the answers that were written without drafts."""
    from ngramkit.evaluate.contestants import BASELINE
    from ngramkit.evaluate.simulation import replay_drafter

    asked = [question for question in in_turns(data / QUESTIONS) if str(question.id) in done]
    records = bench_of(model, asked).records(runs, BASELINE)
    steps: dict[str, dict[str, float]] = {}
    for name, make in makers(model, work).items():
        for budget in BUDGETS:
            found = replay_drafter(name, make, records, budget)
            steps.setdefault(name, {})[str(budget)] = round(found.total.tokens_per_step, 4)
            print(f"{name}, {budget} nodes: {found.total.tokens_per_step:.3f}", flush=True)
    return steps


def bench_of(model: LanguageModel, asked: Sequence[Question]) -> Bench:
    from ngramkit.corpus.chat import find_template
    from ngramkit.decode.options import DecodeOptions
    from ngramkit.decode.session import Session
    from ngramkit.evaluate.bench import Bench

    options = DecodeOptions(budget=model.default_budget, max_new_tokens=NEW_TOKENS)
    task = Session.settle(model, options)
    return Bench(task, [], asked, find_template("auto", model.tokenizer))


def makers(model: LanguageModel, work: Path) -> dict[str, Callable[[], Any]]:
    import ngramkit

    load, record = ngramkit.load_drafter, model.tokenizer.record
    store, frozen = (
        work / "artifacts" / f"chat-{MODEL}-{kind}" for kind in ("datastore", "frozen")
    )
    bigram = work / "artifacts" / f"{MODEL}-model-bigram"
    return {
        "blend": lambda: load("blend", datastores=[store], bigram=bigram),
        "blend, frozen table": lambda: load("blend", frozen_table=frozen),
        "blend, no corpus": lambda: load("blend", tokenizer=record),
        "cacheback": lambda: load("cacheback", frozen_table=frozen),
        "rest": lambda: load("rest", datastores=[store]),
        "ngrammys": lambda: load("ngrammys", bigram=bigram),
        "prompt-lookup": lambda: load("prompt-lookup"),
    }


if __name__ == "__main__":
    main()
