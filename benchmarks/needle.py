"""The needle test: is a line still found, by the text's length and the line's depth in it?

    python -m benchmarks.needle [MODEL] [--lengths 1k,2k] [--cache full,specache] [--plot FILE]

A haystack is any text; a needle is a line with a made-up name and number, drawn by a seed; the
question at the end asks for the number. As in gkamradt/LLMTest_NeedleInAHaystack and RULER's single
needles (arXiv:2404.06654), with one difference: the answer is read by teacher forcing, so that its
loss is measured too. Only the full cache gives what the model would give: the others are not
lossless.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import existing
from ngramkit.basics.errors import InputError, NgramkitError, one_line
from ngramkit.corpus.stdlib import stdlib_files
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.base import Verifier
from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.load import load_model
from ngramkit.decode.specache.options import CACHES, SpeCache, cache_of
from ngramkit.decode.specache.prefetching_cache import Hits
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import Drafter, DraftTree, TokenArray
from ngramkit.drafters.registry import NoDraft
from ngramkit.evaluate.plots import require_picture, saved_figure

NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "juniper")
NEEDLE = "\nThe special magic number for {name} is {number}.\n"
QUESTION = "\nWhat is the special magic number for {name}? The special magic number for {name} is"
DIGITS = 7
COLORS = "Blues"  # light to dark: told apart without a sense of colour
CHARACTERS = 16  # of the haystack for each token that is needed, so as not to encode a library


@dataclass(frozen=True)
class Needle:
    prompt: TokenArray  # int32[n]
    answer: TokenArray  # int32[m]
    length: int  # tokens of prompt and answer
    depth: float  # 0: the needle is at the beginning, 1: at the end
    seed: int


@dataclass(frozen=True)
class Reading:
    """A text after a prompt, read token by token: the known token is what the model reads next."""

    losses: np.ndarray[Any, np.dtype[np.float64]]  # float64[n], nats; the first is the prompt's
    exact: bool  # greedy decoding writes the text
    hits: Hits | None  # of fetched pairs, where they were measured
    bytes: Mapping[str, int]  # of the cache, at the end

    @property
    def loss(self) -> float:
        """Nats per token, without the first: the prompt's pass is the same for every cache."""
        return float(self.losses[1:].mean())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.needle", description=__doc__)
    parser.add_argument("model", nargs="?", default="demo", help="a folder, short name or Hub id")
    parser.add_argument(
        "--lengths", type=token_counts, default="1k,2k", help="of the haystacks, tokens"
    )
    parser.add_argument("--depths", type=int, default=5, help="places in each haystack")
    parser.add_argument("--needles", type=int, default=1, help="needles for each place")
    parser.add_argument(
        "--haystack", type=existing, help="default: the standard library's docstrings"
    )
    parser.add_argument("--cache", default=",".join(CACHES), help="which caches to compare")
    for name, default in (("bits", 2), ("group", 64), ("top-k", 64), ("residual", 64)):
        parser.add_argument(f"--kv-{name}", type=int, default=default)
    parser.add_argument("--plot", type=Path, help="a picture: length by depth, a panel per cache")
    arguments = parser.parse_args()
    try:
        measure(arguments)
    except NgramkitError as error:
        parser.error(one_line(error))


def token_counts(text: str) -> list[int]:
    """Return 1k,2k as tokens."""
    try:
        return [int(part.replace("k", "")) << 10 * ("k" in part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of lengths, like 1k,2k") from None


def measure(arguments: argparse.Namespace) -> None:
    """Read every needle with each cache; print what each loses, and draw it."""
    if arguments.plot is not None:
        require_picture(arguments.plot)
    options = SpeCache(
        bits=arguments.kv_bits,
        group=arguments.kv_group,
        top_k=arguments.kv_top_k,
        residual=arguments.kv_residual,
        measure=True,
    )
    caches = {name: cache_of(name, options) for name in arguments.cache.split(",")}
    model = load_model(arguments.model)
    text = (
        docstrings(max(arguments.lengths) * CHARACTERS)
        if arguments.haystack is None
        else arguments.haystack.read_text(encoding="utf-8", errors="replace")
    )
    readings: list[tuple[Needle, dict[str, Reading]]] = []
    asked = arguments.lengths, arguments.depths, arguments.needles
    for needle in needles(model.tokenizer, text, *asked):
        readings.append((needle, read_with_each(model.model, needle.prompt, needle.answer, caches)))
        shown = (f"{name} {read.loss:.2f}" for name, read in readings[-1][1].items())
        print(f"{needle.length:,} tokens, depth {needle.depth:.0%}: {', '.join(shown)}", flush=True)
    print(summary(readings))
    if arguments.plot is not None:
        found = [finding(*each) for each in readings]
        plot(cells(found, ("exact", "loss")), arguments.plot)


def needles(
    tokenizer: TextTokenizer, haystack: str, lengths: Sequence[int], depths: int, seeds: int
) -> Iterator[Needle]:
    """Yield `seeds` needles at `depths` evenly spaced places of a text of each length.

    Raises InputError where the haystack is too short for the longest.
    """
    most = max(lengths)
    hay = tokenizer.encode(haystack[: most * CHARACTERS])
    if len(hay) < most:
        raise InputError(f"the haystack has {len(hay):,} tokens, {most:,} are needed")
    for length in lengths:
        for place in range(depths):
            depth = place / (depths - 1) if depths > 1 else 0.5
            for seed in range(seeds):
                yield _needle(tokenizer, hay, length, depth, seed)


def _needle(
    tokenizer: TextTokenizer, hay: TokenArray, length: int, depth: float, seed: int
) -> Needle:
    random = np.random.default_rng(seed)
    name = NAMES[int(random.integers(len(NAMES)))]
    number = str(random.integers(10 ** (DIGITS - 1), 10**DIGITS))
    line = tokenizer.encode(NEEDLE.format(name=name, number=number))
    question_text = QUESTION.format(name=name)
    question = tokenizer.encode(question_text)
    answer = tokenizer.encode(f"{question_text} {number}")[len(question) :]
    room = length - len(line) - len(question) - len(answer)
    if room < 1:
        raise InputError(f"a needle and its question do not fit into {length} tokens")
    at = round(room * depth)
    prompt = np.concatenate([hay[:at], line, hay[at:room], question]).astype(np.int32)
    return Needle(prompt, answer, length, depth, seed)


def docstrings(characters: int) -> str:
    """Return the first `characters` of the standard library's docstrings, a haystack."""
    texts: list[str] = []
    for _, path in stdlib_files():
        if sum(map(len, texts)) >= characters:
            break
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
    return "\n".join(filter(None, texts))[:characters]


def read_with_each(
    model: Any,
    prompt: TokenArray,
    text: TokenArray,
    caches: Mapping[str, SpeCache | None],
    drafter: Callable[[], Drafter] | None = None,
) -> dict[str, Reading]:
    """Read `text` (int32[n], n > 1) after `prompt` with each cache; None is the full one.

    The prompt is read once, in full precision as every cache reads it. `drafter` makes one that
    guesses the speculative token, where a SpeCache asks for it.
    """
    room = len(prompt) + len(text)
    cache = InPlaceCache(model.config.get_text_config().num_hidden_layers, room)
    full = TreeVerifier(model, room=room, cache=cache)
    with torch.inference_mode():
        logits = full.prefill(prompt)
    readings = {}
    for name, options in caches.items():
        if options is None:
            readings[name] = _read(full, logits, text)
            full.rewind(len(prompt))
            continue
        guesses = None
        if options.speculative == "drafter" and drafter is not None:
            guesses = Guesses(drafter())
            guesses.start(prompt)
        verifier = SpeCacheVerifier(model, options, room=room, guesses=guesses)
        try:
            with torch.inference_mode():
                take_over(verifier, cache)
            readings[name] = _read(verifier, logits, text)
        finally:
            verifier.close()
    return readings


def take_over(verifier: SpeCacheVerifier, cache: InPlaceCache) -> None:
    """Let a new verifier hold the prompt that the model's own `cache` has read."""
    for layer, full in zip(verifier.run.low_layers, cache.in_place, strict=True):
        layer.update(full.keys[:1, :, : cache.length], full.values[:1, :, : cache.length])
    verifier.run.end_pass()


def _read(verifier: Verifier, logits: torch.Tensor, text: TokenArray) -> Reading:
    """Read `text` with `verifier`, whose `logits` follow the prompt."""
    losses, exact = [], True
    special = verifier if isinstance(verifier, SpeCacheVerifier) else None
    guesses = NoDraft() if special is None else special.drafter
    with torch.inference_mode():
        for i, token in enumerate(text.tolist()):
            row = logits[-1].double()
            losses.append(float(row.logsumexp(0) - row[token]))
            exact &= int(row.argmax()) == token
            if i + 1 < len(text):
                guesses.accept(text[i : i + 1])
                guesses.draft(1)
                logits = verifier.verify(token, DraftTree.empty())
                verifier.keep([])
    if special is None:
        return Reading(np.array(losses), exact, None, {})
    hits = special.run.hits if special.run.options.measure else None
    return Reading(np.array(losses), exact, hits, special.run.bytes)


def summary(readings: Sequence[tuple[Needle, Mapping[str, Reading]]]) -> str:
    """Return a table of one line per cache, over all needles."""
    lines = [f"{'':12}{'exact':>10}{'nats/token':>12}{'mass fetched':>14}"]
    for name in readings[0][1]:
        own = [each[name] for _, each in readings]
        exact, loss = np.mean([r.exact for r in own]), np.mean([r.loss for r in own])
        masses = [r.hits.mass_held() for r in own if r.hits is not None]
        mass = f"{np.mean(masses):.1%}" if masses and name == "specache" else ""
        note = "" if name == "full" else "   not lossless"
        lines.append(f"{name:12}{exact:>10.0%}{loss:>12.3f}{mass:>14}{note}")
    return "\n".join(lines)


def finding(needle: Needle, readings: Mapping[str, Reading]) -> dict[str, Any]:
    """Return whether each cache lets a needle be written exactly, and its loss."""
    exact = {name: each.exact for name, each in readings.items()}
    loss = {name: each.loss for name, each in readings.items()}
    return {"length": needle.length, "depth": needle.depth, "exact": exact, "loss": loss}


def cells(found: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> list[dict[str, Any]]:
    """Return, per length and depth, the number of findings and the means of their figures."""
    groups: dict[tuple[int, float], list[Mapping[str, Any]]] = {}
    for each in found:
        groups.setdefault((each["length"], each["depth"]), []).append(each)
    return [
        {"length": length, "depth": depth, "needles": len(group), **means(group, figures)}
        for (length, depth), group in sorted(groups.items())
    ]


def means(found: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> dict[str, Any]:
    """Average each figure, a number or a list for each cache, over findings."""
    return {
        figure: {
            name: np.mean([each[figure][name] for each in found], axis=0).round(4).tolist()
            for name in found[0][figure]
        }
        for figure in figures
    }


def plot(grid: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw `cells`, a panel per cache: the loss, or a tick where all needles are exact."""
    names = list(grid[0]["loss"])
    lengths, depths = (sorted({cell[key] for cell in grid}) for key in ("length", "depth"))
    place = {(cell["length"], cell["depth"]): cell for cell in grid}
    most = max(loss for cell in grid for loss in cell["loss"].values())
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    size = (1.6 + (0.7 + 0.5 * len(lengths)) * columns, 0.6 + (0.9 + 0.36 * len(depths)) * rows)
    with saved_figure(path, size) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        image: Any = None
        for axes, name in zip(panels, names, strict=False):
            loss = [[place[n, d]["loss"][name] for n in lengths] for d in depths]
            image = axes.imshow(loss, aspect="auto", cmap=COLORS, vmin=0, vmax=most)
            for (row, column), value in np.ndenumerate(np.array(loss)):
                exact = place[lengths[column], depths[row]]["exact"][name] == 1
                axes.text(
                    column, row, "\u2713" if exact else f"{value:.1f}", ha="center", va="center",
                    fontsize=10, color="white" if value > 0.65 * most else "black",
                )  # fmt: skip
            axes.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths], rotation=45)
            axes.set_yticks(range(len(depths)), [f"{d:.0%}" for d in depths])
            axes.set_title(name, fontsize=11)
        for axes in panels[len(names) :]:
            axes.set_axis_off()
        figure.supxlabel("length of the text (tokens)", fontsize=10)
        figure.supylabel("depth of the needle in it", fontsize=10)
        figure.colorbar(image, ax=panels, label="loss (nats per token)")
        figure.suptitle("\u2713 the number is written exactly; else its loss", fontsize=11)


if __name__ == "__main__":
    main()
