"""Processor time of vLLM without drafts over that of V2's trimmed mode, SmolLM2-135M-Instruct.

`benchmarks.servers.vllm_v2` runs it in vLLM's environment. Each engine is a process that answers
several rounds of questions: some one at a time, eight at once, and these eight again. A batch is
asked of one engine after another, so that what else the machine does meets all of them. Every text
must equal the one without drafts. Triton's interpreter is part of a pass here; the adapter measures
passes as they are.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.servers.vllm_rows import SYNC, drafts, variables
from benchmarks.servers.vllm_table import (
    AT_ONCE,
    Round,
    arguments,
    ask_round,
    differing,
    requests_for,
    start,
    ways,
)

ASKED = ("one at a time", "eight at once", "asked again")
HEAD = ("drafts", *(f"steps, {asked}" for asked in ASKED), *(f"time, {asked}" for asked in ASKED))
NONE = "none"


def main() -> None:
    """Ask every engine, and write a row for each with the failures."""
    parser = arguments("vllm_times", count=3, tokens=40)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    lines = given.questions.read_text("utf-8").splitlines()
    questions = [json.loads(line)["turns"][0] for line in lines]
    engines, failures = start_engines(given), list[str]()
    found: list[dict[str, list[Round]]] = []
    for i in range(given.rounds):
        begin = i * (given.count + AT_ONCE)
        alone = questions[begin : begin + given.count]
        together = questions[begin + given.count : begin + given.count + AT_ONCE]
        found.append(ask_all(engines, alone, together, i))
        for name, rounds in found[-1].items():
            pairs = zip(ASKED, rounds, found[-1][NONE], strict=True)
            for asked, ours, plain in pairs:
                if differ := differing(plain.texts, ours.texts):
                    failures.append(f"{name}, round {i}, {asked}: {differ} other texts")
            seconds = [f"{each.seconds:.1f} s in {each.steps} steps" for each in rounds]
            print(f"round {i}, {name}: {', '.join(seconds)}", flush=True)
        rows = [row(name, found) for name in engines if name != NONE]
        table = {"head": HEAD, "rows": rows, "failures": failures}
        given.result.write_text(json.dumps(table))
    for each in [HEAD, *rows]:
        print(f"| {' | '.join(each)} |", flush=True)
    for engine in engines.values():
        engine.send(None)


def row(name: str, found: Sequence[dict[str, list[Round]]]) -> list[str]:
    """Return what no drafts take over what `name` takes: of all steps, and of time by round.

    Times are medians, with the least and the largest.
    """
    cells = [name]
    for i in range(len(ASKED)):
        plain, ours = (sum(each[of][i].steps for each in found) for of in (NONE, name))
        cells.append(f"{plain / ours:.2f}")
    for i in range(len(ASKED)):
        ratios = [each[NONE][i].seconds / each[name][i].seconds for each in found]
        middle = statistics.median(ratios)
        cells.append(f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return cells


def ask_all(
    engines: dict[str, Connection], alone: Sequence[str], together: Sequence[str], turn: int
) -> dict[str, list[Round]]:
    """Ask every engine; return for each the rounds of ASKED. `turn` rotates who begins."""
    found: dict[str, list[Round]] = {name: [] for name in engines}
    names = list(engines)
    names = names[turn % len(names) :] + names[: turn % len(names)]
    singles: dict[str, list[Round]] = {name: [] for name in engines}
    for question in alone:
        for name in names:
            singles[name].append(ask(engines[name], [question]))
    for name in names:
        texts = {f"{i} {asked}": text for i, each in enumerate(singles[name])
                 for asked, text in each.texts.items()}  # fmt: skip
        steps = sum(each.steps for each in singles[name])
        found[name].append(Round(texts, steps, sum(each.seconds for each in singles[name])))
    for _ in range(2):
        for name in names:
            found[name].append(ask(engines[name], together))
    return found


def ask(engine: Connection, questions: Sequence[str]) -> Round:
    engine.send(list(questions))
    answered: Round = engine.recv()
    return answered


def start_engines(given: argparse.Namespace) -> dict[str, Connection]:
    """Start a process for our drafts of each kind, and one for none, one after another."""
    spawn, found = multiprocessing.get_context("spawn"), dict[str, Connection]()
    for name, (speculative, draft, _) in ways(given.datastore).items():
        if speculative is not None and draft is None:  # vLLM's own drafts
            continue
        ours, theirs = spawn.Pipe()
        environment = drafts(draft, given.result.parent)
        arguments = (theirs, given.model, speculative, environment, given.tokens)
        spawn.Process(target=serve, args=arguments, daemon=True).start()
        ours.recv()
        found[name] = ours
    return found


def serve(
    asked: Connection, model: Path, speculative: Any, environment: dict[str, str], tokens: int
) -> None:
    """Start an engine, and answer questions at once until None comes."""
    with variables(environment):
        llm = start(model, speculative, SYNC)
        asked.send("ready")
        while (questions := asked.recv()) is not None:
            asked.send(ask_round(llm, [requests_for(llm, questions, tokens)]))


if __name__ == "__main__":
    main()
