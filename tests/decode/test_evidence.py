"""What drafters are told of every pass: the model's own likeliest tokens at every verified node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import NoisyOracle, choice_of
from tiny_models import tiny_model

from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.sampling import Sampling, best_and_tops
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import MAX_EVIDENCE_TOKENS

VOCABULARY = 50
PROMPT = np.array([3, 1, 4, 1, 5], np.int32)


class Listener(NoisyOracle):
    """Keeps every tree and what was heard of it."""

    wants_evidence = True

    def start(self, prompt):
        super().start(prompt)
        self.context, self.trees, self.heard = prompt.tolist(), [], []

    def draft(self, budget):
        tree = super().draft(budget)
        self.trees.append(tree)
        return tree

    def accept(self, tokens, evidence=None):
        super().accept(tokens)
        self.heard.append((list(self.context), evidence))
        self.context += tokens.tolist()


class Deaf(Listener):
    wants_evidence = False


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama", vocab_size=VOCABULARY, eos_token_id=None)


def run(model, kind, sampling):
    plain = decode(TreeVerifier(model, room=64), Deaf([], VOCABULARY), Request(PROMPT, 24, 0))
    drafter = kind(plain.token_ids, VOCABULARY, seed=1)
    request = Request(PROMPT, 24, 6, choice_of(sampling))
    return drafter, decode(TreeVerifier(model, room=64), drafter, request), plain


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=3)])
def test_every_node_comes_with_what_the_model_held_likely_after_it(model, sampling):
    drafter, _, _ = run(model, Listener, sampling)
    trees = [None, *drafter.trees]  # the first is the prefill's
    for tree, (context, evidence) in zip(trees, drafter.heard, strict=False):
        nodes = 0 if tree is None else len(tree)
        assert len(evidence.token_ids) == len(evidence.parents) == nodes + 1
        assert (evidence.token_ids[0], evidence.parents[0]) == (context[-1], -1)
        assert (
            evidence.top_ids.shape
            == evidence.top_log_probs.shape
            == (nodes + 1, MAX_EVIDENCE_TOKENS)
        )
        for row in range(nodes + 1):
            path, at = [], row
            while at > 0:
                path.insert(0, int(evidence.token_ids[at]))
                at = evidence.parents[at]
            with torch.inference_mode():
                logits = model(torch.tensor([context + path])).logits[0, -1]
            best = logits.log_softmax(-1).topk(MAX_EVIDENCE_TOKENS)
            np.testing.assert_array_equal(evidence.top_ids[row], best.indices)
            np.testing.assert_allclose(evidence.top_log_probs[row], best.values, atol=1e-3)


def test_listening_changes_no_token(model):
    _, heard, plain = run(model, Listener, Sampling())
    assert heard.token_ids.tolist() == plain.token_ids.tolist()
    assert heard.passes < plain.passes


def test_a_drafter_that_does_not_ask_is_told_nothing(model):
    drafter, _, _ = run(model, Deaf, Sampling())
    assert all(evidence is None for _, evidence in drafter.heard)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_best_is_argmax_even_where_logits_are_equal(dtype):
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0], [5.0, 5.0, 5.0, 5.0]], dtype=dtype)
    best, tops = best_and_tops(logits)
    assert [best(0), best(1)] == logits.argmax(-1).tolist()
    assert tops.ids.dtype == np.int32
    assert tops.log_probs.dtype == np.float32
    np.testing.assert_allclose(np.exp(tops.log_probs).sum(-1), 1, rtol=1e-2)
