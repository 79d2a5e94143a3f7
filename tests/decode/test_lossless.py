"""Greedy output with drafts equals model.generate(do_sample=False), token for token, in float32."""

from __future__ import annotations

import numpy as np
import pytest
from lossless import decoded, references
from scripted import NoisyOracle
from tiny_models import FEW, VOCABULARY, tiny_model

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.drafters.registry import load_drafter

BUDGETS = (1, 4, 16, 64)


@pytest.fixture(scope="module", params=[*FEW, "gpt2-eager", "mistral-eager", "demo"])
def case(request, demo):
    """(model, references); the eager ones need a float mask."""
    name, _, attention = request.param.partition("-")
    if name == "demo":
        return demo.model, references(demo.model, demo.tokenizer)
    changes = {"attn_implementation": attention} if attention else {}
    model = tiny_model(name, **changes)
    return model, references(model, demo.tokenizer)


def drafted(model, found, drafter_of):
    """The runs over all prompts, budgets in turn; every answer is checked."""
    runs = []
    for i, reference in enumerate(found):
        run = decoded(model, drafter_of(i, reference), reference, BUDGETS[i % len(BUDGETS)])
        np.testing.assert_array_equal(run.token_ids, reference.answer, f"prompt {i}")
        runs.append(run)
    return runs


def test_trees_that_hold_the_answer_among_wrong_tokens(case):
    model, found = case
    runs = drafted(model, found, lambda i, r: NoisyOracle(r.answer, VOCABULARY, seed=i))
    # Otherwise nothing was proven: the rows of accepted nodes must have been kept right.
    assert np.mean([run.tokens_per_step for run in runs]) > 2


def test_rest(case, tmp_path_factory, token_store):
    model, found = case
    # The answers are in the datastore, beside the prompts', so that some drafts are accepted.
    documents = [np.concatenate([r.prompt, r.answer]) for r in found[::2]]
    store = token_store(documents, VOCABULARY)
    datastore = build_datastore(store, tmp_path_factory.mktemp("rest") / "datastore")
    drafter = load_drafter("rest", datastores=[datastore])
    runs = drafted(model, found, lambda i, r: drafter)
    assert max(run.tokens_per_step for run in runs) > 2


def test_cacheback(case, tmp_path_factory, token_store):
    model, found = case
    documents = [np.concatenate([r.prompt, r.answer]) for r in found[::2]]
    store = token_store(documents, VOCABULARY)
    frozen = build_frozen(store, tmp_path_factory.mktemp("cacheback") / "frozen")
    drafter = load_drafter("cacheback", frozen_table=frozen)
    runs = drafted(model, found, lambda i, r: drafter)
    assert max(run.tokens_per_step for run in runs) > 1.5
