"""Build a unigram table: the tokens that a model's embeddings make likely, without a pass.

The source is N-Grammys (Stewart et al., 2024, arXiv:2411.03786).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import SILENT, Reporter
from ngramkit.builders.model_table import (
    DEFAULT_K,
    BuiltTable,
    require_rows,
    require_unigram_options,
    require_usable,
    table_plan,
)
from ngramkit.builders.model_topk import out_of_memory
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.artifact import token_dtype
from ngramkit.formats.model_unigram import TABLE, ModelUnigram
from ngramkit.formats.resumable_writer import ArtifactWriter, Build
from ngramkit.formats.safetensors import Array
from ngramkit.remote.publishing import build_at

EMBEDDINGS_AT_ONCE = 8192  # embeddings multiplied at a time


def build_model_unigram(
    model: Any,
    tokenizer: TextTokenizer,
    out: str | Path,
    *,
    k: int = DEFAULT_K,
    rule: str = "distance",
    reporter: Reporter = SILENT,
    force: bool = False,
) -> BuiltTable[ModelUnigram]:
    """Build the table of the `k` likeliest tokens of `model` at `out`, or open it if it exists.

    `model` is a transformers causal LM; for `rule` see formats.model_unigram. Raises as
    `build_model_bigram`, and InputError if the embeddings do not fit into memory or are not finite.
    """
    require_unigram_options(k, rule)
    require_usable(model, tokenizer)
    absent = require_rows(k, tokenizer)
    plan = table_plan(ModelUnigram.kind, model, tokenizer, {"k": k, "rule": rule})
    seconds = None

    def write(writer: ArtifactWriter) -> None:
        nonlocal seconds
        began = time.perf_counter()
        present = np.setdiff1d(np.arange(tokenizer.record.vocabulary), absent)
        try:
            scores = _unigram_log_probs(model, present, rule)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise InputError(
                "cannot read the embeddings: out of memory for both in float32",
                "Use device=cpu, or a device with more memory.",
                option="device",
            ) from error
        best = np.lexsort((present, -scores))[:k]
        if not np.isfinite(scores[best]).all():
            raise InputError(
                "cannot read the embeddings: they are infinite or NaN, or too large",
                "Try dtype=bfloat16 or dtype=float32, or download the model again.",
                option="dtype",
            )
        tokens = present[best].astype(token_dtype(tokenizer.record.vocabulary))
        writer.write(TABLE, {"tokens": tokens, "scores": scores[best]})
        writer.commit(
            tokenizer.record, parameters=plan["parameters"], corpus={}, counts={"rows": k}
        )
        seconds = time.perf_counter() - began

    build = Build(kind=ModelUnigram, plans=[plan], write=write)
    return BuiltTable(build_at(build, out, reporter=reporter, force=force), seconds)


def _unigram_log_probs(model: Any, present: Array, rule: str) -> Array:
    """Compute log p(x) of the ids in `present` (int64[n]): float32[n]."""
    with torch.inference_mode():
        embedding = model.get_output_embeddings().weight
        outputs = weight_rows(embedding, present, embedding.device)
        inputs = weight_rows(model.get_input_embeddings().weight, present, embedding.device)
        centred = inputs - inputs.mean(dim=0)
        covariance = centred.T @ centred / max(len(present) - 1, 1)
        mean = outputs.mean(dim=0)
        if rule == "distance":
            logits = -_row_lengths(outputs - mean, covariance)
        else:
            logits = -(outputs @ (covariance @ mean))
        return np.asarray(logits.double().log_softmax(dim=0).float().cpu())


def weight_rows(weight: torch.Tensor, present: Array, device: torch.device) -> torch.Tensor:
    """Return the rows `present` of an embedding as float32."""
    chosen = torch.from_numpy(present).to(weight.device)
    return weight.index_select(0, chosen).to(device).float()


def _row_lengths(vectors: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Return every row's length in the inner product a' C b: float32[n]."""
    parts = [
        ((part @ covariance) * part).sum(dim=1) for part in torch.split(vectors, EMBEDDINGS_AT_ONCE)
    ]
    return torch.cat(parts).clamp(min=0).sqrt()
