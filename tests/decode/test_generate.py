"""Drafts inside model.generate: the same text, in fewer passes."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from generated import GREEDY, PAD, PROMPT, both, endless_model, oracle
from scripted import WideOracle
from tiny_models import tiny_model
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

import ngramkit

pytestmark = pytest.mark.usefixtures("probed_at_once")


@pytest.fixture(scope="module")
def model():
    return endless_model()


class NoThirdTime:
    """A processor with a memory: it must be called once per token, in order."""

    def __init__(self):
        self.lengths = []

    def __call__(self, ids, scores):
        self.lengths.append(ids.shape[1])
        if ids[0, -1] == ids[0, -2]:
            scores[0, ids[0, -1]] = -torch.inf
        return scores


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_new_tokens": 4},
        {"generation_config": GenerationConfig(max_length=21, do_sample=False)},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"bad_words_ids": [[int(t)] for t in range(1, 30)]},
        {"min_new_tokens": 10, "eos_token_id": list(range(40)), "pad_token_id": PAD},
        {"eos_token_id": [29, 12], "pad_token_id": PAD},
        {"do_sample": True, "temperature": 0.9, "top_k": 20, "top_p": 0.95},
        {"do_sample": True, "min_p": 0.01},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_the_text_is_that_of_model_generate(model, options):
    if "generation_config" in options:
        options = {**options, "max_new_tokens": None, "do_sample": None}
    expected, found = both(model, **options)
    assert found.dtype == torch.int64
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_processor_is_called_once_per_token_and_in_order(model):
    processor = NoThirdTime()
    drafter = oracle(model, PROMPT, logits_processor=LogitsProcessorList([NoThirdTime()]))
    found = ngramkit.generate(
        model, PROMPT, drafter=drafter, logits_processor=LogitsProcessorList([processor]), **GREEDY
    )
    expected = model.generate(
        PROMPT, logits_processor=LogitsProcessorList([NoThirdTime()]), **GREEDY
    )
    assert torch.equal(found, expected)
    assert processor.lengths == list(range(PROMPT.shape[1], found.shape[1]))


def test_stopping_criteria_end_the_text_inside_an_accepted_path(model):
    expected = model.generate(PROMPT, **GREEDY)
    for length in range(9, 15):
        criteria = StoppingCriteriaList([lambda ids, scores, n=length: ids.shape[1] >= n])
        drafter = oracle(model, PROMPT)
        found = ngramkit.generate(
            model, PROMPT, drafter=drafter, stopping_criteria=criteria, **GREEDY
        )
        assert torch.equal(found, expected[:, :length])


def test_a_streamer_gets_the_prompt_and_every_token_once(model):
    got = []

    class Streamer:
        def put(self, ids):
            got.append(ids.flatten().tolist())

        def end(self):
            got.append("end")

    drafter, streamer = oracle(model, PROMPT), Streamer()
    found = model.generate(
        PROMPT,
        custom_generate=functools.partial(ngramkit.custom_generate, streamer=streamer),
        drafter=drafter,
        streamer=streamer,
        **GREEDY,
    )[0].tolist()
    begin = PROMPT.shape[1]
    assert got == [found[:begin], *([token] for token in found[begin:]), "end"]


def test_return_dict_gives_the_sequences(model):
    found = ngramkit.generate(
        model, PROMPT, drafter="cacheback", return_dict_in_generate=True, **GREEDY
    )
    assert torch.equal(found.sequences, model.generate(PROMPT, **GREEDY))


@pytest.mark.parametrize("prompt", [[5, 17, 3], torch.tensor([5, 17, 3]), np.array([[5, 17, 3]])])
def test_prompts_of_any_kind(model, prompt):
    expected = model.generate(torch.tensor([[5, 17, 3]]), **GREEDY)
    assert torch.equal(ngramkit.generate(model, prompt, drafter="cacheback", **GREEDY), expected)


@pytest.mark.parametrize("budget", [8, 64])
def test_a_model_whose_biases_count_columns_writes_its_own_text(budget):
    model = tiny_model("mpt", vocab_size=100, eos_token_id=None, bos_token_id=None)
    for seed in range(6):
        torch.manual_seed(seed)
        prompt = torch.randint(1, 100, (1, 9))
        expected = model.generate(prompt, do_sample=False, max_new_tokens=80)
        drafter = WideOracle(expected[0, 9:].tolist(), siblings=budget - 4)
        found = ngramkit.generate(
            model, prompt, drafter=drafter, budget=budget, do_sample=False, max_new_tokens=80
        )
        assert torch.equal(found, expected)
