"""References by model.generate, and the prompts on which they say something.

Where the two likeliest tokens are nearer than rounding, transformers' own cached and uncached
passes disagree with each other, so no reference exists: such prompts are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.result import Decoded
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import Drafter

PROMPTS = 40
SPARE = 12
LENGTHS = (17, 25, 33, 41)
NEW_TOKENS = 12
NEAR_TIE = 1e-4  # of the logits' own size
prompts_once = cache(demo_prompts)


@dataclass(frozen=True)
class Reference:
    prompt: Any  # int32[n]
    answer: Any  # int32[m]


def references(
    model: Any, tokenizer: Any, new_tokens: int = NEW_TOKENS, count: int = PROMPTS
) -> list[Reference]:
    """Prompts of the embedded corpus with what model.generate(do_sample=False) writes."""
    texts = [text for _, text in prompts_once(count + SPARE)]
    found: list[Reference] = []
    for i, length in enumerate(LENGTHS):
        batch = [tokenizer.encode(text)[:length] for text in texts[i :: len(LENGTHS)]]
        found += _generated(model, np.stack(batch), new_tokens)
    assert len(found) >= count
    return found[:count]


def _generated(model: Any, prompts: Any, new_tokens: int) -> list[Reference]:
    """All prompts of a batch have one length, so that nothing is padded."""
    ids = torch.from_numpy(prompts.astype(np.int64))
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
    best, second = torch.stack(output.logits, 1).topk(2, -1).values.unbind(-1)
    clear = (best - second > NEAR_TIE * best.abs()).numpy()
    found = []
    for prompt, row, decided in zip(prompts, output.sequences.numpy(), clear, strict=True):
        answer = until_eos(row[len(prompt) :])
        if decided[: len(answer)].all():
            found.append(Reference(prompt, answer.astype(np.int32)))
    return found


def until_eos(tokens: Any, eos: int = 0) -> Any:
    ends = np.flatnonzero(tokens == eos)
    return tokens[: ends[0] + 1] if len(ends) else tokens


def decoded(
    model: Any,
    drafter: Drafter,
    reference: Reference,
    budget: int,
    new_tokens: int = NEW_TOKENS,
    verified_by: Any = TreeVerifier,
) -> Decoded:
    # Little room, so that the cache has to grow on the way.
    verifier = verified_by(model, room=len(reference.prompt) + 2)
    request = Request(reference.prompt, new_tokens, budget, eos=frozenset({0}))
    return decode(verifier, drafter, request)
