"""What pruning costs: tokens/step against bytes, beside random samples of documents as large.

    python -m benchmarks._prune --data DIR --out DIR

DIR of --data holds a token store `tokens`, its `datastore`, its frozen table `frozen`, and recorded
answers `records.npz` (see benchmarks.rest). Of each share of the documents a datastore and a frozen
table are built, and the whole ones are pruned to as many bytes. Figures, and a picture of them, go
to --out; the table is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SHARES = (64, 16, 4, 1)  # one document of so many
BUDGET = 64
PRUNED, SAMPLE = "pruned", "a sample of documents"
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
    """Markdown of {drafter: {"pruned" or "a sample of documents": {bytes: tokens/step}}}."""
    rows = ["| drafter | MB | pruned | a sample of documents |", "|---|---|---|---|"]
    for drafter, kinds in figures.items():
        for size, step in kinds[SAMPLE].items():
            other = kinds[PRUNED].get(size)
            shown = f"{other:.3f}" if other else "(the whole)"
            rows.append(f"| {drafter} | {int(size) / 1e6:,.1f} | {shown} | {step:.3f} |")
    return "\n".join(rows)


def measured(data: Path) -> dict[str, Any]:
    import ngramkit
    from ngramkit.builders.prune import prune

    os.environ["NGRAMKIT_BENCH_DATA"] = str(data)
    whole = {kind: ngramkit.open_artifact(data / kind) for kind in ("datastore", "frozen")}
    steps: dict[str, Any] = {}

    def note(drafter: str, way: str, artifact: Any) -> None:
        size = artifact.manifest.bytes
        found = _steps(drafter, artifact)
        steps.setdefault(drafter, {}).setdefault(way, {})[str(size)] = round(found, 4)
        print(f"{drafter}, {way}, {size / 1e6:.1f} MB: {found:.3f}", flush=True)

    for share in SHARES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            built = whole if share == 1 else _sampled(data / "tokens", share, folder)
            for kind, drafters in DRAFTERS.items():
                for drafter in drafters:
                    note(drafter, SAMPLE, built[kind])
                if share == 1:
                    continue
                pruned = prune(whole[kind], folder / f"p-{kind}", built[kind].manifest.bytes)
                for drafter in drafters:
                    _noted_at(note, drafter, pruned, built[kind].manifest.bytes, steps)
    return steps


DRAFTERS = {"datastore": ("rest", "blend"), "frozen": ("blend, frozen table",)}


def _noted_at(
    note: Callable[[str, str, Any], None], drafter: str, pruned: Any, size: int, steps: Any
) -> None:
    """Under the size that was asked for, so that the two stand in one row."""
    note(drafter, PRUNED, pruned)
    kept = steps[drafter][PRUNED]
    kept[str(size)] = kept.pop(str(pruned.manifest.bytes))


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


def _steps(drafter: str, artifact: Any) -> float:
    """Tokens/step on the record, each turn begun anew."""
    from benchmarks.rest import contexts
    from ngramkit.drafters import load_drafter
    from ngramkit.evaluate.records import Record, Turn
    from ngramkit.evaluate.replay import replay

    turns = [Record(str(i), "all", [Turn(*pair)]) for i, pair in enumerate(contexts())]
    if drafter.endswith("frozen table"):
        make = lambda: load_drafter("blend", frozen_table=artifact)  # noqa: E731
    else:
        make = lambda: load_drafter(drafter, datastores=[artifact])  # noqa: E731
    return replay(drafter, make, turns, BUDGET).total.tokens_per_step


def drawn(figures: Mapping[str, Any]) -> str:
    """The picture, for light pages and dark ones."""
    from benchmarks._picture import page
    from ngramkit.evaluate.svg import picture

    return page(picture(TITLE, "", lambda figure: _draw(figure.add_subplot(), figures), (7.0, 4.0)))


def _draw(axes: Any, figures: Mapping[str, Any]) -> None:
    for number, (drafter, kinds) in enumerate(figures.items()):
        for way, style in ((PRUNED, "-"), (SAMPLE, "--")):
            points = {
                **kinds[way],
                **dict(list(kinds[SAMPLE].items())[-1:]),
            }  # both end at the whole
            sizes = sorted((int(size) / 1e6, step) for size, step in points.items())
            label = f"{drafter}, {way}"
            axes.plot(*zip(*sizes, strict=True), style, marker="o", color=f"C{number}", label=label)
    axes.set_xscale("log")
    axes.set(xlabel="MB of the artifact", ylabel="tokens/step")
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
