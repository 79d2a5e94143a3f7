"""Every drafter against none, prompt by prompt, with `--budget auto` and nothing calibrated.

60 prompts: code, prose, chat and shuffled words for the embedded model, for one layer of random
numbers (whose sampled text nothing predicts), and for SmolLM2-135M where `make real` has built its
artifacts (NGRAMKIT_BENCH_REAL names its --work folder); NGRAMKIT_BENCH_MODELS=demo,random leaves
out, NGRAMKIT_BENCH_PROMPTS=1 asks fewer of a kind. Each drafter runs in lockstep with none, pass by
pass in turns, in seconds of this thread's processor time (torch has no other: run it with
OMP_NUM_THREADS=1): whole runs one after another differ by a fifth on a machine that others use. A
prompt below 0.97 is asked again in more rounds, of which the median counts then: what was noise
goes, a loss stays. What passes cost is learnt in the first prompts of a model, as for any user.

blend is also measured by the rule of 0.1, which knew what passes cost from a profile made before;
the two in several rounds, in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import Row
from benchmarks._decoding import Drafters
from benchmarks._never_slower import Calibrated, Measured, drafters_of, models, texts
from ngramkit.decode.calibrate import measure
from ngramkit.decode.compare import in_lockstep, warm_up
from ngramkit.decode.loop import Run
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.result import Clock, Decoded
from ngramkit.decode.session import Session
from ngramkit.decode.text import prompt_ids
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.registry import DRAFTERS, NoDraft

NONE, CALIBRATED = "none", "blend, calibrated"
LEAST = 0.97
COMPARED = 2  # more rounds of blend in turns with what it is compared to
AGAIN = 6  # more rounds where a prompt was below LEAST
CALIBRATION = 15.0  # seconds


@dataclass
class Tried:
    """One prompt: of every round by way, how many times as fast as none; and the latest run."""

    kind: str
    ratios: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, Decoded] = field(default_factory=dict)

    def ratio(self, way: str) -> float:
        return statistics.median(self.ratios[way])


class Asked:
    """One model."""

    def __init__(self, given: Drafters, new_tokens: int, *, sampled: bool) -> None:
        self.model, self._drafts = given.model, given
        options = DecodeOptions(max_new_tokens=new_tokens, temperature=1.0 if sampled else 0.0)
        self._task = replace(Session.settle(self.model, options), profile=None)
        self._alone = self._task.undrafted()
        self._profile = measure(self.model, seconds=CALIBRATION)
        self.names = [name for name in DRAFTERS if name != NONE]

    def ask(self, kind: str, prompt: TokenArray, rounds: int) -> Tried:
        tried = Tried(kind)
        ways = [*self.names, CALIBRATED]
        for way in ways:
            warm_up(self._task, prompt, self._drafts.make(way.partition(",")[0]))
        self._rounds(tried, prompt, ways, rounds)
        self._rounds(tried, prompt, ["blend", CALIBRATED], COMPARED)
        low = [way for way in ways if tried.ratio(way) < LEAST]
        self._rounds(tried, prompt, low, AGAIN)
        return tried

    def _rounds(self, tried: Tried, prompt: TokenArray, ways: list[str], rounds: int) -> None:
        for _ in range(rounds):
            for way in ways:
                pair = [self._alone.run(prompt, NoDraft()), self._run(way, prompt)]
                for run in pair:
                    run.clock = Clock(time.thread_time)
                alone, ours = in_lockstep(pair)
                tried.ratios.setdefault(way, []).append(alone.seconds / ours.seconds)
                tried.runs[way] = ours
                if not ours.same_tokens(alone):
                    raise AssertionError(f"{way} is not lossless")

    def _run(self, way: str, prompt: TokenArray) -> Run:
        drafter = self._drafts.make(way.partition(",")[0])
        if way != CALIBRATED:
            return self._task.run(prompt, drafter)
        request = self._task.request(prompt)
        request = replace(request, auto=Calibrated(Measured(self._profile), drafter))
        return Run(self._task.open(prompt), drafter, request)


def rows() -> Iterator[Row]:
    chosen = os.environ.get("NGRAMKIT_BENCH_MODELS", "")
    for model, each, new_tokens, rounds in models(chosen.split(",") if chosen else None):
        with TemporaryDirectory() as folder:
            drafters, sampled = drafters_of(model, Path(folder)), model.name.startswith("random")
            asked = Asked(drafters, new_tokens, sampled=sampled)
            found = []
            for kind, text in texts(each):
                found.append(asked.ask(kind, prompt_ids(model.tokenizer, text), rounds))
                print(json.dumps(told(found[-1])), file=sys.stderr, flush=True)
        for way in (*asked.names, CALIBRATED):
            yield row(model.name, way, found)


def told(tried: Tried) -> dict[str, object]:
    tokens = max(len(run.token_ids) for run in tried.runs.values())
    ratios = {way: round(tried.ratio(way), 3) for way in tried.ratios}
    return {"kind": tried.kind, "tokens": tokens, **ratios}


def row(model: str, way: str, found: list[Tried]) -> Row:
    ratios = [(tried.ratio(way), tried) for tried in found]
    least, at = min(ratios, key=lambda pair: pair[0])
    run, rounds = at.runs[way], len(at.ratios[way])
    asked = run.passes - run.declined_passes
    mean = statistics.fmean(ratio for ratio, _ in ratios)
    below = sum(ratio < LEAST for ratio, _ in ratios)
    return Row(
        f"never slower, {model}, {len(found)} prompts, {way}",
        f"mean {mean:.2f}; {below} below {LEAST}",
        f"no drafts; least with {at.kind}, {rounds} rounds, {run.tokens_per_step:.2f} tokens/step, "
        f"{run.drafted_passes} of {run.passes} passes drafted, {asked} not declined",
        least,
        f">= {LEAST}" if way != CALIBRATED else "blend's mean no less",
    )
