"""The results of a benchmark: a row of figures per drafter.

The speed-up is the ratio of two token rates over the same questions, with a 95 % bootstrap interval
unless the drafter learns.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ngramkit.basics.results import Result
from ngramkit.basics.terminal_text import counted
from ngramkit.decode.options import TRANSFORMERS_WAYS
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER, QuestionRun, Runs, answers_file
from ngramkit.evaluate.statistics import (
    QUESTIONS,
    Interval,
    Ratio,
    rate_interval,
    ratio_with_interval,
)
from ngramkit.formats.replacing import replace_text


@dataclass
class BenchResult(Result):
    """The figures of one drafter; `tokens` exclude the prefills'."""

    drafter: str
    tokens: int
    passes: int
    tokens_per_step: float
    tokens_per_second: float
    speedup: float | None  # None if answers differ other than at near ties
    speedup_low: float | None  # of the 95 % interval; None if there is none
    speedup_high: float | None
    identical: bool  # every answer is the baseline's, token for token
    draft_seconds: float
    verify_seconds: float
    seconds: float
    by_category: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted_lengths: dict[str, int] = field(default_factory=dict)  # tokens of a pass -> passes
    differing: list[str] = field(default_factory=list)  # questions with another answer
    near_ties: list[str] = field(default_factory=list)  # of these, those that part at a near tie
    drafted: int | None = None  # verified draft nodes; None if not recorded
    spec_bench: dict[str, float] = field(default_factory=dict)  # see `speedup_as_spec_bench`
    speedup_interval: str = ""  # what it is over, or why there is none
    learns: bool = False  # from one question to the next
    tokens_per_step_low: float | None = None  # of the 95 % interval
    tokens_per_step_high: float | None = None
    tokens_per_step_interval: str = ""

    def interval_of(self, category: str) -> Interval:
        """Return the interval of a category's speed-up."""
        figures = self.by_category[category]
        if figures["speedup"] is None:
            return Interval()
        return Interval(figures.get("speedup_low"), figures.get("speedup_high"))

    @property
    def _why(self) -> str:
        if len(self.near_ties) == len(self.differing):
            return " at a near tie, which rounding decides"
        return ", so no speed-up is given" if self.speedup is None else ""

    def drop_speedups_if_texts_differ(self, near_ties: list[str]) -> None:
        """Set the answers that part at near ties; drop all speed-ups if others differ."""
        self.near_ties = near_ties
        if len(near_ties) < len(self.differing):
            self.speedup = self.speedup_low = self.speedup_high = None
            self.speedup_interval = "no interval: answers differ"
            self.spec_bench = {}
            for figures in self.by_category.values():
                figures |= {"speedup": None, "speedup_low": None, "speedup_high": None}

    @property
    def remarks(self) -> str:
        wrong = len(self.differing)
        differ = [f"{counted(wrong, 'answer')} differ{'s' * (wrong == 1)}{self._why}"] * bool(wrong)
        nothing = self.drafted == 0 and self.drafter not in (BASELINE_DRAFTER, *TRANSFORMERS_WAYS)
        return "; ".join([*differ, *["drafted nothing: its speed-up is noise"] * nothing])


def shown_speedup(speedup: float | None, unit: str = "") -> str:
    return "n/a" if speedup is None else f"{speedup:.2f}{unit}"


def summarize(
    runs: Runs,
    drafters: Sequence[str],
    count: Callable[[str], int] | None = None,
    learning: Collection[str] = (),
) -> list[BenchResult]:
    """Return the results of the baseline and `drafters`, over questions that all answered.

    `learning`: drafters that learn. `count`: counts a text's tokens, special ones included.
    """
    shared = runs.shared_by([BASELINE_DRAFTER, *drafters])
    base = shared[BASELINE_DRAFTER]
    results = [
        _figures_of_drafter(name, own, base, dependent=name in learning)
        for name, own in shared.items()
    ]
    if count is not None:
        for result in results:
            result.spec_bench = speedup_as_spec_bench(shared[result.drafter], base, count)
    return results


def _figures_of_drafter(
    name: str, runs: list[QuestionRun], base: list[QuestionRun], *, dependent: bool
) -> BenchResult:
    speedup = speedup_with_interval(runs, base, dependent=dependent)
    units = replace(QUESTIONS, dependent=dependent)
    steps = rate_interval([run.tokens for run in runs], [run.passes for run in runs], units)
    turns = [turn for run in runs for turn in run.turns]
    lengths = Counter(length for run in runs for length in run.tokens_per_pass)
    nodes = [run.drafted for run in runs]
    return BenchResult(
        drafter=name,
        **_rates_and_speedup(runs, base),
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        speedup_interval=speedup.interval,
        drafted=None if None in nodes else sum(filter(None, nodes)),
        identical=all(a.same_text(b) for a, b in zip(runs, base, strict=True)),
        draft_seconds=sum(turn.draft_seconds for turn in turns),
        verify_seconds=sum(turn.verify_seconds for turn in turns),
        seconds=sum(turn.seconds for turn in turns),
        by_category=_figures_by_category(runs, base, dependent=dependent),
        accepted_lengths={str(length): lengths[length] for length in sorted(lengths)},
        learns=dependent,
        tokens_per_step_low=steps.low,
        tokens_per_step_high=steps.high,
        tokens_per_step_interval=steps.over,
        differing=[r.key[1] for r, b in zip(runs, base, strict=True) if not r.same_text(b)],
    )


def _rates_and_speedup(runs: Sequence[QuestionRun], base: Sequence[QuestionRun]) -> dict[str, Any]:
    tokens, passes = sum(run.tokens for run in runs), sum(run.passes for run in runs)
    return {
        "tokens": tokens,
        "passes": passes,
        "tokens_per_step": tokens / passes if passes else 1.0,
        "tokens_per_second": _tokens_per_second(runs),
        "speedup": _tokens_per_second(runs) / _tokens_per_second(base),
    }


def _tokens_per_second(runs: Sequence[QuestionRun]) -> float:
    return sum(run.new_tokens for run in runs) / sum(run.seconds for run in runs)


def speedup_as_spec_bench(
    runs: Sequence[QuestionRun], base: Sequence[QuestionRun], count: Callable[[str], int]
) -> dict[str, float]:
    """Compute the speed-up of Spec-Bench's evaluation/speed.py ("overall").

    It averages rates over questions. The baseline's tokens are counted from its text, less one for
    BOS even without a BOS, and without a final EOS; {} if that leaves none.
    """
    rates = [run.new_tokens / run.seconds for run in runs]
    baseline = [sum(count(turn.text) - 1 for turn in run.turns) / run.seconds for run in base]
    lengths = [length for run in runs for length in run.tokens_per_pass]
    mine, others = statistics.fmean(rates), statistics.fmean(baseline)
    if not others:
        return {}
    return {
        "tokens_per_second": mine,
        "baseline_tokens_per_second": others,
        "speedup": mine / others,
        "mean_accepted_tokens": statistics.fmean(lengths) if lengths else 1.0,
    }


def _figures_by_category(
    runs: list[QuestionRun], base: list[QuestionRun], *, dependent: bool
) -> dict[str, dict[str, Any]]:
    pairs = list(zip(runs, base, strict=True))
    figures = {}
    for category in dict.fromkeys(run.category for run in runs):
        own = [run for run, _ in pairs if run.category == category]
        others = [other for run, other in pairs if run.category == category]
        speedup = speedup_with_interval(own, others, dependent=dependent)
        ends = {"speedup_low": speedup.low, "speedup_high": speedup.high}
        figures[category] = {**_rates_and_speedup(own, others), **ends}
    return figures


def speedup_with_interval(
    runs: Sequence[QuestionRun], base: Sequence[QuestionRun], *, dependent: bool = False
) -> Ratio:
    own, others = (
        ("", [run.new_tokens for run in each], [run.seconds for run in each])
        for each in (runs, base)
    )
    return ratio_with_interval(own, others, replace(QUESTIONS, dependent=dependent))


def write_answers(folder: Path, model: str, runs: Runs, drafter: str) -> Path:
    """Write one drafter's answers for Spec-Bench's evaluation/speed.py."""
    lines = []
    for run in runs.found.values():
        if run.drafter == drafter:
            choice = {
                "index": 0,
                "turns": [turn.text for turn in run.turns],
                "decoding_steps": [len(turn.tokens_per_pass) for turn in run.turns],
                "new_tokens": [len(turn.token_ids) for turn in run.turns],
                "wall_time": [turn.seconds for turn in run.turns],
                "accept_lengths": run.tokens_per_pass,
            }
            line = {
                "question_id": run.question,
                "category": run.category,
                "answer_id": f"{drafter}-{run.question}",
                "model_id": f"{model}-{drafter}",
                "choices": [choice],
                "tstamp": time.time(),
            }
            lines.append(json.dumps(line, ensure_ascii=False))
    path = folder / answers_file(drafter)
    replace_text(path, "\n".join(lines) + "\n")
    return path


def is_transformers(drafter: Any) -> bool:
    return isinstance(drafter, str) and drafter in TRANSFORMERS_WAYS
