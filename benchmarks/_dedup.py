"""What `--dedup` leaves out of a corpus, and what it does to tokens/step at equal bytes.

    python -m benchmarks._dedup --corpus FILES --column NAME --model MODEL --data DIR --out DIR

--corpus is tokenised as it is and with each way of --dedup (minhash needs ngramkit[dedup]). Of
each, documents are drawn at random until they fill a datastore of the same size: that of the
smallest, and a sixteenth of it. Judged on the recorded answers `records.npz` in DIR of --data (see
benchmarks.rest), 64 nodes. Figures go to --out; the table is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

WAYS = ("none", "exact", "minhash")
SHARES = (1, 16)  # of the smallest corpus
DRAFTERS = ("rest", "blend")
BUDGET = 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._dedup", description=__doc__)
    for name in ("corpus", "column", "model"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("data", "out"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", required=True)
    options = parser.parse_args()
    os.environ["NGRAMKIT_BENCH_DATA"] = str(options.data)
    with tempfile.TemporaryDirectory() as name:
        figures = measured(options, Path(name))
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "dedup.json").write_text(text, encoding="utf-8")
    print(table(figures))


def table(figures: Mapping[str, Any]) -> str:
    """Markdown, a row for each way."""
    whole = figures["none"]
    sizes = list(whole["steps"])
    heads = [f"`{name}` at {int(size) / 1e6:,.0f} MB" for size in sizes for name in DRAFTERS]
    rows = [f"| --dedup | documents | tokens | {' | '.join(heads)} |", "|---" * 7 + "|"]
    for way, found in figures.items():
        less = [f"{found[k]:,} ({found[k] / whole[k] - 1:+.1%})" for k in ("documents", "tokens")]
        steps = [f"{found['steps'][size][name]:.3f}" for size in sizes for name in DRAFTERS]
        rows.append(f"| {way} | {' | '.join([*less, *steps])} |")
    return "\n".join(rows)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from ngramkit.builders.tokens import tokenize
    from ngramkit.corpus.deduplication import Sifted
    from ngramkit.corpus.open import open_corpus

    stores = {}
    for way in WAYS:
        corpus: Any = open_corpus(options.corpus, column=options.column)
        if way != "none":
            corpus = Sifted(corpus, way)
        stores[way] = tokenize(corpus, options.model, folder / way)
        print(way, stores[way].manifest.counts, flush=True)
    figures: dict[str, Any] = {way: {**s.manifest.counts, "steps": {}} for way, s in stores.items()}
    least = min(s.manifest.counts["tokens"] for s in stores.values())
    for share in SHARES:
        size = 0
        for way, store in stores.items():
            built = _drawn(store, least // share, folder / f"{way}-{share}")
            size = size or built.manifest.bytes  # within a document of each other
            steps = {name: round(_steps(name, built), 4) for name in DRAFTERS}
            figures[way]["steps"][str(size)] = steps
            print(way, built.manifest.bytes, steps, flush=True)
    return figures


def _drawn(store: Any, tokens: int, folder: Path) -> Any:
    """A datastore of documents drawn at random until there are so many `tokens`."""
    from ngramkit.builders.datastore import build_datastore
    from ngramkit.formats.tokens import TokenStore
    from ngramkit.formats.writer import ArtifactWriter

    documents = list(store.documents())
    order = np.random.default_rng(0).permutation(len(documents))
    ends = np.cumsum([len(documents[i]) for i in order])
    drawn = np.sort(order[: int(np.searchsorted(ends, tokens)) + 1])
    held = [documents[i] for i in drawn]
    offsets = np.cumsum([0, *map(len, held)]).astype(np.uint64)
    with ArtifactWriter(folder / "tokens", "tokens", {"drawn": tokens}) as writer:
        arrays = {"tokens": np.concatenate(held), "documents": offsets}
        writer.write("shard-00000.safetensors", arrays)
        counts = {"documents": len(held), "tokens": int(offsets[-1])}
        writer.commit(store.tokenizer, parameters={}, corpus={"id": "drawn"}, counts=counts)
    return build_datastore(
        TokenStore.open(folder / "tokens"), folder / "datastore", shard_tokens=1 << 25
    )


def _steps(drafter: str, datastore: Any) -> float:
    """Tokens/step on the record, each turn begun anew."""
    from benchmarks.rest import contexts
    from ngramkit.drafters.registry import load_drafter
    from ngramkit.evaluate.records import Record, Turn
    from ngramkit.evaluate.simulation import replay_drafter

    turns = [Record(str(i), "all", [Turn(*pair)]) for i, pair in enumerate(contexts())]
    make = lambda: load_drafter(drafter, datastores=[datastore])  # noqa: E731
    return replay_drafter(drafter, make, turns, BUDGET).total.tokens_per_step


if __name__ == "__main__":
    main()
