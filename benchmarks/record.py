"""The README's picture and table: tokens/step on a record, by budget.

    python -m benchmarks.record --data DIR --datastore DIR --frozen DIR     replays, writes both
    python -m benchmarks.record                                             draws the picture anew

DIR of --data holds MT-Bench's questions, Vicuna-7B-v1.5's answers to them and its tokenizer, by
the names below. Figures go to docs/record.json; pages and docs/record.svg are made of them alone.
Every drafter begins each turn anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._picture import lines_picture

DOCS = Path(__file__).parents[1] / "docs"
QUESTIONS, ANSWERS = "mt_bench_questions.jsonl", "mt_bench_answers_vicuna-7b-v1.5.jsonl"
TOKENIZER = "llama-tokenizer"
BUDGETS = (8, 16, 32, 64, 95)
TITLE = "Tokens per pass on MT-Bench answers of Vicuna-7B"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description=__doc__)
    for name in ("data", "datastore", "frozen"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.data is not None:
        figures = json.dumps(replay(options), indent=1) + "\n"
        (DOCS / "record.json").write_text(figures, encoding="utf-8")
    drawn = lines_picture(TITLE, read_figures()["steps"])
    (DOCS / "record.svg").write_text(drawn, encoding="utf-8")


def read_figures() -> dict[str, Any]:
    """Read {"tokens": ..., "datastore_bytes": ..., "steps": {drafter: {budget: tokens/step}}}."""
    found: dict[str, Any] = json.loads((DOCS / "record.json").read_text(encoding="utf-8"))
    return found


def table(figures: Mapping[str, Any]) -> str:
    """Return Markdown: a row per drafter."""
    head = ["draft nodes", *map(str, BUDGETS)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, steps in figures["steps"].items():
        rows.append(f"| {name} | {' | '.join(f'{steps[str(n)]:.2f}' for n in BUDGETS)} |")
    return "\n".join(rows)


def replay(options: argparse.Namespace) -> dict[str, Any]:
    import ngramkit
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.evaluate.records import Record, read_records
    from ngramkit.evaluate.simulation import replay_drafter
    from research.union import Union

    data, datastore, frozen = options.data, options.datastore, options.frozen
    tokenizer = load_tokenizer(str(data / TOKENIZER))
    read, _ = read_records(data / ANSWERS, data / QUESTIONS, tokenizer, "vicuna")
    turns = [Record(r.name, r.category, [turn]) for r in read for turn in r.turns]
    record = ngramkit.open_artifact(datastore).tokenizer
    load = ngramkit.load_drafter
    others: dict[str, Callable[[], Any]] = {
        "cacheback": lambda: load("cacheback", frozen_table=frozen),
        "rest": lambda: load("rest", datastores=[datastore]),
        "context": lambda: load("context"),
        "prompt-lookup": lambda: load("prompt-lookup"),
    }
    makers: dict[str, Callable[[], Any]] = {
        "blend": lambda: load("blend", datastores=[datastore]),
        "blend, frozen table": lambda: load("blend", frozen_table=frozen),
        "blend, no corpus": lambda: load("blend", tokenizer=record),
        "union of four": lambda: Union([make() for make in others.values()]),
        **others,
    }
    steps: dict[str, dict[str, float]] = {}
    for name, make in makers.items():
        for budget in BUDGETS:
            found = replay_drafter(name, make, turns, budget)
            steps.setdefault(name, {})[str(budget)] = round(found.total.tokens_per_step, 4)
            tokens = found.total.tokens
            print(f"{name}, {budget} nodes: {found.total.tokens_per_step:.3f}", flush=True)
    return {
        "tokens": tokens,
        "datastore_bytes": ngramkit.open_artifact(datastore).manifest.bytes,
        "frozen_bytes": ngramkit.open_artifact(frozen).manifest.bytes,
        "steps": steps,
    }


if __name__ == "__main__":
    main()
