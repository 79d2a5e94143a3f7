"""A needle in a haystack: is a line remembered, by the text's length and the line's depth in it.

A haystack is any text; a needle is a line with a made-up name and number, drawn by a seed; the
question at the end asks for the number. As in gkamradt/LLMTest_NeedleInAHaystack and RULER's
single needles (arXiv:2404.06654), with one difference: the answer is read by teacher forcing, so
that its loss is known too. Knows tokens and caches; draws nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngramkit.corpus.files import stdlib_files
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.specache.options import SpeCache, cache_of
from ngramkit.drafters.base import TokenArray
from ngramkit.errors import InputError
from ngramkit.evaluate.forced import Forced, forced_each
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Result

NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "juniper")
NEEDLE = "\nThe special magic number for {name} is {number}.\n"
QUESTION = "\nWhat is the special magic number for {name}? The special magic number for {name} is"
DIGITS = 7
CHARACTERS = 16  # of the haystack per token that is needed, so as not to encode a library


@dataclass(frozen=True)
class Needle:
    prompt: TokenArray  # int32[n]
    answer: TokenArray  # int32[m]
    length: int  # tokens of prompt and answer
    depth: float  # 0: the needle is at the beginning, 1: at the end
    seed: int


@dataclass(frozen=True)
class NeedleResult(Result):
    """One needle with one cache."""

    cache: str
    length: int
    depth: float
    seed: int
    exact: bool
    loss: float  # nats per token of the answer, after the first
    mass_held: list[float] | None  # per layer, see ngramkit.decode.specache.cache.Hits
    top_k_found: list[float] | None
    bytes: dict[str, int]


def docstrings(characters: int) -> str:
    """The standard library's docstrings in the order of its files, until there are so many
    characters: a haystack that is at hand."""
    found: list[str] = []
    for _, path in stdlib_files():
        if sum(map(len, found)) >= characters:
            break
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append(ast.get_docstring(node) or "")
    return "\n".join(filter(None, found))[:characters]


def needles(
    tokenizer: TextTokenizer,
    haystack: str,
    lengths: Sequence[int],
    depths: int,
    seeds: int,
) -> Iterator[Needle]:
    """For every length, `depths` evenly spaced places and `seeds` needles.

    Raises InputError where the haystack is too short for the longest.
    """
    most = max(lengths)
    hay = tokenizer.encode(haystack[: most * CHARACTERS])
    if len(hay) < most:
        raise InputError(
            f"the haystack has {len(hay):,} tokens, {most:,} are needed", "give a longer text"
        )
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
    whole = QUESTION.format(name=name)
    question = tokenizer.encode(whole)
    answer = tokenizer.encode(f"{whole} {number}")[len(question) :]
    room = length - len(line) - len(question) - len(answer)
    if room < 1:
        raise InputError(f"a needle and its question do not fit {length} tokens", "ask for longer")
    at = round(room * depth)
    prompt = np.concatenate([hay[:at], line, hay[at:room], question]).astype(np.int32)
    return Needle(prompt, answer, length, depth, seed)


def search_needles(
    model: Any,
    hidden: Sequence[Needle],
    caches: Sequence[str],
    options: SpeCache,
    *,
    reporter: Reporter = SILENT,
) -> Iterator[NeedleResult]:
    """Every needle with every cache in turn; `caches` are names of ngramkit.evaluate.forced."""
    reporter.stage("needles", len(hidden) * len(caches), "needles")
    each = {name: cache_of(name, options) for name in caches}
    for needle in hidden:
        for name, found in forced_each(model, needle.prompt, needle.answer, each).items():
            yield _result(name, needle, found)
            reporter.advance(1)


def _result(name: str, needle: Needle, found: Forced) -> NeedleResult:
    hits = found.hits
    return NeedleResult(
        cache=name,
        length=needle.length,
        depth=needle.depth,
        seed=needle.seed,
        exact=found.exact,
        loss=found.loss,
        mass_held=None if hits is None else hits.mass_held(),
        top_k_found=None if hits is None else hits.top_k_found(),
        bytes=dict(found.bytes),
    )
