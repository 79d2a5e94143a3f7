"""What is known of a model before it is loaded."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from gguf_files import demo_metadata, write_gguf
from huggingface_hub import constants

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.models import require_causal
from ngramkit.budget.model_files import ModelFacts, read_facts
from ngramkit.decode.placement import require_placement

CONFIG = {"max_position_embeddings": 96, "num_hidden_layers": 3}


def test_a_hub_model_in_the_cache_is_known_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--acme--tiny"
    for commit, facts in (("a" * 40, CONFIG), ("b" * 40, {"text_config": CONFIG})):
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "config.json").write_text(json.dumps(facts))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    assert read_facts("acme/tiny") == ModelFacts(96, 3)
    assert read_facts(f"acme/tiny@{'b' * 40}") == ModelFacts(96, 3)
    assert read_facts("acme/tiny@v1") == read_facts("acme/other") == ModelFacts()
    (cached / "snapshots" / ("a" * 40) / "config.json").write_text('{"is_encoder_decoder": true}')
    with pytest.raises(InputError, match="acme/tiny: it is an encoder-decoder"):
        read_facts("acme/tiny")


def test_a_model_that_predicts_from_both_sides_is_refused():
    masked = {"architectures": ["BertForMaskedLM", "BertForPreTraining"]}
    with pytest.raises(InputError, match=r"acme/tiny: it is a masked model \(BertForMaskedLM\)"):
        require_causal(masked, "acme/tiny")
    for config in (
        {**masked, "is_decoder": True},
        {"architectures": ["BertForMaskedLM", "BertLMHeadModel"]},
        {"architectures": ["LlamaForCausalLM"]},
        {"architectures": [None]},
        {},
    ):
        require_causal(config, "acme/tiny")


@pytest.mark.parametrize("name", ["a:b/c", "-x/y", "x/y ", "x/.y"])
def test_a_name_that_the_hub_never_gives_is_refused(name):
    with pytest.raises(InputError, match="a Hub id must be owner/name"):
        read_facts(name)


def test_of_a_gguf_file_the_front_is_read(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", demo_metadata())
    assert read_facts("demo") == read_facts(str(path))
    sizes = demo_metadata()
    sizes["llama.context_length"] = sizes.pop("llama.context_length")  # behind the tokenizer
    assert read_facts(str(write_gguf(path, sizes))).context is None
    path.write_bytes(path.read_bytes()[:100])  # told when its tokenizer is read
    assert read_facts(str(path)) == ModelFacts()
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not a GGUF file"):
        read_facts(str(path))


@pytest.mark.parametrize("numbers", [{"num_hidden_layers": "2"}, {"num_hidden_layers": True}, []])
def test_odd_configs_tell_nothing(tmp_path, numbers):
    (tmp_path / "config.json").write_text(json.dumps(numbers))
    (tmp_path / "model.safetensors").touch()
    assert read_facts(str(tmp_path)) == ModelFacts()


def test_a_torch_for_cpus_alone_has_no_cuda(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.0+cpu")
    require_placement("cpu", "auto", None)
    with pytest.raises(UsageError, match="cuda:1"):
        require_placement("cuda:1", "auto", None)
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.0")
    require_placement("cuda:1", "auto", None)
