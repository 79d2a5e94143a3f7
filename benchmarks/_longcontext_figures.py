"""What `benchmarks._longcontext` found, as docs/longcontext.json, tables and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._picture import needles_picture

DOCS = Path(__file__).parents[1] / "docs"
Found = list[dict[str, Any]]


def publish(found: Mapping[str, Found]) -> None:
    """Writes docs/longcontext.json, and docs/needles.svg made of it."""
    figures = {part: _mean(each) for part, each in found.items() if part != "needles"}
    body = {"needles": _cells(found["needles"]), **figures}
    (DOCS / "longcontext.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    if body["needles"]:
        (DOCS / "needles.svg").write_text(needles_picture(body["needles"]), encoding="utf-8")


def read_figures() -> dict[str, Any]:
    """As published."""
    found: dict[str, Any] = json.loads((DOCS / "longcontext.json").read_text(encoding="utf-8"))
    return found


def needles_table(figures: Mapping[str, Any]) -> str:
    """Markdown: per cache, needles written exactly and the loss, by length."""
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
    """Markdown: per cache, values written exactly and the loss."""
    found = figures["multikey"]
    rows = ["| cache | values exact | loss |", "|---|---|---|"]
    for name, loss in found["loss"].items():
        exact = round(found["exact"][name] * found["texts"])
        rows.append(f"| {name} | {exact} of {found['texts']} | {loss:.2f} nats |")
    return "\n".join(rows)


def text_table(figures: Mapping[str, Any]) -> str:
    """Markdown: perplexity by bits and pairs fetched."""
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
    """Markdown: per way of fetching, the perplexity, and what of the attention it held."""
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
    """Markdown: the attention mass that the fetched pairs held, by layer, over all needles."""
    cells = figures["needles"]
    names = list(cells[0]["held"])
    mean = {name: np.mean([cell["held"][name] for cell in cells], axis=0) for name in names}
    layers = range(0, len(mean[names[0]]), 3)
    head = ["layer", *map(str, layers)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in names:
        rows.append(f"| {name} | {' | '.join(f'{mean[name][i]:.0%}' for i in layers)} |")
    return "\n".join(rows)


def _cells(found: Found) -> Found:
    """Per length and depth: the share of needles written exactly and the loss, by cache."""
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


def _mean(found: Found) -> dict[str, Any]:
    """Over texts: the mean loss, and per layer the shares of mass and of top-k that were there."""
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


def _exact(found: Found) -> dict[str, float]:
    return {n: float(np.mean([each["exact"][n] for each in found])) for n in found[0]["exact"]}


def _known(part: str, table: Callable[[Mapping[str, Any]], str]) -> Callable[..., str]:
    """`table` and over how many texts, or a line that there is nothing to put into it yet."""
    missing = f"Not measured yet: `python -m benchmarks._longcontext {part}`."

    def page(figures: Mapping[str, Any]) -> str:
        if not figures.get(part):
            return missing
        count = figures[part].get("texts") if part != "needles" else None
        over = f"\n\nOver {count} text{'s' if count > 1 else ''}." if count else ""
        return table(figures) + over

    return page


TABLES = {
    "needles": _known("needles", needles_table),
    "hits": _known("needles", hits_table),
    "multikey": _known("multikey", multikey_table),
    "text": _known("text", text_table),
    "guesses": _known("guesses", lambda figures: ways_table(figures, "guesses")),
    "layers": _known("layers", lambda figures: ways_table(figures, "layers")),
}
