"""Batched generation without drafts.

At nearly tied tokens padding may change the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ngramkit.decode.generation import generate_options
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.passes import model_passes
from ngramkit.decode.sampling import MAX_SEED, Sampling
from ngramkit.drafters.base import TokenArray


def write_batch(
    model: LanguageModel, prompts: Sequence[TokenArray], *, max_new_tokens: int, sampling: Sampling
) -> list[TokenArray]:
    """Continue each of `prompts`, int32[n] each, at least one; return int32[m] each.

    A final EOS is included.
    """
    longest = max(map(len, prompts))
    pad = min(model.eos, default=0)
    ids = np.full((len(prompts), longest), pad, np.int64)
    mask = np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    device = model.model.device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), model_passes():
        torch.manual_seed(sampling.seed)
        written = model.model.generate(
            torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            **generate_options(model, sampling, max_length=longest + max_new_tokens),
        )
    rows = written[:, longest:].cpu().numpy().astype(np.int32)
    return [_until_eos(row, model.eos) for row in rows]


def with_own_seed(sampling: Sampling, index: int) -> Sampling:
    return replace(sampling, seed=(sampling.seed + index) & MAX_SEED)


def _until_eos(row: TokenArray, eos: frozenset[int]) -> TokenArray:
    ends = np.flatnonzero(np.isin(row, list(eos)))
    return row[: ends[0] + 1] if len(ends) else row
