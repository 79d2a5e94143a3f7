"""`ngramkit.pass_cost`: what a server's passes cost, by its engine's own benchmark.

`vllm bench serve --save-result` and `sglang.bench_serving --output-file` write one JSON object per
run. With N requests at once, a request waits for one pass over N tokens between two of its tokens
(time per output token, TPOT).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError, given_paths
from ngramkit.basics.limits import LIMITS
from ngramkit.basics.results import Tabular
from ngramkit.basics.untrusted import parse_json, read_plain, whole_number
from ngramkit.budget.pass_times import MeasuredTimes, cost_shown
from ngramkit.budget.profile import Pass, Profile
from ngramkit.corpus.json_records import is_document
from ngramkit.formats.replacing import whole_file

MAX_REQUESTS = 1 << 20
MIN_SHARE_AT_FULL_LOAD = 0.6  # least share of a run's time in which all its requests were writing
MAX_RATIO_OF_CONTEXTS = 2.0  # most ratio of two runs' mean contexts
NEEDED_RUNS = "See docs/logs.md for the runs that are needed."


@dataclass(frozen=True)
class BenchmarkRun:
    """A run of an engine's benchmark, without drafts."""

    requests: int  # at once
    seconds: float  # between two tokens of a request, the median
    context: float  # mean tokens of a request in the middle of its answer
    model: str


@dataclass(frozen=True, repr=False)
class PassCost(Tabular):
    """The profile of a server, saved at `path`."""

    profile: Profile
    path: Path
    runs: Sequence[BenchmarkRun]

    @property
    def cost(self) -> float:
        """The time of a pass over 9 tokens, in passes over one."""
        return cost_shown(MeasuredTimes(self.profile, str(self.path)))

    def rows(self) -> list[dict[str, Any]]:
        first = self.profile.passes[0].seconds
        return [
            {"tokens": each.tree_size + 1, "ms": 1e3 * each.seconds, "cost": each.seconds / first}
            for each in self.profile.passes
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile": str(self.path),
            "model": self.profile.model,
            "runs": len(self.runs),
            "pass_cost": self.cost,
            "passes": self.rows(),
        }

    def __repr__(self) -> str:
        return f"<PassCost of {self.profile.model or 'a server'}, {self.cost:.2f}: {self.path}>"


def pass_cost(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
) -> PassCost:
    """Turn results of an engine's benchmark into the profile that `pass_cost` takes elsewhere.

    `files`: results of runs with 1 request at once and with more. The fastest of several runs with
    the same number counts. Raises InputError for another file or a run whose figures do not hold,
    UsageError if runs cannot be compared or `out` exists without `force`.
    """
    paths = given_paths("files", files)
    runs = [run for path in paths for run in read_runs(path)]
    profile = profile_of(runs)
    place = Path(out)
    with whole_file(place, _is_profile, force=force, inputs=paths) as file:
        file.write(profile.to_json().encode())
    return PassCost(profile, place, runs)


def profile_of(runs: Sequence[BenchmarkRun]) -> Profile:
    """Return the times by requests at once. Raises UsageError for runs that cannot be compared."""
    found = sorted({run.requests for run in runs})
    if len(found) < 2 or found[0] != 1:
        listed = ", ".join(map(str, found)) or "none"
        raise UsageError(
            f"files must hold runs with 1 request at once and with more, got {listed}",
            NEEDED_RUNS,
            option="files",
        )
    models = sorted({run.model for run in runs})
    if len(models) > 1:
        raise UsageError(
            f"files must be runs of one model, got {', '.join(models)}", NEEDED_RUNS, option="files"
        )
    contexts = [run.context for run in runs]
    if max(contexts) > MAX_RATIO_OF_CONTEXTS * min(contexts):
        raise UsageError(
            "files must be runs with prompts and answers of the same lengths, got means of "
            f"{min(contexts):,.0f} to {max(contexts):,.0f} tokens",
            NEEDED_RUNS,
            option="files",
        )
    context = round(sum(contexts) / len(contexts))
    passes = [
        Pass(size - 1, context, min(run.seconds for run in runs if run.requests == size))
        for size in found
    ]
    return Profile(models[0], "server", "", passes)


def read_runs(path: Path) -> list[BenchmarkRun]:
    """Read one JSON object, or one per line."""
    if not path.exists():
        raise InputError(f"no such file: {path}", "Check the path.")
    text = read_plain(path, LIMITS.json_bytes, error=InputError, hint=NEEDED_RUNS)
    lines = [line for line in text.splitlines() if line.strip()]
    whole = len(lines) < 2 or is_document(*lines[:2])
    bodies = [text] if whole else lines
    return [
        _parse_run(parse_json(body, where, hint=NEEDED_RUNS), where)
        for number, body in enumerate(bodies, 1)
        for where in [str(path) if whole else f"{path}, line {number}"]
    ]


def _parse_run(body: Any, where: str) -> BenchmarkRun:
    if not isinstance(body, dict) or "median_tpot_ms" not in body:
        raise InputError(f"cannot read {where}: it has no median_tpot_ms", NEEDED_RUNS)
    requests: Any = body.get("max_concurrency")
    if not whole_number(requests, 1, MAX_REQUESTS):
        raise InputError(
            f"cannot use {where}: max_concurrency must be a number above 0, got {requests!r:.40}",
            "Run the benchmark with a number of requests at once.",
        )
    if any(key.startswith("spec_decode") for key in body) or (body.get("accept_length") or 0) > 1:
        raise InputError(
            f"cannot use {where}: the server drafted", "Start it without speculative decoding."
        )
    failed = body.get("failed") or 0
    if failed:
        raise InputError(f"cannot use {where}: {failed!r:.20} requests failed", NEEDED_RUNS)
    names = ("median_tpot_ms", "mean_tpot_ms", "output_throughput", "completed",
             "total_input_tokens", "total_output_tokens")  # fmt: skip
    median, mean, throughput, completed, read, written = (
        _positive_number(body, name, where) for name in names
    )
    full = throughput * mean / 1e3 / requests
    if full < MIN_SHARE_AT_FULL_LOAD:
        raise InputError(
            f"cannot use {where}: of {requests:,} requests only {full * requests:,.1f} were "
            "writing at a time",
            "Give longer answers and at least four times as many prompts as requests at once.",
        )
    context = (read + written / 2) / completed
    return BenchmarkRun(requests, median / 1e3, context, str(body.get("model_id") or ""))


def _positive_number(body: dict[str, Any], name: str, where: str) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise InputError(
            f"cannot read {where}: {name} must be above 0, got {value!r:.40}", NEEDED_RUNS
        )
    return float(value)


def _is_profile(path: Path) -> bool:
    Profile.load(path)
    return True
