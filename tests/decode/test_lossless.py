"""Greedy output with drafts equals model.generate(do_sample=False), token for token, in float32."""

from __future__ import annotations

import numpy as np
import pytest
from lossless import decoded, references
from scripted import NoisyOracle
from tiny_models import FEW, VOCABULARY, tiny_model

BUDGETS = (1, 4, 16, 64)
PROMPTS = 8


@pytest.fixture(scope="module", params=[*FEW, "gpt2-eager", "mistral-eager", "demo"])
def case(request, demo):
    """(model, references); the eager ones need a float mask."""
    name, _, attention = request.param.partition("-")
    if name == "demo":
        return demo.model, references(demo.model, demo.tokenizer, count=PROMPTS)
    changes = {"attn_implementation": attention} if attention else {}
    model = tiny_model(name, **changes)
    return model, references(model, demo.tokenizer, count=PROMPTS)


def test_trees_that_hold_the_answer_among_wrong_tokens(case):
    """Of every drafter's trees see test_lossless_matrix."""
    model, found = case
    steps = []
    for i, reference in enumerate(found):
        drafter = NoisyOracle(reference.answer, VOCABULARY, seed=i)
        run = decoded(model, drafter, reference, BUDGETS[i % len(BUDGETS)])
        np.testing.assert_array_equal(run.token_ids, reference.answer, f"prompt {i}")
        steps.append(run.tokens_per_step)
    # Otherwise nothing was proven: the rows of accepted nodes must have been kept right.
    assert np.mean(steps) > 2
