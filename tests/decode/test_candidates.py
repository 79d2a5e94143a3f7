"""A drafter's linear path under transformers' assisted generation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scripted import NoisyOracle, tree_of
from tiny_models import tiny_model

from ngramkit import NgramkitCandidates
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.cacheback import Cacheback

VOCABULARY = 60
PROMPT = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])


@pytest.mark.parametrize("drafter", [Cacheback(None), "oracle"])
def test_assisted_generation_writes_the_same(drafter):
    model = tiny_model("llama", vocab_size=VOCABULARY, eos_token_id=None, bos_token_id=None)
    options = {"do_sample": False, "max_new_tokens": 40}
    expected = model.generate(PROMPT, **options)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    if drafter == "oracle":
        drafter = NoisyOracle(expected[0, PROMPT.shape[1] - 1 :].tolist(), VOCABULARY)
        drafter.start = lambda prompt: drafter.accept(prompt[-1:])
    candidates = NgramkitCandidates(drafter, budget=6, max_length=expected.shape[1])
    model._get_candidate_generator = lambda **_: candidates
    # Any assisted mode asks the model for its candidate generator.
    found = model.generate(PROMPT, prompt_lookup_num_tokens=1, **options)
    assert torch.equal(found, expected)
    if isinstance(drafter, NoisyOracle):
        assert len(passes) < 30


class Line:
    """Drafts 10, 11, 12, ...; keeps what it hears."""

    def __init__(self):
        self.heard = []

    def start(self, prompt):
        self.heard.append(("start", prompt.tolist()))

    def draft(self, budget):
        tree = tree_of([(10 + i, i - 1) for i in range(budget)])
        scores = np.array([0.5**i for i in range(budget)], np.float32)
        return DraftTree(tree.token_ids, tree.parents, scores, tree.source)

    def accept(self, tokens, evidence=None):
        self.heard.append(("accept", tokens.tolist()))

    def finish(self):
        self.heard.append(("finish", []))


def line(tokens):
    return torch.tensor([tokens])


def test_the_drafter_follows_the_text_and_notices_another():
    drafter = Line()
    candidates = NgramkitCandidates(drafter, budget=2)
    for tokens in ([1, 2], [1, 2, 10, 4], [1, 2, 10, 4], [7, 2, 10, 4, 5]):
        found, logits = candidates.get_candidates(line(tokens))
        assert logits is None
        assert found.dtype == torch.int64
    candidates.finish()
    assert drafter.heard == [
        ("start", [1, 2]),
        ("accept", [10, 4]),
        ("finish", []),
        ("start", [7, 2, 10, 4, 5]),
        ("finish", []),
    ]


def test_candidates_end_before_eos_and_before_the_longest_text():
    of = {
        "plain": NgramkitCandidates(Line(), budget=4),
        "eos": NgramkitCandidates(Line(), budget=4, eos=[12]),
        "length": NgramkitCandidates(Line(), budget=4, max_length=4),
        "full": NgramkitCandidates(Line(), budget=4, max_length=3),
    }
    found = {
        name: each.get_candidates(line([1, 2]))[0][0, 2:].tolist() for name, each in of.items()
    }
    assert found == {
        "plain": [10, 11, 12, 13],
        "eos": [10, 11],
        "length": [10],
        "full": [],
    }
