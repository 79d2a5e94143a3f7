"""Tokens/step of every drafter on recorded answers, by draft size (docs/benchmarks.md).

    python -m benchmarks.record --data DIR --datastore DIR --frozen DIR     replay, write, draw
    python -m benchmarks.record                                             only draw the picture

DIR of --data holds MT-Bench's questions, Vicuna-7B-v1.5's answers to them and its tokenizer, by
the names below. Figures go to benchmarks/figures/record.json; the page's table and docs/record.svg
are made from it. Every drafter starts each turn without what it learnt before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks._data import makers_over, steps_by_nodes
from benchmarks._figures import draw_steps, provenance, read_figures, write_figures

QUESTIONS, ANSWERS = "mt_bench_questions.jsonl", "mt_bench_answers_vicuna-7b-v1.5.jsonl"
TOKENIZER = "llama-tokenizer"
COMMAND = "python -m benchmarks.record --data DIR --datastore DIR --frozen DIR"
BUDGETS = (8, 16, 32, 64, 95)
OTHERS = ("cacheback", "rest", "context", "prompt-lookup")
TITLE = "Tokens/step on MT-Bench answers of Vicuna-7B"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description=__doc__)
    for name in ("data", "datastore", "frozen"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.data is not None:
        write_figures("record", COMMAND, replay(options))
    draw_steps("record", TITLE, read_figures("record")["steps"])


def table() -> str:
    """Return the published figures as Markdown, a row per drafter."""
    record = read_figures("record")
    steps = record["steps"]
    rows = [[name, *(f"{own[str(n)]:.2f}" for n in BUDGETS)] for name, own in steps.items()]
    return f"{markdown(['draft nodes', *BUDGETS], rows)}\n\n{provenance(record)}"


def replay(options: argparse.Namespace) -> dict[str, Any]:
    """Return {"tokens": ..., "datastore_bytes": ..., "steps": {drafter: {budget: tokens/step}}}."""
    import ngramkit
    from ngramkit.corpus.tokenizer import load_tokenizer
    from ngramkit.evaluate.records import Record, read_records
    from ngramkit.formats.datastore import Datastore
    from research.union import Union

    data, frozen = options.data, options.frozen
    tokenizer = load_tokenizer(str(data / TOKENIZER))
    read, _ = read_records(data / ANSWERS, data / QUESTIONS, tokenizer, "vicuna")
    turns = [Record(r.name, r.category, [turn]) for r in read for turn in r.turns]
    store = Datastore.open(options.datastore)
    every = makers_over(store, frozen)
    others = {name: every[name] for name in OTHERS}
    makers = {
        **{name: every[name] for name in ("blend", "blend, frozen table", "blend, no corpus")},
        "union of four": lambda: Union([make() for make in others.values()]),
        **others,
    }
    return {
        "tokens": sum(max(len(turn.answer) - 1, 0) for record in turns for turn in record.turns),
        "datastore_bytes": store.manifest.bytes,
        "frozen_bytes": ngramkit.open_artifact(frozen).manifest.bytes,
        "steps": steps_by_nodes(makers, turns, BUDGETS),
    }


if __name__ == "__main__":
    main()
