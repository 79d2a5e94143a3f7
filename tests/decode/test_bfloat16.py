"""In bfloat16 drafts may change what is written only where the model itself cannot decide.

Passes of several rows add up in another order than passes of one, so logits differ in their last
bits; where the two likeliest tokens are nearer than that, either may be written.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ngramkit.decode.load import load_model
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.demo import demo_prompts
from ngramkit.drafters.create import load_drafter

PROMPTS, NEW_TOKENS, BUDGET = 3, 20, 16
NEAR = 4.0  # units in the last place
BITS = 7  # of a bfloat16's fraction


@pytest.fixture(scope="module")
def model():
    return load_model("demo", device="cpu", dtype="bfloat16")


@pytest.fixture(scope="module")
def cases(model):
    """(prompt, what model.generate writes), int32 each."""
    found = []
    for _, text in demo_prompts(PROMPTS):
        prompt = model.tokenizer.encode_prompt(text)
        ids = torch.from_numpy(prompt.astype(np.int64))[None]
        mask = torch.ones_like(ids)
        output = model.model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW_TOKENS
        )
        found.append((prompt, output[0, len(prompt) :].numpy().astype(np.int32)))
    return found


def behind(model, prompt, tokens):
    """How far every token's logit is behind the best one, in units of the best one's last place.

    float32[places, V], a place after every token of the prompt's last and of `tokens`; read in one
    plain pass.
    """
    ids = torch.from_numpy(np.concatenate([prompt, tokens]).astype(np.int64))[None]
    with torch.inference_mode():
        logits = model.model(ids).logits[0, len(prompt) - 1 :].float()
    best = logits.max(-1, keepdim=True).values
    return ((best - logits) / 2.0 ** (best.abs().log2().floor() - BITS)).numpy()


@pytest.mark.parametrize("way", [TreeVerifier, BatchVerifier])
@pytest.mark.parametrize("name", ["context", "cacheback"])
def test_the_first_difference_is_a_near_tie(model, cases, name, way):
    drafted = 0
    for prompt, expected in cases:
        verifier = way(model.model, room=len(prompt) + NEW_TOKENS + BUDGET)
        request = Request(prompt, NEW_TOKENS, BUDGET, eos=model.eos)
        run = decode(verifier, load_drafter(name), request)
        drafted += sum(run.accepted_per_pass)
        both = zip(run.token_ids.tolist(), expected.tolist(), strict=False)
        place = next((i for i, (ours, theirs) in enumerate(both) if ours != theirs), None)
        if place is None:
            assert len(run.token_ids) == len(expected)
            continue
        gaps = behind(model, prompt, expected[:place])[-1]
        assert max(gaps[run.token_ids[place]], gaps[expected[place]]) <= NEAR
    assert drafted > PROMPTS


def test_near_ties_are_rare(model, cases):
    """Otherwise the test above would say nothing."""
    second = [np.sort(behind(model, prompt, expected[:-1]), -1)[:, 1] for prompt, expected in cases]
    assert np.mean(np.concatenate(second) <= NEAR) < 0.2
