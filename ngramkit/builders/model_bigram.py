"""Build a bigram table: the model's top-k after every token of its vocabulary.

The source is N-Grammys (Stewart et al., 2024, arXiv:2411.03786). The same weights, dtype, device
and batch size give the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.builders.model_table import (
    DEFAULT_K,
    BuiltTable,
    require_bigram_options,
    require_rows,
    require_usable,
    table_plan,
)
from ngramkit.builders.model_topk import Passes
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.resumable_writer import SCRATCH, ArtifactWriter, Build
from ngramkit.formats.safetensors import Array, open_arrays
from ngramkit.remote.publishing import build_at

SAVE_SECONDS = 30.0


def build_model_bigram(
    model: Any,
    tokenizer: TextTokenizer,
    out: str | Path,
    *,
    k: int = DEFAULT_K,
    width: int = 4,
    prefix: str = "none",
    extend: str = "bigram",
    reporter: Reporter = SILENT,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
) -> BuiltTable[ModelBigram]:
    """Build the table of `model` at `out` (a path or a URL), or open it if it exists.

    `model` is a transformers causal LM in evaluation mode. Each row has `k` next tokens and drafts
    of `width` tokens; for `prefix` and `extend` see formats.model_bigram. Takes one pass per token,
    and (width - 1) * k more with extend="model".

    Raises UsageError for wrong options and if `out` holds something else, InputError for a model
    that is unsuitable or too large.
    """
    require_bigram_options(k, width, prefix, extend)
    require_usable(model, tokenizer)
    absent = require_rows(k, tokenizer, prefix)
    before = [] if tokenizer.bos is None or prefix == "none" else [tokenizer.bos]
    options = {"k": k, "width": width, "prefix": prefix, "extend": extend}
    plan = table_plan(ModelBigram.kind, model, tokenizer, options)
    seconds = None

    def write(writer: ArtifactWriter) -> None:
        nonlocal seconds
        began = time.perf_counter()
        passes = Passes(model, tokenizer.record.vocabulary, absent, before)
        arrays = _next_tokens(writer, passes, k, reporter)
        if extend == "bigram" or width == 1:
            extended = follow_likeliest(arrays["next_tokens"], width)
        else:
            extended = _extend_drafts(writer, passes, arrays["next_tokens"], width, reporter)
        writer.write(TABLE, {**arrays, "extended": extended})
        rows = tokenizer.record.vocabulary
        writer.commit(
            tokenizer.record,
            parameters=plan["parameters"],
            corpus={},
            counts={"rows": rows, "drafts": rows * k},
        )
        seconds = time.perf_counter() - began

    build = Build(kind=ModelBigram, plans=[plan], write=write, recipe=recipe)
    return BuiltTable(build_at(build, out, reporter=reporter, force=force), seconds)


def _next_tokens(
    writer: ArtifactWriter, passes: Passes, k: int, reporter: Reporter
) -> Mapping[str, Array]:
    vocabulary = passes.vocabulary
    rows = SavedRows(
        writer,
        "next-tokens",
        {
            "next_tokens": np.empty((vocabulary, k), token_dtype(vocabulary)),
            "log_probs": np.empty((vocabulary, k), np.float16),
        },
    )
    reporter.stage("next tokens", vocabulary)
    reporter.advance(rows.end)
    for tokens, log_probs in passes.likeliest(np.arange(rows.end, vocabulary), k):
        if not np.isfinite(log_probs).all():
            raise InputError(
                "cannot read the table: the model's logits are infinite or NaN",
                "Try dtype=bfloat16 or dtype=float32.",
                option="dtype",
            )
        rows.add(next_tokens=tokens, log_probs=log_probs)
        reporter.advance(len(tokens), tokens=rows.end)
    return rows.arrays


def _extend_drafts(
    writer: ArtifactWriter, passes: Passes, next_tokens: Array, width: int, reporter: Reporter
) -> Array:
    vocabulary, k = next_tokens.shape
    first = next_tokens.reshape(-1, 1)
    empty = np.empty((vocabulary * k, width), next_tokens.dtype)
    rows = SavedRows(writer, "extended", {"extended": empty})
    reporter.stage("drafts", vocabulary * k, "drafts")
    reporter.advance(rows.end)
    for batch in passes.continued(next_tokens, rows.end, width - 1):
        rows.add(extended=np.hstack([first[rows.end : rows.end + len(batch)], batch]))
        reporter.advance(len(batch), drafts=rows.end)
    return rows.arrays["extended"].reshape(-1, k, width)


def follow_likeliest(next_tokens: Array, width: int) -> Array:
    """Follow every next token by its likeliest successors: [V, k, width]."""
    likeliest = next_tokens[:, 0]
    extended = np.empty((*next_tokens.shape, width), next_tokens.dtype)
    extended[:, :, 0] = next_tokens
    for depth in range(1, width):
        extended[:, :, depth] = likeliest[extended[:, :, depth - 1]]
    return extended


class SavedRows:
    """Arrays filled from the front, and saved every SAVE_SECONDS so that a killed build resumes."""

    def __init__(self, writer: ArtifactWriter, stage: str, arrays: Mapping[str, Array]) -> None:
        self._writer = writer
        self._stage = stage
        self.arrays = arrays
        self.end = self._parts = 0
        while (facts := writer.finished(self._name(self._parts))) is not None:
            saved = open_arrays(writer.partial / self._name(self._parts))
            for name, array in arrays.items():
                array[self.end : facts["end"]] = saved[name]
            self.end = facts["end"]
            self._parts += 1
        self._saved = self.end
        self._saved_at = time.monotonic()

    def add(self, **rows: Array) -> None:
        end = self.end + len(next(iter(rows.values())))
        for name, values in rows.items():
            self.arrays[name][self.end : end] = values
        self.end = end
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        rows = slice(self._saved, self.end)
        self._writer.write(
            self._name(self._parts),
            {name: np.ascontiguousarray(array[rows]) for name, array in self.arrays.items()},
            end=self.end,
            **{SCRATCH: self._stage},
        )
        self._parts += 1
        self._saved = self.end
        self._saved_at = time.monotonic()

    def _name(self, part: int) -> str:
        return f"{self._stage}-{part:05d}.safetensors"
