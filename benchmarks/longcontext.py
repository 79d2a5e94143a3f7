"""Measure what a SpeCache forgets on a real model: needles, perplexity, hits (docs/specache.md).

    python -m benchmarks.longcontext --data DIR [--work DIR] [--lengths N ...] [PART ...]
    python -m benchmarks.longcontext --publish [--work DIR]

PARTs: needles, multikey, text, guesses, layers; default all. DIR of --data holds essays, news and
RULER's needles as below.
Each finding is a line in WORK/longcontext.jsonl and is not measured again. --publish writes
benchmarks/figures/longcontext.json, from which pages and docs/needles.svg are made. Nothing here
depends on the machine's load; `python -m benchmarks specache` measures times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import existing, markdown, table_line
from benchmarks._figures import DOCS, read_figures, write_figures

if TYPE_CHECKING:
    from benchmarks.needle import Reading
    from ngramkit.decode.specache.options import SpeCache

COMMAND = "python -m benchmarks.longcontext --publish"
MODEL = "smollm2-135m"
ESSAYS, NEWS = "longcontext/essays/*.txt", "longcontext/multi_news.jsonl"
MULTIKEY = "longcontext/niah_multikey_3.jsonl"
LENGTHS, DEPTHS, SEEDS = (512, 1024, 2048, 4096, 8192), 5, 2
MULTIKEYS = 4
TEXTS, HALF, READ = 4, 2048, 128  # texts, tokens before, tokens whose loss is taken
TOP_K = (16, 64, 256)
COMMON: dict[str, Any] = {"group": 32, "residual": 64}
PARTS = ("needles", "multikey", "text", "guesses", "layers")
FindingList = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longcontext", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--data", type=existing, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/real"), metavar="DIR")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if options.data is None and not options.publish:
        parser.error("give --data DIR, or --publish")
    findings = Findings(options.work / "longcontext.jsonl")
    if options.publish:
        publish({part: findings.of(part) for part in PARTS})
        return
    for part in options.parts or PARTS:
        measure(part, findings, options)


def measure(part: str, findings: Findings, options: argparse.Namespace) -> None:
    """Read every text of a part with every cache, unless that is a finding already."""
    from benchmarks.needle import read_with_each
    from ngramkit.decode.load import load_model
    from ngramkit.drafters.create import load_drafter

    model = load_model(MODEL)
    caches = caches_of(part)
    texts_of: Callable[..., Iterable[Text]] = TEXTS_OF.get(part, texts)
    for text in texts_of(options, model.tokenizer):
        key = f"{part} {text.name}"
        if key not in findings.found:
            readings = read_with_each(
                model.model,
                text.prompt,
                text.rest,
                caches,
                lambda: load_drafter("blend", tokenizer=model.tokenizer.record),
            )
            findings.add(key, **text.facts, **_figures(readings))


class Findings:
    """One JSON object a line, each with a key of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.found: dict[str, dict[str, Any]] = {}
        for line in lines:
            body = json.loads(line)
            self.found[body["key"]] = body

    def add(self, key: str, **body: Any) -> None:
        self.found[key] = {"key": key, **body}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.found[key]) + "\n")
        losses = {name: round(loss, 3) for name, loss in body["loss"].items()}
        print(key, losses, flush=True)

    def of(self, part: str) -> list[dict[str, Any]]:
        return [body for key, body in self.found.items() if key.startswith(f"{part} ")]


class Text(NamedTuple):
    """A text that is read: `rest` token by token, int32 each."""

    name: str
    prompt: Any
    rest: Any
    facts: dict[str, Any] = {}  # noqa: RUF012 (never changed)


def needles(options: argparse.Namespace, tokenizer: Any) -> Iterator[Text]:
    from benchmarks.needle import needles as hidden_needles

    hay = "\n".join(path.read_text("utf-8") for path in sorted(options.data.glob(ESSAYS)))
    for needle in hidden_needles(tokenizer, hay, options.lengths, DEPTHS, SEEDS):
        facts = {"length": needle.length, "depth": needle.depth}
        name = f"{needle.length} {needle.depth} {needle.seed}"
        yield Text(name, needle.prompt, needle.answer, facts)


def multikey(options: argparse.Namespace, tokenizer: Any) -> Iterator[Text]:
    """Yield RULER's hardest needles: one of some eighty lines of a made-up name and its value."""
    lines = (options.data / MULTIKEY).read_text("utf-8").splitlines()
    for number, line in enumerate(lines[:MULTIKEYS]):
        asked = json.loads(line)
        prompt = tokenizer.encode(asked["input"])
        whole = tokenizer.encode(f"{asked['input']} {asked['outputs'][0]}")
        yield Text(str(number), prompt, whole[len(prompt) :], {"length": len(prompt)})


def texts(options: argparse.Namespace, tokenizer: Any) -> list[Text]:
    """Return news and essays that are long enough; of each its first HALF tokens and READ more."""
    found: list[Text] = []

    def add(name: str, text: str, most: int) -> None:
        ids = tokenizer.encode(text)
        if len(ids) >= HALF + READ and len(found) < most:
            found.append(Text(name, ids[:HALF], ids[HALF : HALF + READ]))

    with (options.data / NEWS).open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            add(f"news {number}", json.loads(line)["context"], TEXTS // 2)
    for path in sorted(options.data.glob(ESSAYS)):
        add(f"essay {path.stem}", path.read_text("utf-8"), TEXTS)
    return found


TEXTS_OF: dict[str, Callable[..., Iterable[Text]]] = {"needles": needles, "multikey": multikey}


def caches_of(part: str) -> dict[str, SpeCache | None]:
    """Return the caches that a part compares, by name; None is the full one.

    text: pairs fetched. guesses: whose guess at the next token says what to fetch. layers: as many
    pairs given to all layers alike, more to the first, or to the last.
    """
    from ngramkit.decode.specache.options import SpeCache

    third = [96] * 10 + [64] * 10 + [32] * 10
    ways = {"alike": [64] * 30, "more to the first": third, "more to the last": third[::-1]}
    caches: dict[str, SpeCache | None] = {}
    if part not in ("guesses", "layers"):
        caches["full"] = None
    for bits in (2, 1):
        if part == "text":
            for k in (0, *TOP_K):
                caches[f"{bits} bit, k {k}"] = SpeCache(bits=bits, top_k=k, **COMMON)
            continue
        fetching = SpeCache(bits=bits, top_k=64, measure=True, **COMMON)
        if part == "guesses":
            for who in ("model", "drafter"):
                caches[f"{bits} bit, {who}"] = replace(fetching, speculative=who)
        elif part == "layers":
            for way, by_layer in ways.items():
                caches[f"{bits} bit, {way}"] = replace(fetching, top_k=tuple(by_layer))
        else:
            caches[f"low-bit, {bits} bit"] = fetching.without_fetching()
            caches[f"specache, {bits} bit"] = fetching
    return caches


def _figures(readings: Mapping[str, Reading]) -> dict[str, Any]:
    hits = {name: each.hits for name, each in readings.items() if each.hits is not None}
    return {
        "exact": {name: each.exact for name, each in readings.items()},
        "loss": {name: each.loss for name, each in readings.items()},
        "held": {name: [round(x, 4) for x in each.mass_held()] for name, each in hits.items()},
        "found": {name: [round(x, 4) for x in each.top_k_found()] for name, each in hits.items()},
    }


# The published figures and the tables of docs/specache.md.


def publish(found: Mapping[str, FindingList]) -> None:
    """Write the figures, and docs/needles.svg."""
    from benchmarks.needle import cells, means, plot

    averaged = ("exact", "loss", "held", "found")
    figures = {
        part: {"texts": len(each), **means(each, averaged)} if each else {}
        for part, each in found.items()
        if part != "needles"
    }
    needles = cells(found["needles"], ("exact", "loss", "held"))
    write_figures("longcontext", COMMAND, {"needles": needles, **figures})
    if needles:
        plot(needles, DOCS / "needles.svg")


def table(part: str) -> str:
    """Return what was published of a part as Markdown, with the number of its texts."""
    figures, of_part = read_figures("longcontext"), {"hits": "needles"}.get(part, part)
    if not figures.get(of_part):
        return f"Not measured yet: `python -m benchmarks.longcontext {of_part}`."
    count = figures[of_part].get("texts") if of_part != "needles" else None
    over = f"\n\nOver {count} text{'s' if count > 1 else ''}." if count else ""
    return TABLES[part](figures[of_part]) + over


def needles_table(cells: FindingList) -> str:
    """Return per cache needles written exactly and the loss, by length."""
    lengths = sorted({cell["length"] for cell in cells})
    rows = []
    for name in cells[0]["loss"]:
        shown = []
        for length in lengths:
            own = [cell for cell in cells if cell["length"] == length]
            count = sum(cell["needles"] for cell in own)
            exact = round(sum(cell["exact"][name] * cell["needles"] for cell in own))
            loss = np.average([c["loss"][name] for c in own], weights=[c["needles"] for c in own])
            shown.append(f"{exact} of {count}, {loss:.2f} nats")
        rows.append([name, *shown])
    return markdown(["cache", *(f"{length:,} tokens" for length in lengths)], rows)


def multikey_table(figures: Mapping[str, Any]) -> str:
    """Return per cache values written exactly and the loss."""
    count = figures["texts"]
    rows = [
        [name, f"{round(figures['exact'][name] * count)} of {count}", f"{loss:.2f} nats"]
        for name, loss in figures["loss"].items()
    ]
    return markdown(["cache", "values exact", "loss"], rows)


def text_table(figures: Mapping[str, Any]) -> str:
    """Return perplexity by bits and pairs fetched."""
    loss = figures["loss"]
    counts = sorted({int(name.split(" k ")[1]) for name in loss if " k " in name})
    rows = [
        [f"{bits} bit", *(f"{np.exp(loss[f'{bits} bit, k {k}']):.2f}" for k in counts)]
        for bits in (2, 1)
    ]
    head = ["cache", *(f"k = {k}" if k else "low-bit alone" for k in counts)]
    full = table_line(["full", f"{np.exp(loss['full']):.2f}"]) + " |" * (len(counts) - 1)
    return f"{markdown(head, rows)}\n{full}"


def ways_table(figures: Mapping[str, Any]) -> str:
    """Return per way of fetching the perplexity and the attention that it held."""
    rows = []
    for name, loss in figures["loss"].items():
        held, top = np.mean(figures["held"][name]), np.mean(figures["found"][name])
        rows.append([name, f"{np.exp(loss):.2f}", f"{held:.1%}", f"{top:.1%}"])
    return markdown(["cache", "perplexity", "attention mass fetched", "true top-k found"], rows)


def hits_table(cells: FindingList) -> str:
    """Return the attention mass that fetched pairs held, by layer, over all needles."""
    names = list(cells[0]["held"])
    mean = {name: np.mean([cell["held"][name] for cell in cells], axis=0) for name in names}
    layers = range(0, len(mean[names[0]]), 3)
    return markdown(
        ["layer", *layers], [[name, *(f"{mean[name][i]:.0%}" for i in layers)] for name in names]
    )


TABLES: dict[str, Callable[[Any], str]] = {
    "needles": needles_table,
    "hits": hits_table,
    "multikey": multikey_table,
    "text": text_table,
    "guesses": ways_table,
    "layers": ways_table,
}


if __name__ == "__main__":
    main()
