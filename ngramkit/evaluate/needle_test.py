"""`ngramkit.needle_test`: which caches find a needle, by length of the text and depth in it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.session import load
from ngramkit.decode.specache.options import CACHES, SpeCache, cache_of, require_fit
from ngramkit.errors import InputError, UsageError
from ngramkit.evaluate.needle import CHARACTERS, NeedleResult, docstrings, needles, search_needles
from ngramkit.progress import SILENT, Reporter
from ngramkit.results import Tabular
from ngramkit.untrusted import open_stream

LENGTHS = (1024, 2048)


@dataclass(frozen=True, repr=False)
class NeedleResults(Tabular):
    """One result per needle and cache. Only `full` gives what the model would give: the others
    are not lossless."""

    results: list[NeedleResult]
    model: str
    options: SpeCache
    haystack: str

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per needle and cache."""
        for result in self.results:
            yield {**result.to_dict(), "lossless": result.cache == "full"}

    def summary(self) -> list[dict[str, Any]]:
        """Per cache: needles, the share written exactly, the mean loss in nats per token, and the
        attention mass that was fetched where it was measured."""
        found = []
        for cache in dict.fromkeys(result.cache for result in self.results):
            own = [result for result in self.results if result.cache == cache]
            held = [result.mass_held for result in own if result.mass_held is not None]
            found.append(
                {
                    "cache": cache,
                    "needles": len(own),
                    "exact": float(np.mean([result.exact for result in own])),
                    "loss": float(np.mean([result.loss for result in own])),
                    "mass_held": float(np.mean(held)) if held else None,
                    "lossless": cache == "full",
                }
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit bench --task needle --json` prints them."""
        options = self.options
        return {
            "task": "needle",
            "model": self.model,
            "haystack": self.haystack,
            "bits": options.bits,
            "group": options.group,
            "top_k": options.top_k,
            "residual": options.residual,
            "caches": self.summary(),
            "needles": list(self.rows()),
        }

    def plot(self, path: Path) -> None:
        """Length by depth, a panel per cache."""
        from ngramkit.evaluate.needle_plot import plot_needles

        plot_needles(self.results, path)

    def __repr__(self) -> str:
        shares = ", ".join(f"{row['cache']} {row['exact']:.0%}" for row in self.summary())
        return f"<NeedleResults of {self.model}: {shares}>"


def needle_test(
    model: str | LanguageModel | None = None,
    *,
    lengths: Sequence[int] = LENGTHS,
    depths: int = 5,
    seeds: int = 1,
    caches: Sequence[str] = CACHES,
    options: SpeCache = SpeCache(measure=True),  # noqa: B008 (frozen)
    haystack: Path | None = None,
    passes: DecodeOptions = DecodeOptions(),  # noqa: B008 (frozen)
    reporter: Reporter = SILENT,
) -> NeedleResults:
    """Hides `seeds` needles at `depths` places of texts of `lengths` tokens, and asks for each.

    `caches`: of full, low-bit and specache, the last two as `options` say. `haystack`: a text file;
    None: the standard library's docstrings. Raises UsageError for what makes no sense, InputError
    where the haystack is too short or a length exceeds the model's context.
    """
    for name in caches:
        cache_of(name, options)
    if not caches or not lengths or depths < 1 or seeds < 1:
        raise UsageError("a needle test needs a cache, a length, a depth and a needle at least")
    loaded = load(replace(passes, model=model, reporter=reporter))
    require_fit(options, loaded.model.config.get_text_config())
    longest = max(lengths)
    if loaded.context is not None and longest > loaded.context:
        raise InputError(
            f"a text of {longest:,} tokens does not fit {loaded.name}'s context of "
            f"{loaded.context:,}",
            "ask for shorter lengths",
        )
    text = _text(haystack, longest)
    hidden = list(needles(loaded.tokenizer, text, sorted(lengths), depths, seeds))
    results = search_needles(loaded.model, hidden, caches, options, reporter=reporter)
    where = "the standard library's docstrings" if haystack is None else str(haystack)
    return NeedleResults(list(results), loaded.name, options, where)


def _text(path: Path | None, tokens: int) -> str:
    if path is None:
        return docstrings(tokens * CHARACTERS)
    try:
        with io.TextIOWrapper(
            open_stream(path, error=InputError), encoding="utf-8", errors="replace"
        ) as file:
            return file.read(tokens * CHARACTERS)
    except OSError as error:
        raise InputError(f"the haystack {path} cannot be read: {error.strerror}") from error
