"""Models whose inputs `generate` prepares in its own way: the same text, or refused by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers
from tiny_models import tiny_model

import ngramkit
from ngramkit.basics.errors import InputError, UsageError
from ngramkit.decode.probe import agrees_with_generate, critical_lengths
from ngramkit.decode.verifiers import choose_verify_mode, require_own_inputs
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier

TEXT = {
    "vocab_size": 120, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "initializer_range": 0.4, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip
EYES = {"hidden_size": 32, "intermediate_size": 32}
IDS = torch.tensor([[10, 71, 33, 90, 12, 55, 71, 33, 90, 12]])
CALL = {"do_sample": False, "max_new_tokens": 16}


def gemma():
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    text = {**TEXT, "head_dim": 8, "query_pre_attn_scalar": 8}
    eyes = {**EYES, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}
    config = Gemma3Config(
        text_config=text, vision_config={**eyes, "patch_size": 14}, image_token_index=110,
        boi_token_index=111, eoi_token_index=112, mm_tokens_per_image=1,
    )  # fmt: skip
    return Gemma3ForConditionalGeneration(config)


def qwen():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_scaling": rope},
        vision_config={**EYES, "depth": 1, "num_heads": 2, "out_hidden_size": 32},
        image_token_id=110, video_token_id=111, vision_start_token_id=112,
        vision_end_token_id=113,
    )  # fmt: skip
    return Qwen2_5_VLForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("make", "types"), [(gemma, "token_type_ids"), (qwen, "mm_token_type_ids")]
)
def test_models_that_see_are_asked_with_text_alone(make, types):
    torch.manual_seed(0)
    model = make().eval()
    expected = model.generate(IDS, **CALL)
    for given in ({}, {types: torch.zeros_like(IDS)}):
        found = ngramkit.generate(model, IDS, drafter="prompt-lookup", budget=8, **given, **CALL)
        assert torch.equal(found, expected)


def test_an_image_is_refused_by_name():
    image = {"pixel_values": torch.zeros(1, 3, 28, 28)}
    ids = IDS.clone()
    ids[0, 3] = 110
    with pytest.raises(UsageError, match="images"):
        ngramkit.generate(gemma().eval(), ids, drafter="none", **image, **CALL)


def test_decoders_that_count_positions_from_elsewhere_get_generates():
    """RoBERTa numbers positions from its padding id on, but not under `generate`."""
    torch.manual_seed(0)
    config = transformers.RobertaConfig(**{**TEXT, "num_hidden_layers": 1}, is_decoder=True)
    model = transformers.RobertaForCausalLM(config).eval()
    expected = model.generate(IDS, **CALL)
    for drafter in ("none", "prompt-lookup"):
        found = ngramkit.generate(model, IDS, drafter=drafter, budget=8, **CALL)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", [None, "tree", "batch", "chain"])
def test_a_model_without_a_cache_is_refused_in_every_mode(mode):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4}
    sizes["initializer_range"] = 0.4
    model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes)).eval()
    with pytest.raises(InputError, match="openai-gpt"):
        choose_verify_mode(model, mode)


class Tuned:
    """Puts virtual tokens before the prompt, as peft's prompt and prefix tuning do."""

    active_peft_config = SimpleNamespace(peft_type="PROMPT_TUNING")

    def __init__(self, model):
        self._model, self._prepare = model, model.prepare_inputs_for_generation

    def prepare(self, ids, is_first_iteration=False, **given):
        inputs = self._prepare(ids, is_first_iteration=is_first_iteration, **given)
        if is_first_iteration:
            embedded = self._model.get_input_embeddings()(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = torch.cat([embedded[:, :1], embedded], 1)
            inputs.pop("position_ids", None)
        return inputs


class Bound:
    """A method of `owner` that raises."""

    def __init__(self, owner):
        self.__self__ = owner

    def __call__(self, *arguments, **given):
        raise TypeError("more arguments")


def test_virtual_tokens_are_refused_by_name_also_after_a_probe():
    model = tiny_model("llama")
    assert choose_verify_mode(model) == "tree"
    tuned = Tuned(model)
    model.prepare_inputs_for_generation = tuned.prepare
    for mode in (None, "batch"):
        with pytest.raises(InputError, match="PROMPT_TUNING"):
            choose_verify_mode(model, mode)
    with pytest.raises(InputError, match="PROMPT_TUNING"):
        ngramkit.generate(model, IDS, drafter="none", **CALL)
    with pytest.raises(InputError, match="PROMPT_TUNING"):
        ngramkit.generate(model, IDS, cache=ngramkit.SpeCache(group=8), **CALL)


def test_prefix_tuning_is_refused_by_name_where_its_inputs_cannot_be_prepared():
    model = tiny_model("llama")
    tuned = Tuned(model)
    tuned.active_peft_config = SimpleNamespace(peft_type="PREFIX_TUNING", is_prompt_learning=True)
    with pytest.raises(InputError, match="PREFIX_TUNING"):
        require_own_inputs(SimpleNamespace(prepare_inputs_for_generation=Bound(tuned)))


@pytest.mark.parametrize("kind", [TreeVerifier, BatchVerifier])
def test_positions_that_generate_would_not_give_are_found_out(kind, monkeypatch):
    model = tiny_model("llama")
    prepare = model.prepare_inputs_for_generation

    def shifted(ids, **given):
        inputs = prepare(ids, **given)
        return {**inputs, "position_ids": inputs["position_ids"] * 2}

    assert agrees_with_generate(model, kind)
    monkeypatch.setattr(model, "prepare_inputs_for_generation", shifted)
    assert not agrees_with_generate(model, kind)


@pytest.mark.parametrize("kind", [TreeVerifier, BatchVerifier])
def test_a_switch_that_the_config_does_not_explain_is_found_out(kind):
    """Code that a checkpoint brings may stretch all positions once a text is long."""
    model = tiny_model("llama")
    model.config.original_max_position_embeddings = 64
    assert critical_lengths(model) == [64, 512]
    assert agrees_with_generate(model, kind)
    rope = model.model.rotary_emb
    turn = rope.forward
    rope.forward = lambda x, position_ids: turn(
        x, position_ids * (1 + int(position_ids.max() >= 64))
    )
    assert not agrees_with_generate(model, kind)
