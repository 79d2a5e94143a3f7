"""Models are probed once, for all processes, and not for short texts: forward calls are counted."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from scripted import NoisyOracle
from tiny_models import tiny_model

import ngramkit
from ngramkit.decode.probe import CACHE, probe_passes
from ngramkit.decode.verifiers import is_known, verify_mode

PROMPT = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])
GREEDY = {"do_sample": False}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder that answers are remembered in, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ngramkit" / CACHE.name


@pytest.fixture
def checkpoint(tmp_path):
    """A function that loads the same model anew, as another process would."""
    torch.manual_seed(0)
    model = tiny_model("llama", vocab_size=60, eos_token_id=None, bos_token_id=None)
    model.save_pretrained(tmp_path / "model")

    def load(**options):
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(tmp_path / "model", **options).eval()

    return load


def counted(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


def drafter(model, tokens):
    text = model.generate(PROMPT, max_new_tokens=tokens, **GREEDY)[0, PROMPT.shape[1] :]
    return NoisyOracle(text.tolist(), 60, 0)


def test_another_process_does_not_probe_again(checkpoint, cache):
    texts, spent = [], []
    for _ in range(2):
        model = checkpoint()
        oracle, calls = drafter(model, 40), counted(model)
        call = {"drafter": oracle, "budget": 6, "max_new_tokens": 40}
        texts.append(ngramkit.generate(model, PROMPT, **call, **GREEDY))
        spent.append(probe_passes(model))
        assert len(calls) - probe_passes(model) < 40
    assert torch.equal(*texts)
    assert spent[0] > 0
    assert spent[1] == 0
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["TreeVerifier"]


def test_a_short_text_is_written_as_without_drafts_until_probing_pays(checkpoint, caplog):
    caplog.set_level("INFO", "ngramkit")
    model = checkpoint()
    oracle, calls = drafter(model, 12), counted(model)
    expected = model.generate(PROMPT, max_new_tokens=12, **GREEDY)
    plain = len(calls)
    own = []
    for _ in range(4):
        before, probes = len(calls), probe_passes(model)
        call = {"drafter": oracle, "budget": 6, "max_new_tokens": 12}
        found = ngramkit.generate(model, PROMPT, **call, **GREEDY)
        assert torch.equal(found, expected)
        probes = probe_passes(model) - probes
        own.append((probes > 0, len(calls) - before - probes))
    assert own[:2] == [(False, plain)] * 2  # 24 tokens
    assert own[2][0]  # 36: it pays
    assert not own[3][0]
    assert max(own[2][1], own[3][1]) < plain
    probes = probe_passes(model)
    assert "llama: no drafts yet" in caplog.text
    assert f"{probes} passes to probe TreeVerifier, which fits; remembered on disk" in caplog.text


def test_what_a_short_text_says_is_learnt_by_the_drafter(checkpoint):
    model, heard = checkpoint(), []

    class Listener(NoisyOracle):
        def start(self, prompt):
            heard.append(prompt.tolist())

        def accept(self, tokens, evidence=None):
            heard.append(tokens.tolist())

        def finish(self):
            heard.append("end")

    padded = torch.cat([torch.zeros(1, 2, dtype=torch.int64), PROMPT], -1)
    found = ngramkit.generate(
        model, padded, drafter=Listener([], 60, 0), max_new_tokens=5, pad_token_id=0,
        attention_mask=(padded != 0).long(), return_dict_in_generate=True, **GREEDY,
    )  # fmt: skip
    assert heard == [PROMPT[0].tolist(), found.sequences[0, padded.shape[1] :].tolist(), "end"]


@pytest.mark.parametrize("call", [{"budget": 0}, {"drafter": None}, {"num_beams": 2}])
def test_what_makes_no_sense_is_refused_for_short_texts_too(checkpoint, call):
    with pytest.raises(ngramkit.UsageError):
        ngramkit.generate(
            checkpoint(), PROMPT, **{"drafter": "context", "max_new_tokens": 4, **GREEDY, **call}
        )


def test_only_the_same_model_run_in_the_same_way_is_known(checkpoint, cache):
    verify_mode(checkpoint())
    assert is_known(checkpoint())
    assert not is_known(checkpoint(attn_implementation="eager"))
    assert not is_known(checkpoint(dtype=torch.bfloat16))
    other = checkpoint()
    other.config.rope_theta = 77.0
    assert not is_known(other)
    nameless = tiny_model("llama", vocab_size=60)
    verify_mode(nameless)
    gc.collect()
    assert len(list(cache.iterdir())) == 1


def test_a_model_that_was_patched_is_probed_anew(checkpoint, caplog):
    verify_mode(checkpoint())
    model = checkpoint()
    forward = model.forward
    model.forward = lambda *args, attention_mask=None, **kwargs: forward(*args, **kwargs)
    assert verify_mode(model) == "batch"
    assert "llama cannot verify a draft as a tree" in caplog.text


def test_a_model_that_takes_no_tree_is_probed_by_each_process(cache):
    model = tiny_model("bloom")
    model.name_or_path = "some/bloom"
    assert verify_mode(model) == "batch"
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == ["BatchVerifier"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no permissions here")
def test_what_others_may_write_is_not_believed(checkpoint, cache):
    verify_mode(checkpoint())
    cache.chmod(0o777)
    assert not is_known(checkpoint())
