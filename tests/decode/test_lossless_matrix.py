"""Every drafter x every way to verify x every architecture: model.generate's tokens, in float32."""

from __future__ import annotations

import numpy as np
import pytest
from knowing_drafters import knowing_drafters
from lossless import decoded, references
from tiny_models import ARCHITECTURES, tiny_model

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.verify import TreeVerifier
from ngramkit.decode.verify_batch import BatchVerifier
from ngramkit.drafters import DRAFTERS

WAYS = {"tree": TreeVerifier, "batch": BatchVerifier, "static": StaticVerifier}
BUDGETS = (1, 4, 16, 64)
PROMPTS = 8


@pytest.fixture(scope="module", params=ARCHITECTURES)
def case(request, token_store, tmp_path_factory):
    """(model, references, drafters by name): the drafters know every other answer."""
    model, tokenizer = tiny_model(request.param), load_tokenizer("demo")
    found = references(model, tokenizer, count=PROMPTS)
    texts = [np.concatenate([each.prompt, each.answer]) for each in found[::2]]
    folder = tmp_path_factory.mktemp("knowing")
    return model, found, knowing_drafters(texts, token_store, tokenizer.record, folder)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts_change_nothing_but_the_passes(case, name, way):
    model, found, drafters = case
    steps = []
    for i, reference in enumerate(found):
        budget = BUDGETS[i // 2 % len(BUDGETS)]
        run = decoded(model, drafters[name], reference, budget, verified_by=WAYS[way])
        np.testing.assert_array_equal(run.token_ids, reference.answer, f"prompt {i}")
        steps.append(run.tokens_per_step)
    # Without an accepted draft nothing would have been proven.
    assert (max(steps) > 1) == (name != "none")
