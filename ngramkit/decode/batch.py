"""Many prompts written on at once, without drafts: for throughput, where nobody waits.

A row of a batch may differ from the same prompt written alone where two tokens are nearly equally
likely: padding changes how sums are rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ngramkit.decode.generation import generate_options
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.sampling import MOST_SEED, Sampling
from ngramkit.drafters.base import TokenArray


def write_batch(
    model: LanguageModel,
    prompts: Sequence[TokenArray],
    *,
    max_new_tokens: int,
    sampling: Sampling,
) -> list[TokenArray]:
    """Write on after each of `prompts`, int32[n] each, at least one: int32[m] each.

    m <= max_new_tokens, with an EOS at the end where the model wrote one. Leaves torch's random
    state as it was.
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
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(sampling.seed)
        written = model.model.generate(
            torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            **generate_options(model, sampling, max_length=longest + max_new_tokens),
        )
    rows = written[:, longest:].cpu().numpy().astype(np.int32)
    return [_until_eos(row, model.eos) for row in rows]


def seeded(sampling: Sampling, index: int) -> Sampling:
    """Return the same sampling with a seed of its own for the `index`-th batch."""
    return replace(sampling, seed=(sampling.seed + index) & MOST_SEED)


def _until_eos(row: TokenArray, eos: frozenset[int]) -> TokenArray:
    """Cut the padding behind the first EOS."""
    ends = np.flatnonzero(np.isin(row, list(eos)))
    return row[: ends[0] + 1] if len(ends) else row
