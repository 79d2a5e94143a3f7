"""Drafters on a real model, SmolLM2-135M-Instruct (`make real`, docs/benchmarks.md).

    python -m benchmarks._real --data DIR [--threads N] [--limit N]   measure, or resume
    python -m benchmarks._real --data DIR --publish                   write the figures

DIR of --data holds MT-Bench's questions and a corpus of chat answers, by the names below. --work
keeps the artifacts and a line per answer. Questions rotate through the categories, so the first
few represent all. --publish uses the questions that every drafter has answered, and for each
number of threads the run with most answers. Nothing is calibrated: budgets are learnt while
drafting, as for a user. With one thread, seconds are processor time of that thread, so other
programs hardly matter; with several threads the machine must be idle. Speed-ups are published with
the load of the machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import markdown
from benchmarks._data import makers_over, steps_by_nodes
from benchmarks._figures import draw_steps, provenance, read_figures, write_figures
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER, RUNS_FILE, Runs
from ngramkit.evaluate.statistics import ratio_with_interval

if TYPE_CHECKING:
    from ngramkit.decode.load import LanguageModel
    from ngramkit.evaluate.bench_contest import Bench
    from ngramkit.evaluate.records import Question

MODEL = "smollm2-135m"
QUESTIONS, CORPUS, COLUMN = "mt_bench_questions.jsonl", "chat-corpus/*.parquet", "output"
TITLE = "Tokens/step on MT-Bench, SmolLM2-135M-Instruct"
NEW_TOKENS = 96
BUDGETS = (4, 8, 16, 32, 64)
LOOK_UPS = ("blend", "rest", "cacheback", "ngrammys")
REPLAYED = ("blend", "blend, frozen table", "blend, no corpus", "cacheback", "rest", "ngrammys",
            "prompt-lookup")  # fmt: skip
GENERATE = "generate"
DRAFTERS = (GENERATE, "generate-lookup", *(f"{name}:budget=auto" for name in LOOK_UPS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._real", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/real"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions")
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, metavar="N",
                        help="at most, of an answer (default: %(default)s)")  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="of torch (default: its own)")
    parser.add_argument("--publish", action="store_true", help="write what is measured into docs/")
    parser.add_argument("--load", type=float, default=float("inf"), metavar="X",
                        help="publish no question that was answered at a higher load")  # fmt: skip
    options = parser.parse_args()
    if options.publish:
        publish(options.data, options.work, options.load)
    else:
        measure(options.data, options.work, options.limit, options.tokens, options.threads)


def measure(
    data: Path, work: Path, limit: int | None, new_tokens: int, threads: int | None
) -> None:
    """Build what is missing, then ask every question that was not answered yet."""
    import torch

    import ngramkit
    from ngramkit.decode.load import load_model
    from ngramkit_cli.progress_reporters import LineReporter

    if threads is not None:
        torch.set_num_threads(threads)
    if torch.get_num_threads() == 1:
        count_processor_time()
    reporter = LineReporter(lambda line: print(line, flush=True))
    model = load_model(MODEL)
    built = artifacts(data, work, model, reporter)
    ngramkit.bench(
        in_turns(data / QUESTIONS)[:limit],
        model,
        drafters=DRAFTERS,
        artifacts=built,
        max_new_tokens=new_tokens,
        out=work / f"bench-{limit or 'all'}-{new_tokens}-tokens-{torch.get_num_threads()}-threads",
        reporter=reporter,
    )


def count_processor_time() -> None:
    """Let answers be timed by the processor time of this thread: torch has no other."""
    from ngramkit.decode import compare, loop
    from ngramkit.decode.result import Clock

    for module in (compare, loop):
        module.Clock = lambda: Clock(time.thread_time)  # type: ignore[attr-defined]


def built_in(work: Path, model: str = MODEL) -> list[Path]:
    """Return the corpus's datastore and frozen table, and the model's bigram table."""
    corpus = "python-stdlib-demo" if model == "demo" else f"chat-{model}"
    names = (f"{corpus}-datastore", f"{corpus}-frozen", f"{model}-model-bigram")
    return [work / "artifacts" / name for name in names]


def artifacts(data: Path, work: Path, model: LanguageModel, reporter: Any) -> list[Path]:
    """Return the folders of `built_in`; build what is missing."""
    import ngramkit

    store, frozen, bigram = built_in(work)
    tokens = work / "artifacts" / f"chat-{MODEL}-tokens"
    if not tokens.is_dir():
        ngramkit.tokenize(str(data / CORPUS), MODEL, tokens, column=COLUMN, reporter=reporter)
    if not store.is_dir():
        ngramkit.build_datastore(tokens, store, reporter=reporter)
    if not frozen.is_dir():
        ngramkit.build_frozen(tokens, frozen, reporter=reporter)
    if not bigram.is_dir():
        ngramkit.model_bigram(model, bigram, reporter=reporter)
    return [store, frozen, bigram]


def in_turns(path: Path, turns: int = 1) -> list[Question]:
    """Return one question of every category, then the next of each, with their first turns."""
    from dataclasses import replace

    from ngramkit.evaluate.records import read_questions

    asked = [replace(question, turns=question.turns[:turns]) for question in read_questions(path)]
    kinds = dict.fromkeys(question.category for question in asked)
    columns = [[q for q in asked if q.category == kind] for kind in kinds]
    rows = itertools.zip_longest(*columns)
    return [question for row in rows for question in row if question is not None]


def publish(data: Path, work: Path, load: float) -> None:
    """Write the figures and docs/real.svg, of the questions that every drafter has answered."""
    read = [read_run(folder, load) for folder in _folders(work)]
    _, answers, done = read[0]
    steps = replayed(data, work, answers, done)
    write_figures("real", "make real", {"runs": [run for run, _, _ in read], "steps": steps})
    draw_steps("real", TITLE, steps)


def _folders(work: Path) -> list[Path]:
    """Return for every number of threads the run with most answers, most threads first."""
    found: dict[int, Path] = {}
    for file in sorted(
        work.glob(f"bench-*-threads/{RUNS_FILE}"), key=lambda file: file.stat().st_size
    ):
        found[int(file.parent.name.split("-")[-2])] = file.parent
    if not found:
        raise SystemExit(f"nothing has been measured in {work} yet")
    return [found[threads] for threads in sorted(found, reverse=True)]


def read_run(folder: Path, load: float) -> tuple[dict[str, Any], Runs, set[str]]:
    """Return what is published of a run, its answers, and the questions that all have answered."""
    from ngramkit.evaluate.bench_figures import summarize
    from ngramkit.evaluate.provenance import describe_machine

    with (folder / RUNS_FILE).open(encoding="utf-8") as file:
        plan = json.loads(file.readline())["plan"]
    runs = Runs(folder, plan)
    tokenizer = load_tokenizer(MODEL)
    count: Callable[[str], int] = lambda text: len(tokenizer.encode_prompt(text))  # noqa: E731
    noisy = {key[1] for key, run in runs.found.items() if run.load > load}
    runs.found = {key: run for key, run in runs.found.items() if key[1] not in noisy}
    names = [BASELINE_DRAFTER, *plan["drafters"]]
    done = {
        question for _, question in runs.found if all((n, question) in runs.found for n in names)
    }
    if not done:
        raise SystemExit(f"no question of {folder} has been answered by everybody yet")
    results = summarize(runs, plan["drafters"], count)
    loads = sorted(run.load for run in runs.found.values() if run.key[1] in done)
    facts = {key: str(plan[key]) for key in ("device", "dtype", "engine", "max_new_tokens")}
    published = {
        "questions": len(done),
        "of": plan["count"],
        "tokens": results[0].tokens,
        "machine": describe_machine(facts),
        "processor_time": " 1 threads" in plan["device"],
        "load": {"least": loads[0], "median": statistics.median(loads), "most": loads[-1]},
        "results": [
            {**_kept(result), "of_generate": _of_generate(runs, result.drafter, done)}
            for result in results
        ],
    }
    return published, runs, done


def _kept(result: Any) -> dict[str, Any]:
    names = ("drafter", "speedup", "speedup_low", "speedup_high", "tokens_per_step", "passes",
             "tokens", "tokens_per_second", "spec_bench", "draft_seconds", "seconds")  # fmt: skip
    found = {name: getattr(result, name) for name in names}
    return {**found, "differing": len(result.differing)}


def _of_generate(runs: Runs, drafter: str, done: set[str]) -> list[float | None]:
    """Return tokens/s over those of transformers' `generate`, and the 95 % interval."""
    columns = []
    for name in (drafter, GENERATE):
        found = [runs.found[name, question] for question in sorted(done)]
        columns.append((name, [r.new_tokens for r in found], [r.seconds for r in found]))
    result = ratio_with_interval(columns[0], columns[1])
    return [result.value, result.low, result.high]


def replayed(data: Path, work: Path, runs: Runs, done: set[str]) -> dict[str, dict[str, float]]:
    """Return tokens/step by budget on the answers that were written without drafts."""
    import ngramkit
    from ngramkit.decode.load import load_model

    model = load_model(MODEL)
    asked = [question for question in in_turns(data / QUESTIONS) if str(question.id) in done]
    records = bench_of(model, asked).records(runs, BASELINE_DRAFTER)
    every = makers_over(*map(ngramkit.open_artifact, built_in(work)))
    return steps_by_nodes({name: every[name] for name in REPLAYED}, records, BUDGETS)


def bench_of(model: LanguageModel, asked: Sequence[Question]) -> Bench:
    from benchmarks._decoding import default_budget
    from ngramkit.corpus.chat import find_template
    from ngramkit.decode.decoder import Decoder
    from ngramkit.decode.options import DecodeOptions
    from ngramkit.evaluate.bench_contest import Bench

    options = DecodeOptions(budget=default_budget(model), max_new_tokens=NEW_TOKENS)
    decoder = Decoder.settle(model, options)
    return Bench(decoder, [], asked, find_template("auto", model.tokenizer))


# The published figures as Markdown.

# As the table calls them, in its order.
NAMES = {
    "generate": "transformers' `generate`",
    "generate-lookup": "transformers' prompt lookup",
    "none": "no drafts",
    "ngrammys:budget=auto": "`ngrammys`",
    "rest:budget=auto": "`rest`",
    "cacheback:budget=auto": "`cacheback`",
    "blend:budget=auto": "`blend`",
}


def table() -> str:
    """Return README's table: tokens/step and the speed-up over no drafts on the same weights."""
    run = read_figures("real")["runs"][0]
    drafted = [r for r in run["results"] if r["drafter"] not in ("none", GENERATE)]
    drafted.sort(key=lambda r: -r["tokens_per_step"])
    rows = [
        [NAMES[r["drafter"]], f"{r['tokens_per_step']:.2f}", f"{_over_undrafted(r)[0]:.2f}"]
        for r in drafted
    ]
    return markdown(["drafter", "tokens/step", "times as fast as without drafts"], rows)


def packed_gain() -> str:
    """Return what packed weights bring without drafts, with two threads."""
    run = read_figures("real")["runs"][0]
    (undrafted,) = [r for r in run["results"] if r["drafter"] == "none"]
    return (
        "Packed weights are counted separately: without drafts they decode "
        f"{undrafted['of_generate'][0]:.2f} times as fast as transformers' `generate`."
    )


def facts() -> str:
    """Return a table per number of threads, and what the figures hold for."""
    record = read_figures("real")
    return "\n\n".join([*map(_facts, record["runs"]), provenance(record)])


def _over_undrafted(result: Mapping[str, Any]) -> list[float]:
    """Return the speed-up over no drafts on the same weights, and its 95 % interval.

    Both `generate` run with plain weights, so prompt lookup is compared with `generate`.
    """
    if result["drafter"] == "generate-lookup":
        return list(result["of_generate"])
    return [result["speedup"], result["speedup_low"], result["speedup_high"]]


def _facts(run: Mapping[str, Any]) -> str:
    machine, load, results = run["machine"], run["load"], run["results"]
    by_name = {r["drafter"]: r for r in results}
    rows = []
    for name, shown in NAMES.items():
        r = by_name[name]
        drafted = name not in ("none", GENERATE)
        over = "{:.2f} ({:.2f} to {:.2f})".format(*_over_undrafted(r)) if drafted else ""
        counted = r["spec_bench"]["speedup"]
        if name == "generate-lookup":
            counted /= by_name[GENERATE]["spec_bench"]["speedup"]
        rows.append([
            shown,
            f"{r['tokens_per_step']:.2f}",
            f"{r['tokens_per_second']:.1f}",
            over,
            f"{counted:.2f}" if drafted else "",
            "{:.2f} ({:.2f} to {:.2f})".format(*r["of_generate"]) if name != GENERATE else "",
        ])  # fmt: skip
    head = ["decoding", "tokens/step", "tokens/s", "over no drafts, same weights (95 %)",
            "the same, as Spec-Bench counts", "over `generate` (95 %)"]  # fmt: skip
    wrong = sum(r["differing"] for r in results)
    same = "Every answer is the same." if not wrong else f"{wrong} answers differ."
    clock = " Times are processor time." if run["processor_time"] else ""
    return (
        f"{_threads(run).capitalize()}, {machine['dtype']}: {run['questions']} of MT-Bench's "
        f"{run['of']} questions, first turns, at most {machine['max_new_tokens']} tokens each, "
        f"{run['tokens']:,} tokens after the first ones. {same}{clock} Load of the machine: "
        f"{load['least']:.1f} to {load['most']:.1f}, median {load['median']:.1f}.\n\n"
        f"{markdown(head, rows)}"
    )


def _threads(run: Mapping[str, Any]) -> str:
    """Return the number in "cpu, 2 threads, packed weights" as words."""
    count = int(run["machine"]["device"].split(", ")[1].split()[0])
    return {1: "one thread", 2: "two threads"}.get(count, f"{count} threads")


if __name__ == "__main__":
    main()
