"""The weights of a pass by a model's config, against the parameters that transformers makes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import (
    AqlmConfig,
    AutoConfig,
    AutoModelForCausalLM,
    BitNetQuantConfig,
    BitsAndBytesConfig,
    EetqConfig,
    FPQuantConfig,
    QuantoConfig,
)

from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import ModelSize, gguf_size, model_size
from ngramkit.budget.pass_times import pass_times
from ngramkit.gguf.header import Tensor

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100,
         "num_key_value_heads": 2, "intermediate_size": 96, "pad_token_id": 0}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
CONFIGS = {
    "llama": SMALL,
    "gemma2": {**SMALL, "head_dim": 32},
    "mixtral": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**SMALL, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 80},
    "qwen3_moe": {**SMALL, **EXPERTS, "num_experts": 8, "head_dim": 16, "mlp_only_layers": [1]},
    "olmoe": {**SMALL, "num_experts": 8, "num_experts_per_tok": 3},
    "gpt_oss": {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "glm4_moe": {**SMALL, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 1,
                 "first_k_dense_replace": 1, "head_dim": 16},
    "deepseek_v3": {**SMALL, **EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2,
                    "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
                    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
                    "num_key_value_heads": 4},
    "llama4_text": {**SMALL, "num_local_experts": 4, "intermediate_size_mlp": 112,
                    "interleave_moe_layer_step": 2, "head_dim": 16},
    "ernie4_5_moe": {**SMALL, "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1,
                     "moe_intermediate_size": 48, "moe_layer_start_index": 1},
}  # fmt: skip


def counted(config):
    """(dense, routed) numbers of parameters, without embeddings and head."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    dense = routed = 0
    for name, parameter in model.named_parameters():
        if ".experts." in name:
            routed += parameter.numel()
        elif "embed" not in name and "lm_head" not in name:
            dense += parameter.numel()
    return dense, routed


@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_of_weights_are_those_of_transformers(name):
    config = AutoConfig.for_model(name, **CONFIGS[name])
    dense, routed = counted(config)
    size = model_size(config.to_dict())
    assert size.dense == pytest.approx(dense, rel=0.03)  # norms and biases are left out
    assert size.experts * size.expert == pytest.approx(routed, rel=0.03)
    assert size.head == 6400
    assert model_size(json.loads(config.to_json_string())) == size
    assert model_size({"text_config": config.to_dict()}) == size
    assert (size.experts > 1) == (routed > 0)


TORCH_AO = {"_type": "Float8DynamicActivationInt4WeightConfig", "_data": {"group_size": 128}}
HOW = {  # of stored weights -> their bits
    "GPTQ": ({"quant_method": "gptq", "bits": 3, "group_size": 128}, 3),
    "AWQ": ({"quant_method": "awq", "w_bit": 4, "zero_point": True}, 4),
    "FP8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, 8),
    "format": ({"fmt": "e4m3"}, 8),
    "MXFP4": ({"quant_method": "mxfp4"}, 4),
    "bitsandbytes, 8": (BitsAndBytesConfig(load_in_8bit=True).to_dict(), 8),
    "bitsandbytes, 4": (BitsAndBytesConfig(load_in_4bit=True).to_dict(), 4),
    "EETQ": (EetqConfig().to_dict(), 8),
    "BitNet": (BitNetQuantConfig().to_dict(), 2),
    "AQLM": (AqlmConfig(num_codebooks=2).to_dict(), 4),
    "Quanto": (QuantoConfig(weights="int2").to_dict(), 2),
    "FP-Quant": (FPQuantConfig().to_dict(), 4),
    "compressed-tensors": (
        {"config_groups": {"group_0": {
            "weights": {"num_bits": 4}, "input_activations": {"num_bits": 8}}},
         "format": "pack-quantized", "kv_cache_scheme": {"num_bits": 8}}, 4),
    "compressed-tensors, two": (
        {"config_groups": {name: {"weights": {"num_bits": bits}} for name, bits in
                           (("group_0", 4), ("group_1", 8))}}, 6),
    "ModelOpt, flat": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4),
    "ModelOpt": (
        {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.29"},
         "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}}, 8),
    "ModelOpt, mixed": (
        {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {
            "a": {"quant_algo": "W4A16_AWQ"}, "b": {"quant_algo": "FP8"}}}}, 6),
    "torchao, a name": ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, 4),
    "torchao, activations": ({"quant_type": "int8_dynamic_activation_int4_weight"}, 4),
    "torchao": ({"quant_method": "torchao", "quant_type": {"default": TORCH_AO}}, 4),
    "HQQ": (
        {"quant_method": "hqq", "quant_config": {
            "weight_quant_params": {"nbits": 4}, "scale_quant_params": {"nbits": 8}}}, 4),
    "Quark": (
        {"quant_method": "quark", "layer_quant_config": {"*": {"weight": {"dtype": "int8"}}},
         "global_quant_config": {
             "weight": {"dtype": "int4"}, "input_tensors": {"dtype": "fp8_e4m3"}}}, 4),
    "none": (None, 16),
    "odd": ("odd", 16),
}  # fmt: skip


@pytest.mark.parametrize("name", HOW)
def test_quantised_weights_are_read_sooner(name, caplog):
    how, bits = HOW[name]
    size = model_size({**SMALL, "dtype": "bfloat16", "quantization_config": how})
    plain, one = model_size(SMALL), np.ones(1)
    assert size.read(one) == pytest.approx(size.head + bits / 16 * (plain.read(one) - size.head))
    assert (size.unknown, caplog.records) == ("", [])


def test_quantisation_in_other_places_counts():
    four = model_size({**SMALL, "quantization_config": {"bits": 4}})
    assert model_size({**SMALL, "quantization": {"group_size": 64, "bits": 4}}) == four  # MLX
    assert model_size({**SMALL, "compression_config": {"bits": 4}}) == four
    inner, outer = {"text_config": SMALL}, {"quantization_config": {"bits": 4}}
    assert model_size({**inner, **outer}) == four


def test_an_unknown_quantisation_is_said_once(caplog):
    config = {**SMALL, "quantization_config": {"quant_method": "unheard of", "version": "2"}}
    first, second = model_size(config), model_size(config)
    assert first == second == replace(model_size(SMALL), unknown="unheard of")
    assert [record.getMessage() for record in caplog.records] == [
        "unknown quantisation 'unheard of': passes are priced as if its weights had 16 bits"
    ]


@pytest.mark.parametrize(
    ("left_out", "attention", "shared"),
    [
        (["model.layers.*.self_attn", "lm_head"], 1, 0),  # gpt-oss
        (["re:.*self_attn.*", "re:.*shared_experts.*"], 1, 1),  # Kimi K2
        ([f"model.layers.{i}.self_attn.q_proj" for i in (0, 2)], 0.5, 0),
        (["model.visual.blocks.0.attn.qkv_proj", "model.layers.0.self_attn.kv_b_proj"], 0, 0),
        (["model.layers.0.mlp.shared_expert_gate"], 0, 0),
    ],
)
def test_modules_that_quantisation_leaves_out_are_read_in_full_width(left_out, attention, shared):
    config = {**SMALL, **EXPERTS, "num_experts": 8, "n_shared_experts": 1}
    full = 4 * 64 * 16 * 12 * attention + 4 * 3 * 64 * 48 * shared
    plain = model_size(config)
    for how in ({"bits": 4, "ignore": left_out}, {"x": {"exclude_modules": left_out, "bits": 4}}):
        size = model_size({**config, "quantization_config": how})
        others = size.head + full + (size.dense - full) / 4
        assert size.stored_dense * (size.dense + size.head) == pytest.approx(others)
        assert (size.stored_expert, size.dense) == (0.25, plain.dense)


def test_experts_may_have_bits_of_their_own():
    how = {"quantization_config": {"quant_method": "fp8", "expert_dtype": "fp4"}}
    config = {**SMALL, **EXPERTS, "num_experts": 8}
    size, eight = model_size({**config, **how}), model_size({**config, "quantization": {"bits": 8}})
    assert size == replace(eight, stored_expert=0.25)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: {"language_config": text},
        lambda text: {"llm_config": text, "vision_config": {**SMALL, "vocab_size": 0}},
        lambda text: {
            "talker_config": {"text_config": {**SMALL, "vocab_size": 9}},
            "thinker_config": {"audio_config": {"d_model": 8}, "text_config": text},
        },
    ],
)
def test_the_language_models_config_is_found(wrap):
    text = {**SMALL, "hidden_size": 32}
    assert model_size(wrap(text)) == model_size(text)


def test_layers_without_attention_have_no_cache():
    """As LFM2's GGUF: one number of key heads for each layer, 0 for convolutions."""
    config = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16}
    every = model_size({**config, "num_key_value_heads": 2})
    some = model_size({**config, "num_key_value_heads": [0, 2, 0, 2]})
    assert some.cached == every.cached / 2


def test_a_gguf_header_has_the_same_facts():
    header = {
        "general.architecture": "glm4moe", "glm4moe.embedding_length": 64,
        "glm4moe.block_count": 4, "glm4moe.feed_forward_length": 96,
        "glm4moe.attention.head_count": 4, "glm4moe.attention.head_count_kv": 2,
        "glm4moe.attention.key_length": 16, "glm4moe.expert_count": 8,
        "glm4moe.expert_used_count": 2, "glm4moe.expert_feed_forward_length": 48,
        "glm4moe.expert_shared_count": 1, "glm4moe.leading_dense_block_count": 1,
        "glm4moe.vocab_size": 100,
    }  # fmt: skip
    size = model_size(AutoConfig.for_model("glm4_moe", **CONFIGS["glm4_moe"]).to_dict())
    assert gguf_size(header) == size
    strings = {key: str(value) for key, value in header.items()}  # as in llama-cpp-python
    strings["glm4moe.attention.head_count_kv"] = "[2, 2, 2, 2]"
    assert gguf_size(strings) == size
    header["glm4moe.attention.head_count_kv"] = np.array([2, 2, 2, 2], "<i4")
    assert gguf_size(header) == size
    q4_k = replace(size, stored_dense=4.5 / 16, stored_expert=4.5 / 16)
    assert gguf_size({**strings, "general.file_type": "15"}) == q4_k
    header.pop("glm4moe.vocab_size")
    tensors = [
        Tensor("token_embd.weight", (64, 100), 1), Tensor("output.weight", (64, 100), 8),
        Tensor("output_norm.weight", (64,), 0), Tensor("blk.0.attn_q.weight", (64, 300), 2),
        Tensor("blk.1.ffn_up_exps.weight", (64, 48, 8), 39),
    ]  # fmt: skip
    found = gguf_size(header, {tensor.name: tensor for tensor in tensors})
    assert found.head == size.head
    assert found.stored_dense == pytest.approx((8.5 + 3 * 4.5) / 4 / 16)  # Q8_0 and Q4_0
    assert found.stored_expert == 4.25 / 16  # MXFP4


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
KEYS = st.sampled_from([*{key for each in CONFIGS.values() for key in each}, "layers_block_type",
                        "hybrid_override_pattern", "quantization_config", "moe_layer_freq",
                        "text_config", "ffn_config", "moe_layers"])  # fmt: skip


@given(st.dictionaries(KEYS, ODD | st.lists(ODD, max_size=3) | st.dictionaries(KEYS, ODD)))
def test_any_config_gives_a_size_or_none(config):
    size = model_size({**SMALL, **config})
    if size is not None:
        times = ModelCost(128, size).times(np.arange(1.0, 9.0), 1, 100.0)
        assert np.isfinite(times).all()
        assert (np.diff(times) >= 0).all()


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 64), st.integers(1, 64))
def test_distinct_experts_are_what_drawing_them_gives(tokens, experts, chosen):
    chosen = min(chosen, experts)
    found = float(ModelSize(experts=experts, chosen=chosen).distinct(np.array([float(tokens)]))[0])
    assert chosen - 1e-9 <= found <= min(experts, tokens * chosen) + 1e-9
    random = np.random.default_rng(0)
    rounds = [
        len({e for _ in range(tokens) for e in random.permutation(experts)[:chosen].tolist()})
        for _ in range(8)
    ]
    assert abs(np.mean(rounds) - found) <= 3 * np.sqrt(experts / 4 / 8) + 0.2


def test_the_formula_gives_the_costs_that_docs_print_for_glm_4_5_air():
    config = AutoConfig.for_model(
        "glm4_moe", hidden_size=4096, num_hidden_layers=46, num_attention_heads=96,
        num_key_value_heads=8, head_dim=128, vocab_size=151_552, intermediate_size=10_944,
        moe_intermediate_size=1408, n_routed_experts=128, num_experts_per_tok=8,
        n_shared_experts=1, first_k_dense_replace=1,
    )  # fmt: skip
    times = pass_times(None, model_size(config.to_dict())).times(np.array([1.0, 2, 4, 5, 8]))
    assert (times / times[0]).round(2).tolist() == [1, 1.46, 2.30, 2.68, 3.69]
