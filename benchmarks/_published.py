"""Figures that others published, next to ours for the nearest setting: docs/published.md.

Theirs are written here, each with the text that they were read from. Ours are looked up in the
records of benchmarks/figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import markdown
from benchmarks._figures import read_figures

NOT_FOUND = "not found"
SPEC_BENCH = "Spec-Bench, Vicuna-7B-v1.3, greedy, a request at a time"
LEADERBOARD = (
    "[Spec-Bench's leaderboard](https://github.com/hemingkx/Spec-Bench/blob/main/Leaderboard.md), "
    "A100, 2025-04-22"
)
SAM_README = "[SAM-Decoding's README](https://github.com/hyx1999/SAM-Decoding), table of Spec-Bench"


@dataclass(frozen=True)
class Published:
    """A published figure. `record` and `place` lead to ours."""

    method: str
    theirs: str
    setting: str
    source: str
    record: str
    place: tuple[str, ...]  # drafter and draft nodes, or a row and a column of a table

    def ours(self) -> str:
        figures = read_figures(self.record)
        return LOOKUPS[self.record](figures, *self.place)

    def our_setting(self) -> str:
        return SETTINGS[self.record](read_figures(self.record))


def _of_record(figures: Mapping[str, Any], drafter: str, nodes: str) -> str:
    return f"`{drafter}`, {nodes} nodes: {figures['steps'][drafter][nodes]:.2f}"


def _of_evidence(figures: Mapping[str, Any], drafter: str, nodes: str) -> str:
    steps = _smollm2(figures)["steps"][drafter][nodes]
    return f"`{drafter}`, {nodes} nodes: {steps['all']:.2f}; MT-Bench only {steps['MT-Bench']:.2f}"


def _of_workloads(figures: Mapping[str, Any], calls: str, history: str, column: str) -> str:
    (row,) = (row for row in figures["rows"] if row[:2] == [calls, history])
    blend, arctic = row[figures["head"].index(column)].split(" / ")
    return f"arctic-inference 0.3.0: {arctic}; `blend`: {blend} ({column})"


def _smollm2(figures: Mapping[str, Any]) -> Any:
    (found,) = (each for each in figures["models"] if each["model"] == "smollm2-135m")
    return found


def _record_setting(figures: Mapping[str, Any]) -> str:
    size = figures["datastore_bytes"] / 1e6
    return (
        f"MT-Bench, {figures['tokens']:,} recorded tokens of Vicuna-7B-v1.5, greedy; corpus of 40 "
        f"million tokens of chats ({size:.0f} MB as a datastore)"
    )


def _evidence_setting(figures: Mapping[str, Any]) -> str:
    found = _smollm2(figures)
    asked = sum(found["questions"].values())
    return (
        f"{asked} questions of MT-Bench, Spec-Bench and code, SmolLM2-135M, greedy, at most "
        f"{found['max_new_tokens']} tokens each"
    )


LOOKUPS: Mapping[str, Callable[..., str]] = {
    "record": _of_record,
    "evidence": _of_evidence,
    "workloads": _of_workloads,
}
SETTINGS: Mapping[str, Callable[[Any], str]] = {
    "record": _record_setting,
    "evidence": _evidence_setting,
    "workloads": lambda _: "tau-bench's airline agent, recorded calls, a history that grows",
}
PUBLISHED = (
    Published(
        "[REST](https://arxiv.org/abs/2311.08252)",
        "1.989 (40,491 tokens in 20,360 passes)",
        "MT-Bench, both turns, Vicuna-7B-v1.5, greedy, trees of at most 64 nodes (the default)",
        "counted in [its own answer file](https://github.com/FasterDecoding/REST/tree/main/"
        "llm_judge/data/mt_bench/model_answer), keys `new_tokens` and `idxs`",
        "record",
        ("rest", "64"),
    ),
    Published("REST, by others", "1.82", SPEC_BENCH, LEADERBOARD, "evidence", ("rest", "64")),
    Published(
        "[Cacheback](https://arxiv.org/abs/2511.21699)",
        NOT_FOUND,
        "Spec-Bench",
        "only the abstract could be read (best among comparable methods)",
        "record",
        ("cacheback", "64"),
    ),
    Published(
        "[N-Grammys](https://arxiv.org/abs/2411.03786)",
        NOT_FOUND,
        NOT_FOUND,
        "only the abstract could be read (comparable to more complex methods)",
        "evidence",
        ("ngrammys", "64"),
    ),
    Published(
        "[SAM-Decoding](https://arxiv.org/abs/2411.10666) with Token Recycling",
        "3.03 (2.30 without Token Recycling)",
        SPEC_BENCH,
        SAM_README,
        "evidence",
        ("automaton", "64"),
    ),
    Published(
        "[Token Recycling](https://arxiv.org/abs/2408.08696)",
        "2.73 (2.83 in SAM-Decoding's README)",
        f"{SPEC_BENCH}, trees of 80 nodes",
        LEADERBOARD,
        "evidence",
        ("recycling", "96"),
    ),
    Published(
        "[SuffixDecoding](https://arxiv.org/abs/2411.04975)",
        f"tokens/step {NOT_FOUND}; up to 5.3 times as fast as no drafts",
        "AgenticSQL, an agent's calls that are not public",
        "the paper's abstract",
        "workloads",
        ("tau-bench, airline agent", "grows", "tree 64"),
    ),
    Published(
        "Prompt lookup, by others",
        "1.75",
        SPEC_BENCH,
        LEADERBOARD,
        "evidence",
        ("prompt-lookup", "64"),
    ),
)


def table() -> str:
    """Return the table of docs/published.md."""
    rows = [
        [each.method, each.theirs, each.setting, each.source, each.ours(), each.our_setting()]
        for each in PUBLISHED
    ]
    head = ["method", "published", "setting", "read from", "ours", "our setting"]
    return markdown(head, rows)
