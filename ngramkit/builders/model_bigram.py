"""A language model to a bigram table: what it holds likely after every token of its vocabulary.

N-Grammys (Stewart et al., 2024, arXiv:2411.03786), the model-derived bigram and its extension.
`formats.model_bigram` says what the table holds. Same weights, dtype, device and batch size: same
bytes; another device may round the last bit of a probability otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngramkit.builders.model_passes import (
    BuiltTable,
    Passes,
    Work,
    absent_ids,
    flops_of_a_pass,
    matmul_peak,
    model_parameters,
    require_bigram_options,
    require_k,
    require_usable,
    weights_fingerprint,
)
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import InputError, UsageError
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.container import Array, open_arrays
from ngramkit.formats.model_bigram import TABLE, ModelBigram
from ngramkit.formats.writer import ArtifactWriter, already_built
from ngramkit.progress import SILENT, Reporter


def build_model_bigram(
    model: Any,
    tokenizer: TextTokenizer,
    out: str | Path,
    *,
    k: int = 100,
    width: int = 4,
    prefix: str = "none",
    extend: str = "bigram",
    reporter: Reporter = SILENT,
    force: bool = False,
    recipe: Mapping[str, Any] | None = None,
) -> BuiltTable[ModelBigram]:
    """The table of `model` at `out`, which is opened where it is built already.

    `model` is a transformers causal LM in evaluation mode, on any device or several; its dtype is
    that of the passes. `k` next tokens and drafts of `width` tokens per row; `prefix` and `extend`
    as in formats.model_bigram. One pass per token of the vocabulary, and with extend="model"
    (width - 1) * k more.

    Raises UsageError for parameters that make no sense (k above the vocabulary, no BOS) and where
    `out` holds something else; InputError where the model has no output embedding, is an
    encoder-decoder, has fewer ids than the tokenizer, or does not fit into memory.
    """
    require_bigram_options(k, width, prefix, extend)
    require_usable(model, tokenizer)
    absent = absent_ids(tokenizer)
    require_k(k, tokenizer.record.vocabulary - len(absent))
    before = _prefix(tokenizer, prefix)
    parameters = {
        **model_parameters(model, tokenizer),
        "k": k,
        "width": width,
        "prefix": prefix,
        "extend": extend,
    }
    plan = {
        "kind": ModelBigram.kind,
        "parameters": parameters,
        "tokenizer": tokenizer.record.fingerprint,
        "weights": weights_fingerprint(model),
    }
    if already_built(out, plan):
        reporter.note(f"{out} is up to date")
        return BuiltTable(ModelBigram.open(out), None)
    passes = Passes(model, tokenizer.record.vocabulary, absent, before)
    with ArtifactWriter(out, ModelBigram.kind, plan, recipe=recipe, force=force) as writer:
        work = _write(writer, passes, k, width, extend, reporter)
        rows = tokenizer.record.vocabulary
        writer.commit(
            tokenizer.record,
            parameters=parameters,
            corpus={},
            counts={"rows": rows, "drafts": rows * k},
        )
    return BuiltTable(ModelBigram.open(out), work)


def _prefix(tokenizer: TextTokenizer, prefix: str) -> list[int]:
    if prefix == "none":
        return []
    bos = tokenizer.bos
    if bos is None:
        raise UsageError(
            f"{tokenizer.record.id} has no BOS token", "use prefix=none", option="prefix"
        )
    return [bos]


def _write(
    writer: ArtifactWriter, passes: Passes, k: int, width: int, extend: str, reporter: Reporter
) -> Work:
    flops = flops_of_a_pass(passes.model)
    began = time.perf_counter()
    rows, ran = _next_tokens(writer, passes, k, reporter)
    stages = [rows]
    if extend == "bigram":
        extended = follow_likeliest(rows.arrays["next_tokens"], width)
    else:
        drafts, more = _continue(writer, passes, rows.arrays["next_tokens"], width, reporter)
        extended, ran = drafts.arrays["extended"].reshape(-1, k, width), ran + more
        stages.append(drafts)
    seconds = time.perf_counter() - began
    writer.write(TABLE, {**rows.arrays, "extended": extended})
    for stage in stages:
        stage.discard()
    peak = matmul_peak(passes.model.device, passes.model.dtype)
    return Work(flops * ran, seconds, peak)


def _next_tokens(
    writer: ArtifactWriter, passes: Passes, k: int, reporter: Reporter
) -> tuple[SavedRows, int]:
    """next_tokens and log_probs of every token, and how many passes this took now."""
    vocabulary = passes.vocabulary
    rows = SavedRows(
        writer,
        "next-tokens",
        {
            "next_tokens": np.empty((vocabulary, k), token_dtype(vocabulary)),
            "log_probs": np.empty((vocabulary, k), np.float16),
        },
    )
    begin = rows.end
    reporter.stage("next tokens", vocabulary)
    reporter.advance(begin)
    for found in passes.likeliest(np.arange(begin, vocabulary), k):
        if np.isnan(found.log_probs).any():
            raise InputError(
                "the model's logits are not all numbers (infinite or NaN)",
                "try dtype=bfloat16 or dtype=float32",
                option="dtype",
            )
        rows.add(next_tokens=found.tokens, log_probs=found.log_probs)
        reporter.advance(len(found.tokens), tokens=rows.end)
    return rows, vocabulary - begin


def _continue(
    writer: ArtifactWriter, passes: Passes, next_tokens: Array, width: int, reporter: Reporter
) -> tuple[SavedRows, int]:
    """Drafts by the model's own greedy decoding, row after row, and how many passes it took now."""
    vocabulary, k = next_tokens.shape
    first = next_tokens.reshape(-1, 1)
    empty = np.empty((vocabulary * k, width), next_tokens.dtype)
    rows = SavedRows(writer, "extended", {"extended": empty})
    begin = rows.end
    reporter.stage("drafts", vocabulary * k, "drafts")
    reporter.advance(begin)
    if width == 1:
        rows.add(extended=first[begin:])
    else:
        for found in passes.continued(next_tokens, begin, width - 1):
            rows.add(extended=np.hstack([first[rows.end : rows.end + len(found)], found]))
            reporter.advance(len(found), drafts=rows.end)
    return rows, (width - 1) * (vocabulary * k - begin)


def follow_likeliest(next_tokens: Array, width: int) -> Array:
    """[V, k, width]: every next token, then the likeliest one after it, and so on.

    [[1, 0], [1, 0]], width 3 -> [[[1, 1, 1], [0, 1, 1]], [[1, 1, 1], [0, 1, 1]]]
    """
    likeliest = next_tokens[:, 0]
    extended = np.empty((*next_tokens.shape, width), next_tokens.dtype)
    extended[:, :, 0] = next_tokens
    for depth in range(1, width):
        extended[:, :, depth] = likeliest[extended[:, :, depth - 1]]
    return extended


# Rows of a table that come slowly and in order: kept on the way, so that a killed build resumes.
#
# A quick build writes nothing here. A slow one loses what came since the last save.

SAVE_AFTER = 30.0  # seconds


class SavedRows:
    """`arrays` of equal length, filled from the front; `end` rows are there.

    Parts lie in the writer's partial folder, named after `stage`, until `discard`.
    """

    def __init__(self, writer: ArtifactWriter, stage: str, arrays: Mapping[str, Array]) -> None:
        self._writer = writer
        self._stage = stage
        self.arrays = arrays
        self.end = 0
        self._parts = 0
        self._recall()
        self._saved = self.end
        self._saved_at = time.monotonic()

    def add(self, **rows: Array) -> None:
        """The next rows, of every array."""
        end = self.end + len(next(iter(rows.values())))
        for name, values in rows.items():
            self.arrays[name][self.end : end] = values
        self.end = end
        if time.monotonic() - self._saved_at >= SAVE_AFTER:
            self._save()

    def discard(self) -> None:
        """The rows are in the table: the parts have done their duty."""
        for part in range(self._parts):
            self._writer.discard(self._name(part))

    def _save(self) -> None:
        rows = slice(self._saved, self.end)
        self._writer.write(
            self._name(self._parts),
            {name: np.ascontiguousarray(array[rows]) for name, array in self.arrays.items()},
            end=self.end,
        )
        self._parts += 1
        self._saved = self.end
        self._saved_at = time.monotonic()

    def _recall(self) -> None:
        while (facts := self._writer.finished(self._name(self._parts))) is not None:
            found = open_arrays(self._writer.partial / self._name(self._parts))
            for name, array in self.arrays.items():
                array[self.end : facts["end"]] = found[name]
            self.end = facts["end"]
            self._parts += 1

    def _name(self, part: int) -> str:
        return f"{self._stage}-{part:05d}.safetensors"
