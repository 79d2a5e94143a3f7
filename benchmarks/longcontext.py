"""What a SpeCache forgets on a real model: needles, perplexity, hits (docs/specache.md).

    python -m benchmarks.longcontext --data DIR [--work DIR] [--lengths N ...] [PART ...]
    python -m benchmarks.longcontext --publish [--work DIR]

PARTs: needles, multikey, text, guesses, layers; default all. DIR of --data holds essays, news and
RULER's needles as below.
Each finding is a line in WORK/longcontext.jsonl and is not measured again; --publish writes
docs/longcontext.json, which pages and docs/needles.svg are made of. Nothing here depends on the
machine's load: `python -m benchmarks specache` has the times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.needle import Reading
    from ngramkit.decode.specache.options import SpeCache

DOCS = Path(__file__).parents[1] / "docs"
MODEL = "smollm2-135m"
ESSAYS, NEWS = "longcontext/essays/*.txt", "longcontext/multi_news.jsonl"
MULTIKEY = "longcontext/niah_multikey_3.jsonl"
LENGTHS, DEPTHS, SEEDS = (512, 1024, 2048, 4096, 8192), 5, 2
MULTIKEYS = 4
TEXTS, HALF, READ = 4, 2048, 128  # texts, tokens before, tokens whose loss is taken
TOP_K = (16, 64, 256)
COMMON = {"group": 32, "residual": 64}
PARTS = ("needles", "multikey", "text", "guesses", "layers")
FindingList = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longcontext", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("build/real"), metavar="DIR")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    findings = Findings(options.work / "longcontext.jsonl")
    if options.publish:
        publish({part: findings.of(part) for part in PARTS})
        return
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part}")
        for _ in MEASURE[part](findings, options):
            pass


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


def each_cache() -> dict[str, SpeCache | None]:
    from ngramkit.decode.specache.options import SpeCache

    found: dict[str, SpeCache | None] = {"full": None}
    for bits in (2, 1):
        options = SpeCache(bits=bits, top_k=64, measure=True, **COMMON)
        found[f"low-bit, {bits} bit"] = options.without_fetching()
        found[f"specache, {bits} bit"] = options
    return found


def needles(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    from benchmarks.needle import needles as hidden_needles, read_with_each
    from ngramkit.decode.load import load_model

    model = load_model(MODEL)
    hay = "\n".join(path.read_text("utf-8") for path in sorted(options.data.glob(ESSAYS)))
    for needle in hidden_needles(model.tokenizer, hay, options.lengths, DEPTHS, SEEDS):
        key = f"needles {needle.length} {needle.depth} {needle.seed}"
        if key not in findings.found:
            found = read_with_each(model.model, needle.prompt, needle.answer, each_cache())
            findings.add(key, length=needle.length, depth=needle.depth, **_figures(found))
        yield


def multikey(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """Read RULER's hardest needles: one of some eighty lines of a made-up name and its value."""
    from benchmarks.needle import read_with_each
    from ngramkit.decode.load import load_model

    model = load_model(MODEL)
    lines = (options.data / MULTIKEY).read_text("utf-8").splitlines()
    for number, line in enumerate(lines[:MULTIKEYS]):
        if f"multikey {number}" not in findings.found:
            asked = json.loads(line)
            prompt = model.tokenizer.encode(asked["input"])
            whole = model.tokenizer.encode(f"{asked['input']} {asked['outputs'][0]}")
            found = read_with_each(model.model, prompt, whole[len(prompt) :], each_cache())
            findings.add(f"multikey {number}", length=len(prompt), **_figures(found))
        yield


def _figures(found: Mapping[str, Reading]) -> dict[str, Any]:
    return {
        "exact": {name: each.exact for name, each in found.items()},
        "loss": {name: each.loss for name, each in found.items()},
        "held": {name: _held(each) for name, each in found.items() if each.hits},
        "found": {name: _top(each) for name, each in found.items() if each.hits},
    }


def _held(found: Reading) -> list[float]:
    assert found.hits is not None
    return [round(share, 4) for share in found.hits.mass_held()]


def _top(found: Reading) -> list[float]:
    assert found.hits is not None
    return [round(share, 4) for share in found.hits.top_k_found()]


def texts(data: Path, tokenizer: Any) -> list[tuple[str, Any]]:
    """Return news and essays that are long enough: (name, int32[HALF + READ])."""
    found = []
    with (data / NEWS).open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            ids = tokenizer.encode(json.loads(line)["context"])
            if len(ids) >= HALF + READ and len(found) < TEXTS // 2:
                found.append((f"news {number}", ids[: HALF + READ]))
    for path in sorted(data.glob(ESSAYS)):
        ids = tokenizer.encode(path.read_text("utf-8"))
        if len(ids) >= HALF + READ and len(found) < TEXTS:
            found.append((f"essay {path.stem}", ids[: HALF + READ]))
    return found


def text(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """Read the tokens after a text's first 2,048."""
    from ngramkit.decode.specache.options import SpeCache

    caches: dict[str, SpeCache | None] = {"full": None}
    for bits in (2, 1):
        for top_k in (0, *TOP_K):
            caches[f"{bits} bit, k {top_k}"] = SpeCache(bits=bits, top_k=top_k, **COMMON)
    yield from _read(findings, options, "text", caches)


def guesses(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """Compare whose guess at the next token says what to fetch: the model's, or a drafter's."""
    from ngramkit.decode.specache.options import SpeCache

    caches: dict[str, SpeCache | None] = {
        f"{bits} bit, {who}": SpeCache(bits=bits, top_k=64, measure=True, speculative=who, **COMMON)
        for bits in (2, 1)
        for who in ("model", "drafter")
    }
    yield from _read(findings, options, "guesses", caches)


def layers(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """Compare as many pairs given to all layers alike, more to the first, or to the last."""
    from ngramkit.decode.specache.options import SpeCache

    third = [96] * 10 + [64] * 10 + [32] * 10
    ways = {"alike": [64] * 30, "more to the first": third, "more to the last": third[::-1]}
    caches: dict[str, SpeCache | None] = {
        f"{bits} bit, {way}": SpeCache(bits=bits, top_k=tuple(k), measure=True, **COMMON)
        for bits in (2, 1)
        for way, k in ways.items()
    }
    yield from _read(findings, options, "layers", caches)


def _read(
    findings: Findings,
    options: argparse.Namespace,
    part: str,
    caches: Mapping[str, SpeCache | None],
) -> Iterator[None]:
    from benchmarks.needle import read_with_each
    from ngramkit.decode.load import load_model
    from ngramkit.drafters.registry import load_drafter

    model = load_model(MODEL)
    for name, ids in texts(options.data, model.tokenizer):
        if f"{part} {name}" not in findings.found:
            found = read_with_each(
                model.model,
                ids[:HALF],
                ids[HALF:],
                caches,
                lambda: load_drafter("blend", tokenizer=model.tokenizer.record),
            )
            findings.add(f"{part} {name}", **_figures(found))
        yield


MEASURE = {
    "needles": needles, "multikey": multikey, "text": text, "guesses": guesses, "layers": layers,
}  # fmt: skip


# The published figures, docs/longcontext.json, and the tables of docs/specache.md.


def publish(found: Mapping[str, FindingList]) -> None:
    """Write docs/longcontext.json, and docs/needles.svg made of it."""
    from benchmarks.needle import plot

    figures = {part: _mean(each) for part, each in found.items() if part != "needles"}
    body = {"needles": _cells(found["needles"]), **figures}
    (DOCS / "longcontext.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    if body["needles"]:
        plot(body["needles"], DOCS / "needles.svg")


def read_figures() -> dict[str, Any]:
    """Read the published figures."""
    found: dict[str, Any] = json.loads((DOCS / "longcontext.json").read_text(encoding="utf-8"))
    return found


def needles_table(figures: Mapping[str, Any]) -> str:
    """Return Markdown: per cache, needles written exactly and the loss, by length."""
    cells = figures["needles"]
    lengths = sorted({cell["length"] for cell in cells})
    head = ["cache", *(f"{length:,} tokens" for length in lengths)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in cells[0]["loss"]:
        shown = []
        for length in lengths:
            own = [cell for cell in cells if cell["length"] == length]
            count = sum(cell["needles"] for cell in own)
            exact = round(sum(cell["exact"][name] * cell["needles"] for cell in own))
            loss = np.average([c["loss"][name] for c in own], weights=[c["needles"] for c in own])
            shown.append(f"{exact} of {count}, {loss:.2f} nats")
        rows.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(rows)


def multikey_table(figures: Mapping[str, Any]) -> str:
    """Return Markdown: per cache, values written exactly and the loss."""
    found = figures["multikey"]
    rows = ["| cache | values exact | loss |", "|---|---|---|"]
    for name, loss in found["loss"].items():
        exact = round(found["exact"][name] * found["texts"])
        rows.append(f"| {name} | {exact} of {found['texts']} | {loss:.2f} nats |")
    return "\n".join(rows)


def text_table(figures: Mapping[str, Any]) -> str:
    """Return Markdown: perplexity by bits and pairs fetched."""
    loss = figures["text"]["loss"]
    counts = sorted({int(name.split(" k ")[1]) for name in loss if " k " in name})
    head = ["cache", *(f"k = {k}" if k else "low-bit alone" for k in counts)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for bits in (2, 1):
        shown = [f"{np.exp(loss[f'{bits} bit, k {k}']):.2f}" for k in counts]
        rows.append(f"| {bits} bit | {' | '.join(shown)} |")
    rows.append(f"| full | {np.exp(loss['full']):.2f} |{' |' * (len(counts) - 1)}")
    return "\n".join(rows)


def ways_table(figures: Mapping[str, Any], part: str) -> str:
    """Return Markdown: per way of fetching, the perplexity and the attention that it held."""
    found = figures[part]
    rows = [
        "| cache | perplexity | attention mass fetched | true top-k found |",
        "|---|---|---|---|",
    ]
    for name, loss in found["loss"].items():
        held, top = np.mean(found["held"][name]), np.mean(found["found"][name])
        rows.append(f"| {name} | {np.exp(loss):.2f} | {held:.1%} | {top:.1%} |")
    return "\n".join(rows)


def hits_table(figures: Mapping[str, Any]) -> str:
    """Return Markdown: the attention mass that fetched pairs held, by layer, over all needles."""
    cells = figures["needles"]
    names = list(cells[0]["held"])
    mean = {name: np.mean([cell["held"][name] for cell in cells], axis=0) for name in names}
    layers = range(0, len(mean[names[0]]), 3)
    head = ["layer", *map(str, layers)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in names:
        rows.append(f"| {name} | {' | '.join(f'{mean[name][i]:.0%}' for i in layers)} |")
    return "\n".join(rows)


def _cells(found: FindingList) -> FindingList:
    """Return, per length and depth, the share of needles written exactly and the loss, by cache."""
    cells = []
    for length, depth in sorted({(each["length"], each["depth"]) for each in found}):
        own = [e for e in found if (e["length"], e["depth"]) == (length, depth)]
        names = own[0]["exact"]
        cells.append(
            {
                "length": length,
                "depth": depth,
                "needles": len(own),
                "exact": {n: float(np.mean([e["exact"][n] for e in own])) for n in names},
                "loss": {n: round(float(np.mean([e["loss"][n] for e in own])), 4) for n in names},
                "held": {
                    n: np.mean([e["held"][n] for e in own], axis=0).round(4).tolist()
                    for n in own[0]["held"]
                },
            }
        )
    return cells


def _mean(found: FindingList) -> dict[str, Any]:
    """Average the loss over texts, and per layer the shares of mass and of top-k."""
    if not found:
        return {}
    names = found[0]["loss"]
    told = {"exact": _exact(found)} if all("exact" in each for each in found) else {}
    return {
        "texts": len(found),
        **told,
        "loss": {n: round(float(np.mean([each["loss"][n] for each in found])), 4) for n in names},
        **{
            kind: {
                n: np.mean([each[kind][n] for each in found], axis=0).round(4).tolist()
                for n in found[0][kind]
            }
            for kind in ("held", "found")
        },
    }


def _exact(found: FindingList) -> dict[str, float]:
    return {n: float(np.mean([each["exact"][n] for each in found])) for n in found[0]["exact"]}


def _or_missing(part: str, table: Callable[[Mapping[str, Any]], str]) -> Callable[..., str]:
    """Wrap `table`: add the number of texts, or say that nothing was measured yet."""
    missing = f"Not measured yet: `python -m benchmarks.longcontext {part}`."

    def page(figures: Mapping[str, Any]) -> str:
        if not figures.get(part):
            return missing
        count = figures[part].get("texts") if part != "needles" else None
        over = f"\n\nOver {count} text{'s' if count > 1 else ''}." if count else ""
        return table(figures) + over

    return page


TABLES = {
    "needles": _or_missing("needles", needles_table),
    "hits": _or_missing("needles", hits_table),
    "multikey": _or_missing("multikey", multikey_table),
    "text": _or_missing("text", text_table),
    "guesses": _or_missing("guesses", lambda figures: ways_table(figures, "guesses")),
    "layers": _or_missing("layers", lambda figures: ways_table(figures, "layers")),
}


if __name__ == "__main__":
    main()
