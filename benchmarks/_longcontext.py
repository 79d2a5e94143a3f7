"""What a SpeCache forgets on a real model: needles, perplexity, hits (docs/specache.md).

    python -m benchmarks._longcontext --data DIR [--work DIR] [--lengths N ...] [PART ...]
    python -m benchmarks._longcontext --publish [--work DIR]

PARTs: needles, multikey, text, guesses, layers; default all. DIR of --data holds essays, news and
RULER's needles as below.
Each finding is a line in WORK/longcontext.jsonl and is not measured again; --publish writes
docs/longcontext.json, which pages and docs/needles.svg are made of. Nothing here depends on the
machine's load: `python -m benchmarks specache` has the times.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._longcontext_figures import publish

if TYPE_CHECKING:
    from ngramkit.decode.specache.options import SpeCache
    from ngramkit.evaluate.forced import Forced

MODEL = "smollm2-135m"
ESSAYS, NEWS = "longcontext/essays/*.txt", "longcontext/multi_news.jsonl"
MULTIKEY = "longcontext/niah_multikey_3.jsonl"
LENGTHS, DEPTHS, SEEDS = (512, 1024, 2048, 4096, 8192), 5, 2
MULTIKEYS = 4
TEXTS, HALF, READ = 4, 2048, 128  # texts, tokens before, tokens whose loss is taken
TOP_K = (16, 64, 256)
COMMON = {"group": 32, "residual": 64}
PARTS = ("needles", "multikey", "text", "guesses", "layers")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._longcontext", description=__doc__)
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
    from ngramkit.decode.load import load_model
    from ngramkit.evaluate.forced import forced_each
    from ngramkit.evaluate.needle import needles as hide

    model = load_model(MODEL)
    hay = "\n".join(path.read_text("utf-8") for path in sorted(options.data.glob(ESSAYS)))
    for needle in hide(model.tokenizer, hay, options.lengths, DEPTHS, SEEDS):
        key = f"needles {needle.length} {needle.depth} {needle.seed}"
        if key not in findings.found:
            found = forced_each(model.model, needle.prompt, needle.answer, each_cache())
            findings.add(key, length=needle.length, depth=needle.depth, **_told(found))
        yield


def multikey(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """RULER's hardest needles: one of some eighty lines of a made-up name and its value."""
    from ngramkit.decode.load import load_model
    from ngramkit.evaluate.forced import forced_each

    model = load_model(MODEL)
    lines = (options.data / MULTIKEY).read_text("utf-8").splitlines()
    for number, line in enumerate(lines[:MULTIKEYS]):
        if f"multikey {number}" not in findings.found:
            asked = json.loads(line)
            prompt = model.tokenizer.encode(asked["input"])
            whole = model.tokenizer.encode(f"{asked['input']} {asked['outputs'][0]}")
            found = forced_each(model.model, prompt, whole[len(prompt) :], each_cache())
            findings.add(f"multikey {number}", length=len(prompt), **_told(found))
        yield


def _told(found: Mapping[str, Forced]) -> dict[str, Any]:
    return {
        "exact": {name: each.exact for name, each in found.items()},
        "loss": {name: each.loss for name, each in found.items()},
        "held": {name: _held(each) for name, each in found.items() if each.hits},
        "found": {name: _top(each) for name, each in found.items() if each.hits},
    }


def _held(found: Forced) -> list[float]:
    assert found.hits is not None
    return [round(share, 4) for share in found.hits.mass_held()]


def _top(found: Forced) -> list[float]:
    assert found.hits is not None
    return [round(share, 4) for share in found.hits.top_k_found()]


def texts(data: Path, tokenizer: Any) -> list[tuple[str, Any]]:
    """News and essays that are long enough: (name, int32[HALF + READ])."""
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
    """Of the tokens after a text's first 2,048."""
    from ngramkit.decode.specache.options import SpeCache

    caches: dict[str, SpeCache | None] = {"full": None}
    for bits in (2, 1):
        for top_k in (0, *TOP_K):
            caches[f"{bits} bit, k {top_k}"] = SpeCache(bits=bits, top_k=top_k, **COMMON)
    yield from _read(findings, options, "text", caches)


def guesses(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """Whose guess at the next token says what to fetch: the model's own, or a drafter's."""
    from ngramkit.decode.specache.options import SpeCache

    caches: dict[str, SpeCache | None] = {
        f"{bits} bit, {who}": SpeCache(bits=bits, top_k=64, measure=True, speculative=who, **COMMON)
        for bits in (2, 1)
        for who in ("model", "drafter")
    }
    yield from _read(findings, options, "guesses", caches)


def layers(findings: Findings, options: argparse.Namespace) -> Iterator[None]:
    """As many pairs in all, given to all layers alike, or more to the first, or to the last."""
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
    from ngramkit.decode.load import load_model
    from ngramkit.drafters.registry import load_drafter
    from ngramkit.evaluate.forced import forced_each

    model = load_model(MODEL)
    for name, ids in texts(options.data, model.tokenizer):
        if f"{part} {name}" not in findings.found:
            found = forced_each(
                model.model,
                ids[:HALF],
                ids[HALF:],
                caches,
                lambda: load_drafter("blend", tokenizer=model.tokenizer.record),
            )
            findings.add(f"{part} {name}", **_told(found))
        yield


MEASURE = {
    "needles": needles, "multikey": multikey, "text": text, "guesses": guesses, "layers": layers,
}  # fmt: skip


if __name__ == "__main__":
    main()
