"""A finished benchmark to its files: answers, results.json and report.html.

tokens/step against budget needs no more runs of the model: what it wrote without drafts is on
record now, and is replayed with every drafter at several budgets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngramkit.decode.device import device_facts
from ngramkit.evaluate.bench import Bench
from ngramkit.evaluate.contestants import BASELINE
from ngramkit.evaluate.replay import Replay, replay
from ngramkit.evaluate.report import write_report
from ngramkit.evaluate.results import Result, machine, summarize, write_answers, write_results
from ngramkit.evaluate.runs import Runs
from ngramkit.progress import SILENT, Reporter

BUDGETS = (2, 4, 8, 16, 32, 64)  # draft nodes per pass


def plan_of(
    bench: Bench, questions: str, template: str, artifacts: Sequence[str]
) -> dict[str, Any]:
    """Everything that decides what is measured, the machine's speed apart. `questions` and
    `template` are names; `artifacts` tell which artifacts were drafted from."""
    asked = json.dumps([asdict(question) for question in bench.questions])
    task = bench.task
    return {
        "model": bench.model.name,
        "questions": questions,
        "count": len(bench.questions),
        "questions_sha256": hashlib.sha256(asked.encode()).hexdigest(),
        "template": template,
        "drafters": [contestant.name for contestant in bench.contestants[1:]],
        "artifacts": list(artifacts),
        "budget": task.runner.shown_budget,
        "max_new_tokens": task.max_new_tokens,
        "stop": list(task.stop),
        "sampling": asdict(task.sampling),
        "engine": task.runner.engine,
        **device_facts(bench.model.model),
    }


def publish(
    bench: Bench,
    runs: Runs,
    plan: dict[str, Any],
    folder: Path,
    reporter: Reporter = SILENT,
) -> list[Result]:
    """Writes all files into `folder`; the baseline's result comes first."""
    tokenizer = bench.model.tokenizer
    results = summarize(runs, plan["drafters"], lambda text: len(tokenizer.encode_prompt(text)))
    curves = by_budget(bench, runs, reporter)
    facts = machine(device_facts(bench.model.model))
    for result in results:
        write_answers(folder, bench.model.name, runs, result.drafter)
    points = [
        {"drafter": c.drafter, "budget": c.budget, "tokens_per_step": c.total.tokens_per_step}
        for c in curves
    ]
    write_results(folder, results, plan=plan, machine=facts, by_budget=points)
    title = f"{plan['model']} on {plan['count']} questions of {plan['questions']}"
    write_report(folder / "report.html", title, results, curves, plan, facts)
    return results


def by_budget(bench: Bench, runs: Runs, reporter: Reporter = SILENT) -> list[Replay]:
    """The baseline's answers replayed with every drafter at every budget, but for those that live
    from what the model says: that is not on record here."""
    records = bench.records(runs, BASELINE)
    drafters = [
        each
        for each in bench.contestants[1:]
        if each.answer is None and each.runner is None and not each.listens
    ]
    reporter.stage("replays", len(drafters) * len(BUDGETS) * len(records), "questions")
    return [
        replay(
            contestant.name,
            lambda contestant=contestant: contestant.make(True),  # type: ignore[misc]
            records,
            nodes,
            keep_state=contestant.learns,
            reporter=reporter,
        )
        for contestant in drafters
        for nodes in BUDGETS
    ]
