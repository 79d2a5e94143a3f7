"""What pruning costs: tokens/step against bytes, beside random samples of documents as large.

    python -m benchmarks._prune --data DIR --out DIR

DIR of --data holds a token store `tokens`, its `datastore`, its frozen table `frozen`, and recorded
answers `records.npz` (see benchmarks.rest), two turns of each question. Of each share of the
documents a datastore and a frozen table are built, and the whole ones are pruned to as many bytes.

Every second question is for choosing: the rule's n-grams are chosen by replaying them at the least
size, and their answers are what `--answers` would be given. The others alone are judged by.
Figures, and a picture of them, go to --out; the table is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

SHARES = (64, 16, 4, 1)  # one document of so many
BUDGET = 64
PRUNED, TOLD, SAMPLE = "pruned", "pruned by answers", "a sample of documents"
CHOOSING, JUDGING = 0, 1  # halves of the questions
RULES = ((2, 3), (1, 2, 3), (3, 4))  # n-grams that passages are chosen for
TITLE = "Tokens per pass by the size of what is drafted from"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._prune", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", required=True)
    parser.add_argument("--out", type=Path, metavar="DIR", required=True)
    options = parser.parse_args()
    figures = measured(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "prune.json").write_text(text, encoding="utf-8")
    (options.out / "prune.svg").write_text(drawn(figures), encoding="utf-8")
    print(table(figures))


def table(figures: Mapping[str, Any]) -> str:
    """Markdown of {drafter: {way: {bytes: tokens/step}}}."""
    ways = (PRUNED, TOLD, SAMPLE)
    rows = [f"| drafter | MB | {' | '.join(ways)} |", "|---|---|---|---|---|"]
    for drafter, kinds in figures["steps"].items():
        for size in kinds[SAMPLE]:
            shown = [f"{kinds[way][size]:.3f}" if size in kinds[way] else "" for way in ways]
            rows.append(f"| {drafter} | {int(size) / 1e6:,.1f} | {' | '.join(shown)} |")
    return "\n".join(rows)


def measured(data: Path) -> dict[str, Any]:
    import ngramkit
    from ngramkit.builders.prune import prune

    os.environ["NGRAMKIT_BENCH_DATA"] = str(data)
    whole = {kind: ngramkit.open_artifact(data / kind) for kind in KINDS}
    answers = [np.concatenate([p[-8:], a]) for p, a in _half(CHOOSING)]
    made: dict[str, Any] = {kind: {PRUNED: {}, TOLD: {}, SAMPLE: {}} for kind in KINDS}
    rule: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for share in SHARES:
            folder = Path(name) / str(share)
            built = whole if share == 1 else _sampled(data / "tokens", share, folder)
            rule = rule or _chosen(whole["datastore"], built["datastore"].manifest.bytes, folder)
            for kind, artifact in built.items():
                size = artifact.manifest.bytes
                made[kind][SAMPLE][size] = artifact
                if share == 1:
                    continue
                with _by(tuple(rule["chosen"])):
                    out = folder / f"pruned-{kind}"
                    made[kind][PRUNED][size] = prune(whole[kind], out, size)
                    out = folder / f"told-{kind}"
                    made[kind][TOLD][size] = prune(whole[kind], out, size, answers=answers)
        steps = {}
        for kind, ways in made.items():
            steps.update(_along(kind, ways))
    return {"rule": rule, "steps": steps}


def _along(kind: str, ways: Mapping[str, Mapping[int, Any]]) -> dict[str, Any]:
    """{drafter: {way: {bytes that were asked for: tokens/step}}}, as `ngramkit.replay` has it."""
    import ngramkit

    curves = {way: list(by_size.values()) for way, by_size in ways.items()}
    tokenizer = next(iter(ways[SAMPLE].values())).tokenizer
    found = ngramkit.replay(
        _records(JUDGING), model=tokenizer, drafters=KINDS[kind], budgets=[BUDGET], artifacts=curves
    ).by_bytes()
    asked = {way: sorted(by_size) for way, by_size in ways.items()}
    return {
        drafter + ", frozen table" * (kind == "frozen"): {
            way: {
                str(size): round(steps, 4)
                for size, (_, steps) in zip(asked[way], points, strict=True)
            }
            for way, points in lines.items()
        }
        for drafter, lines in found.items()
    }


KINDS = {"datastore": ("rest", "blend"), "frozen": ("blend",)}


def _chosen(datastore: Any, size: int, folder: Path) -> dict[str, Any]:
    """Which n-grams give most on the half for choosing, rest and blend together."""
    from ngramkit.builders.prune import prune

    found = {}
    for orders in RULES:
        with _by(orders):
            pruned = prune(datastore, folder / f"rule-{'-'.join(map(str, orders))}", size)
        found[orders] = {name: _steps(name, pruned, CHOOSING) for name in KINDS["datastore"]}
        print(f"n-grams of {orders}, on the half for choosing: {found[orders]}", flush=True)
    best = max(found, key=lambda orders: math.prod(found[orders].values()))
    return {"chosen": list(best), "tried": {str(orders): found[orders] for orders in RULES}}


def _by(orders: tuple[int, ...]) -> Any:
    return mock.patch("ngramkit.builders.prune.ORDERS", orders)


def _half(which: int) -> list[Any]:
    """(prompt, answer) of the turns of every second question."""
    from benchmarks.rest import contexts

    return [pair for turn, pair in enumerate(contexts()) if turn // 2 % 2 == which]


def _sampled(tokens: Path, share: int, folder: Path) -> dict[str, Any]:
    """A datastore and a frozen table of one document in `share`."""
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.builders.frozen import build_frozen
    from ngramkit.formats.tokens import TokenStore
    from ngramkit.formats.writer import ArtifactWriter

    whole = TokenStore.open(tokens)
    documents = list(whole.documents())
    drawn = np.sort(np.random.default_rng(0).permutation(len(documents))[::share])
    held = [documents[i] for i in drawn]
    ends = np.cumsum([0, *map(len, held)]).astype(np.uint64)
    with ArtifactWriter(folder / "tokens", "tokens", {"share": share}) as writer:
        arrays = {"tokens": np.concatenate(held), "documents": ends}
        writer.write("shard-00000.safetensors", arrays)
        counts = {"documents": len(held), "tokens": int(ends[-1])}
        writer.commit(whole.tokenizer, parameters={}, corpus={"id": "sample"}, counts=counts)
    store = TokenStore.open(folder / "tokens")
    return {
        "datastore": build_datastore(store, folder / "d", shard_tokens=1 << 25),
        "frozen": build_frozen(store, folder / "f"),
    }


def _steps(drafter: str, datastore: Any, half: int) -> float:
    """Tokens/step on a half of the record, each turn begun anew."""
    import ngramkit

    found = ngramkit.replay(
        _records(half), model=datastore.tokenizer, drafters=drafter, budgets=[BUDGET],
        artifacts=datastore,
    )  # fmt: skip
    return float(found[0].total.tokens_per_step)


def _records(half: int) -> list[Any]:
    from ngramkit.evaluate.records import Record, Turn

    return [Record(str(i), "all", [Turn(*pair)]) for i, pair in enumerate(_half(half))]


def drawn(figures: Mapping[str, Any]) -> str:
    """The picture, for light pages and dark ones."""
    from benchmarks._picture import page
    from ngramkit.evaluate.plots import picture

    return page(picture(TITLE, "", lambda figure: _draw(figure.add_subplot(), figures), (7.0, 4.0)))


def _draw(axes: Any, figures: Mapping[str, Any]) -> None:
    from ngramkit.evaluate.plots import draw_bytes

    draw_bytes(axes, {drafter: _lines(ways) for drafter, ways in figures["steps"].items()})


def _lines(ways: Mapping[str, Mapping[str, float]]) -> dict[str, list[tuple[int, float]]]:
    """Points in order; all lines end at the whole."""
    whole = max(ways[SAMPLE], key=int)
    return {
        way: sorted(
            (int(size), step) for size, step in {**found, whole: ways[SAMPLE][whole]}.items()
        )
        for way, found in ways.items()
    }


if __name__ == "__main__":
    main()
