"""What a checkpoint's generation config asks for, in every door: model.generate's own text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scripted import NoisyOracle, choice_of
from tiny_models import VOCABULARY, tiny_model
from transformers import GenerationConfig

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode import generation
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.generate import REFUSED_OPTIONS
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.plain_batch import write_batch
from ngramkit.decode.sampling import GreedyChoice, Sampling, best_and_tops

TEXT = "def read(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef "
NEW = 14
REPEATING = 0.2  # a penalty that rewards repetitions
NO_EFFECT = {
    # Ends, lengths and sampling, which have options of their own or are `generate`'s arguments.
    "max_length", "max_new_tokens", "eos_token_id", "pad_token_id", "bos_token_id", "do_sample",
    "temperature", "top_k", "top_p", "num_return_sequences", "return_dict_in_generate",
    # Of other ways to write, of encoders, of assistants.
    "early_stopping", "length_penalty", "diversity_penalty", "low_memory", "is_assistant",
    "decoder_start_token_id", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind",
    "assistant_ensemble_weight", "speculation_type", "max_matching_ngram_size",
    # Of how passes run.
    "use_cache", "cache_config", "max_cache_len", "compile_config", "disable_compile",
    "continuous_batching_config", "prefill_chunk_size", "transformers_version",
    # Refused, but for custom_generate, before which transformers heals.
    "token_healing", "cache_implementation",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tokenizer):
    return LanguageModel("tiny/llama", tiny_model("llama"), tokenizer)


@pytest.fixture
def asking(model):
    """asking(repetition_penalty=...): the model with these in its generation config."""
    before = model.model.generation_config
    yield lambda **settings: setattr(
        model.model, "generation_config", GenerationConfig(**{"eos_token_id": 0, **settings})
    )
    model.model.generation_config = before


@pytest.fixture(scope="module")
def prompt(tokenizer):
    return tokenizer.encode_prompt(TEXT)


def generated(model, prompt, **options):
    ids = torch.tensor(np.array([prompt]))
    options = {"do_sample": False, "max_new_tokens": NEW, **options}
    row = model.model.generate(ids, **options)[0]
    return row[len(prompt) :].tolist()


def drafted(model, prompt, answer, **options):
    options = DecodeOptions(model, max_new_tokens=NEW, budget=6, **options)
    decoder = Decoder.settle(model, options)
    run = decoder.decode(decoder.request(prompt), NoisyOracle(answer, VOCABULARY))
    assert run.passes < len(run.token_ids) - 1 or len(run.token_ids) < 4
    return run.token_ids.tolist()


def settings(free):
    """By name; `free` is what the model writes without any."""
    return {
        "repetition_penalty": REPEATING,
        "encoder_repetition_penalty": 3.0,
        "no_repeat_ngram_size": 1,
        "encoder_no_repeat_ngram_size": 1,
        "bad_words_ids": [free[2:4], free[5:6]],
        "sequence_bias": [[free[3:4], -90.0]],
        "suppress_tokens": free[4:6],
        "begin_suppress_tokens": free[:1],
        "forced_eos_token_id": 7,
        "min_length": 200,
        "min_new_tokens": 9,
        "exponential_decay_length_penalty": (2, 9.5),
        "guidance_scale": 1.7,
        "stop_strings": "four",
        "eos_token_id": free[3:5],
    }


@pytest.mark.parametrize("name", settings([*range(20)]))
def test_a_setting_is_applied_as_generate_applies_it(model, prompt, asking, name):
    asking()
    free = generated(model, prompt)
    value, given = settings(free)[name], {}
    if name.startswith("min_"):  # needs an end, others a repetition
        asking(eos_token_id=[free[4], 0])
    elif "no_repeat" in name:
        asking(repetition_penalty=REPEATING)
    elif name == "stop_strings":
        value = model.tokenizer.backend.decode(free[5:6])
        given = {"tokenizer": generation.tokenizer_of(model)}
    without = generated(model, prompt)
    setattr(model.model.generation_config, name, value)
    expected = generated(model, prompt, **given)
    assert expected != without
    assert drafted(model, prompt, expected) == expected


def test_stop_strings_of_a_config_reach_generate_and_can_be_switched_off(model, prompt, asking):
    asking()
    free = generated(model, prompt)
    asking(stop_strings=[model.tokenizer.backend.decode(free[5:6])])
    for off in ({}, {"stop_strings": None}):
        options = {"tokenizer": generation.tokenizer_of(model), "max_new_tokens": NEW, **off}
        found = ngramkit.generate(model, prompt, drafter="context", budget=4, **options)
        assert found[0, len(prompt) :].tolist() == generated(model, prompt, **options)
        assert (found.shape[1] == len(prompt) + NEW) == bool(off)


def test_every_setting_of_transformers_is_known():
    tables = (generation.APPLIED, generation.APPLIED_TO_SAMPLES, REFUSED_OPTIONS)
    known = set().union(NO_EFFECT, *tables)
    assert {name for name in vars(GenerationConfig()) if name[0] != "_"} <= known


def test_decode_applies_a_config_and_says_so(model, prompt, asking):
    asking(repetition_penalty=REPEATING, max_length=4096, temperature=0.6, do_sample=True)
    notes = []

    class Notes(ngramkit.Reporter):
        def note(self, text):
            notes.append(text)

    answer = ngramkit.decode(TEXT, model, drafter="context", max_new_tokens=NEW, reporter=Notes())
    assert answer.run.token_ids.tolist() == generated(model, prompt)
    [note] = [note for note in notes if "repetition_penalty 0.2" in note]
    assert "temperature" not in note


def test_a_batch_applies_a_config(model, prompt, asking):
    asking(repetition_penalty=REPEATING)
    rows = write_batch(model, [prompt, prompt[4:]], max_new_tokens=NEW, sampling=Sampling())
    assert rows[0].tolist() == generated(model, prompt)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_beams", 4), ("token_healing", True), ("cache_implementation", "quantized")],
)
def test_what_cannot_be_applied_is_refused_by_name(model, asking, name, value):
    asking(**{name: value})
    with pytest.raises(UsageError, match=name):
        ngramkit.decode(TEXT, model, drafter="context", max_new_tokens=4)


def test_samples_follow_settings_for_sampling_too(model, prompt, asking):
    asking(min_p=1.0, top_k=1000, top_p=0.1)  # min_p leaves the likeliest token
    expected = generated(model, prompt)
    assert drafted(model, prompt, expected, temperature=5.0, seed=3) == expected


def test_tiny_temperatures_are_greedy(model, prompt):
    assert Sampling(1e-40).greedy
    assert not Sampling(1e-4).greedy
    expected = generated(model, prompt)
    assert drafted(model, prompt, expected, temperature=1e-40) == expected
    assert drafted(model, prompt, expected, temperature=1e-4) == expected


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=2)])
@pytest.mark.parametrize("tops", [False, True])
def test_nan_is_an_error_in_rows_that_are_asked_for(sampling, tops):
    logits = torch.tensor([[0.0, 1.0, 5.0], [0.0, torch.nan, 1.0], [torch.nan] * 3])
    choice = choice_of(dataclasses.replace(sampling, seed=1))
    choose = choice.read_with_tops(logits)[0] if tops else choice.read(logits)
    assert choose(0) in range(3)
    for row in (1, 2):
        with pytest.raises(InputError, match="NaN"):
            choose(row)


def test_infinite_scores_are_no_error_without_sampling():
    logits = torch.tensor([[0.0, torch.inf, 5.0], [-torch.inf, -torch.inf, 1.0]])
    for choose in (GreedyChoice().read(logits), best_and_tops(logits)[0]):
        assert [choose(0), choose(1)] == [1, 2]
