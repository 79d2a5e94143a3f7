"""The results of a benchmark, written as answers, results.json and report.html."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.basics.results import Summarized
from ngramkit.basics.terminal_text import counted
from ngramkit.drafters.spec import split_budget
from ngramkit.evaluate.bench_contest import Bench
from ngramkit.evaluate.bench_figures import (
    BenchResult,
    is_transformers,
    shown_speedup,
    summarize,
    write_answers,
)
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER, REPORT_FILE, QuestionRun, Runs
from ngramkit.evaluate.provenance import Provenance
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.replay_loop import replay_drafter
from ngramkit.evaluate.result_folder import Contents, write_folder
from ngramkit.evaluate.result_tables import Cell, Table, steps_by_budget, with_intervals
from ngramkit.evaluate.statistics import QUESTIONS, Interval, Ratio, ratios

REPLAYED_BUDGETS = (2, 4, 8, 16, 32, 64)  # draft nodes per pass of the replays
STEP_COLUMNS = ("tokens_per_step", "tokens_per_step_low", "tokens_per_step_high")


@dataclass(frozen=True, repr=False)
class BenchResults(Summarized):
    """The results, baseline first."""

    results: list[BenchResult]
    runs: list[QuestionRun]  # of questions that all drafters and the baseline answered
    plan: dict[str, Any]
    folder: Path
    missing: dict[str, str] = field(default_factory=dict)  # drafters left out -> what they need
    curves: list[Replay] = field(default_factory=list)  # the baseline's answers, by budget
    baseline: str | None = None  # the drafter that ratios divide by
    provenance: Provenance | None = None

    @property
    def identical(self) -> bool:
        """Whether every answer is the model's own."""
        return all(result.identical for result in self.results)

    def summary(self) -> list[dict[str, Any]]:
        """Return a row per drafter with its budget."""
        names = ("tokens_per_step", "tokens_per_step_low", "tokens_per_step_high",
                 "tokens_per_step_interval", "tokens_per_second", "speedup", "speedup_low",
                 "speedup_high", "speedup_interval", "identical", "tokens", "passes",
                 "draft_seconds", "verify_seconds", "seconds")  # fmt: skip
        measured = [
            {"drafter": r.drafter, "budget": self._budget_of(r.drafter), "missing": None}
            | {name: getattr(r, name) for name in names}
            for r in self.results
        ]
        missing = [{"drafter": name, "missing": needs} for name, needs in self.missing.items()]
        return [*measured, *missing]

    def _budget_of(self, drafter: str) -> Any:
        if drafter == BASELINE_DRAFTER or is_transformers(drafter):
            return None
        return split_budget(drafter)[1] or self.plan.get("budget")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per drafter and question."""
        for run in self.runs:
            yield {
                "drafter": run.drafter,
                "question": run.question,
                "category": run.category,
                "tokens": run.tokens,
                "passes": run.passes,
                "tokens_per_step": run.tokens / run.passes if run.passes else 1.0,
                "new_tokens": run.new_tokens,
                "seconds": run.seconds,
            }

    def ratios(self, of: Literal["tokens/step", "tokens/s"] = "tokens/s") -> list[Ratio]:
        """Return each drafter over every later one, or all others over the baseline.

        There are no intervals if one of two learns. Drafters without a speed-up are in no ratio of
        tokens/s.
        """
        gain, cost = {
            "tokens/step": ("tokens", "passes"),
            "tokens/s": ("new_tokens", "seconds"),
        }[of]
        compared = [
            result
            for result in self.results
            if (result.drafter != BASELINE_DRAFTER or self.baseline == BASELINE_DRAFTER)
            and (of == "tokens/step" or result.speedup is not None)
        ]
        columns = []
        for result in compared:
            runs = [run for run in self.runs if run.drafter == result.drafter]
            gains, costs = ([getattr(run, figure) for run in runs] for figure in (gain, cost))
            columns.append((result.drafter, gains, costs))
        learns = [result.learns for result in compared]
        return ratios(columns, dependent=learns, baseline=self.baseline)

    def contents(self) -> Contents:
        """Return the content of their folder."""
        from ngramkit.evaluate.bench_report import bench_pictures

        pictures = bench_pictures(self.results, self.curves)
        return Contents("bench", self._figures(), self.summary(), self._tables(), pictures)

    def _tables(self) -> list[Table]:
        speedups = [
            Interval(r.speedup_low, r.speedup_high, r.speedup_interval) for r in self.results
        ]
        cells = [
            (
                r.drafter,
                [
                    Cell(f"{r.tokens_per_step:.2f}", _interval_of(r, "tokens_per_step")),
                    Cell(f"{r.tokens_per_second:,.1f}"),
                    Cell(shown_speedup(r.speedup), _interval_of(r, "speedup")),
                ],
            )
            for r in self.results
        ]
        notes = [f"{r.drafter}: {r.remarks}" for r in self.results if r.remarks]
        notes += [f"{name}: n/a, {needs}" for name, needs in self.missing.items()]
        title = with_intervals("Tokens/step, tokens/s and speed-up over no drafts", speedups[1:])
        head = ("drafter", "tokens/step", "tokens/s", "speed-up")
        tables = [Table("speed-up", title, head, cells, notes)]
        if self.curves:
            title = "Tokens/step by draft nodes per pass, replayed"
            tables.append(steps_by_budget(self.curves, "tokens-per-step", title))
        return tables

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._tables())

    def to_dict(self) -> dict[str, Any]:
        origin = {} if self.provenance is None else self.provenance.to_dict()
        return {**self._figures(), **origin}

    def _figures(self) -> dict[str, Any]:
        units: tuple[Literal["tokens/step"], Literal["tokens/s"]] = ("tokens/step", "tokens/s")
        return {
            "results": [result.to_dict() for result in self.results],
            "ratios": [{"figure": of, **r.to_dict()} for of in units for r in self.ratios(of)],
            "questions": list(self.rows()),
            "baseline": self.baseline,
            "missing": self.missing,
            "by_budget": [
                {name: row[name] for name in ("drafter", "budget", *STEP_COLUMNS)}
                for row in (curve.summary() for curve in self.curves)
            ],
            "plan": self.plan,
        }

    def __repr__(self) -> str:
        speedups = ", ".join(
            f"{r.drafter} {shown_speedup(r.speedup, 'x')}" for r in self.results[1:]
        )
        return f"<BenchResults of {self.plan['model']} in {self.folder}: {speedups}>"


def _interval_of(result: BenchResult, figure: str) -> str:
    """Return the interval of a figure, "" if it cannot vary."""
    low, high = getattr(result, f"{figure}_low"), getattr(result, f"{figure}_high")
    return "" if low == high else str(Interval(low, high))


def write_results(
    bench: Bench,
    runs: Runs,
    plan: dict[str, Any],
    folder: Path,
    provenance: Provenance,
    reporter: Reporter = SILENT,
    missing: Mapping[str, str] = MappingProxyType({}),
    baseline: str | None = None,
) -> BenchResults:
    """Write all files into `folder`."""
    tokenizer = bench.model.tokenizer
    results = summarize(
        runs,
        plan["drafters"],
        lambda text: len(tokenizer.encode_prompt(text)),
        {contestant.name for contestant in bench.contestants if contestant.learns},
    )
    for result in results[1:]:
        result.drop_speedups_if_texts_differ(near_ties(bench, runs, result))
    if runs.others is not None:
        provenance.machine["other programs"] = f"{runs.others:.1f} cores on average"
    shared = runs.shared_by([result.drafter for result in results])
    answered = [run for own in shared.values() for run in own]
    curves = by_budget(bench, runs, reporter)
    measured = BenchResults(
        results, answered, plan, folder, dict(missing), curves, baseline, provenance
    )
    for result in results:
        write_answers(folder, bench.model.name, runs, result.drafter)
    write_folder(folder, measured.contents(), provenance)
    title = f"{plan['model']} on {plan['questions']}, {counted(plan['count'], 'question')}"
    from ngramkit.evaluate.bench_report import write_report

    write_report(folder / REPORT_FILE, title, results, curves, plan, provenance.machine, missing)
    return measured


def near_ties(bench: Bench, runs: Runs, result: BenchResult) -> list[str]:
    from ngramkit.decode.compare import where_answers_part

    found = []
    for index, question in enumerate(bench.questions):
        name = str(question.id)
        if name not in result.differing:
            continue
        base, own = runs.found[BASELINE_DRAFTER, name], runs.found[result.drafter, name]
        prompts = bench.conversation(question, base.turns)
        decoder = bench.decoder.with_seed_offset(index)
        for prompt, ours, theirs in zip(prompts, own.turns, base.turns, strict=False):
            if ours.token_ids != theirs.token_ids:
                one, other = (np.array(turn.token_ids, np.int32) for turn in (ours, theirs))
                if where_answers_part(decoder, prompt, one, other, "no drafts").near_tie:
                    found.append(name)
                break
    return found


def by_budget(bench: Bench, runs: Runs, reporter: Reporter = SILENT) -> list[Replay]:
    """Replay the baseline's answers by budget."""
    records = bench.records(runs, BASELINE_DRAFTER)
    drafters = [
        each
        for each in bench.contestants[1:]
        if each.answer is None and each.decoder is None and not each.wants_evidence
    ]
    reporter.stage("replays", len(drafters) * len(REPLAYED_BUDGETS) * len(records), "questions")
    curves = []
    for contestant in drafters:
        units = replace(QUESTIONS, dependent=contestant.learns)
        for nodes in REPLAYED_BUDGETS:
            curve = replay_drafter(
                contestant.name, partial(contestant.make, True), records, nodes,
                keep_state=contestant.learns, vocabulary=bench.model.tokenizer.record.vocabulary,
                reporter=reporter,
            )  # fmt: skip
            curve.units = units
            curves.append(curve)
    return curves
