"""What transformers' generate writes of a tiny model, with drafts and without."""

from __future__ import annotations

import torch
from scripted import NoisyOracle
from tiny_models import tiny_model

import ngramkit

VOCABULARY = 60
PAD = 0
PROMPT = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])
GREEDY = {"do_sample": False, "max_new_tokens": 30}


def endless_model():
    """One that never ends a text by itself."""
    return tiny_model("llama", vocab_size=VOCABULARY, eos_token_id=None, bos_token_id=None)


def oracle(model, prompt, seed=0, **options):
    """A drafter that knows what is coming, and lies about some of it."""
    torch.manual_seed(0)
    row = model.generate(prompt, **{**GREEDY, **options})[0, prompt.shape[1] :]
    return NoisyOracle(row.tolist(), VOCABULARY, seed)


class Passes:
    """Counts the model's forward passes."""

    def __init__(self, model):
        self.count = 0
        self.hook = model.register_forward_hook(self)

    def __call__(self, *_):
        self.count += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hook.remove()


def both(model, prompt=PROMPT, **options):
    """What transformers writes alone, and with drafts; fewer passes or it proves nothing."""
    options = {**GREEDY, **options}
    drafter = oracle(model, prompt, **options)
    torch.manual_seed(0)
    with Passes(model) as alone:
        expected = model.generate(prompt, **options)
    torch.manual_seed(0)
    with Passes(model) as drafted:
        found = ngramkit.generate(model, prompt, drafter=drafter, budget=8, **options)
    assert drafted.count < alone.count
    assert drafter.finished == 1
    return expected, found
