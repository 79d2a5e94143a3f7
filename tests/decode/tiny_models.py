"""Random models of every supported architecture, small enough for many prompts in seconds."""

from __future__ import annotations

from typing import Any

import torch
import transformers

VOCABULARY = 4096  # the demo tokenizer's
WINDOW = 12  # shorter than the prompts

ENDS = {"bos_token_id": 0, "eos_token_id": 0}
LLAMA_LIKE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # Wider than usual, so that outputs do not settle on one token.
    "initializer_range": 0.4,
    **ENDS,
    "pad_token_id": 0,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "initializer_range": 0.4,
    **ENDS,
}
BLOOM = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "n_layer": 2,
    "n_head": 4,
    "initializer_range": 0.4,
    **ENDS,
}
MAMBA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 4,
    **ENDS,
}
OPT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "word_embed_proj_dim": 32,
    "init_std": 0.4,
    **ENDS,
}
GPT_NEO = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_layers": 2,
    "attention_types": [[["global", "local"], 1]],
    "num_heads": 4,
    "window_size": WINDOW,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    **ENDS,
}
MPT = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 512,
    "initializer_range": 0.4,
    **ENDS,
}
FALCON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.4,
    **ENDS,
}
DEEPSEEK = {
    **LLAMA_LIKE,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,  # values and keys of different widths
}
ALTERNATING = ["linear_attention", "full_attention"]
DELTA = {
    **LLAMA_LIKE,
    "head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ALTERNATING,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
STATES = {
    **LLAMA_LIKE,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
CONVOLUTIONS = {**LLAMA_LIKE, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA_LIKE),
    "mistral": ("Mistral", {**LLAMA_LIKE, "sliding_window": WINDOW}),
    "phi3": ("Phi3", {**LLAMA_LIKE, "sliding_window": WINDOW}),
    "qwen2": (
        "Qwen2",
        {
            **LLAMA_LIKE,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": 1,  # the second layer slides
        },
    ),
    "qwen3": ("Qwen3", {**LLAMA_LIKE, "head_dim": 16}),
    "gemma2": (
        "Gemma2",
        {**LLAMA_LIKE, "head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 8},
    ),
    "gpt2": ("GPT2", GPT2),
    "falcon": ("Falcon", FALCON),
    "opt": ("OPT", OPT),
    "gptj": ("GPTJ", {**GPT2, "rotary_dim": 4}),
    "stablelm": ("StableLm", {**LLAMA_LIKE, "partial_rotary_factor": 0.5}),
    "gpt_neox": ("GPTNeoX", {**LLAMA_LIKE, "rotary_pct": 0.5}),
    "olmo2": ("Olmo2", LLAMA_LIKE),
    "cohere": ("Cohere", LLAMA_LIKE),
    "starcoder2": ("Starcoder2", {**LLAMA_LIKE, "sliding_window": WINDOW}),
    "granite": ("Granite", LLAMA_LIKE),
    "gpt_bigcode": ("GPTBigCode", GPT2),
    "gpt_oss": (
        "GptOss",
        {
            **LLAMA_LIKE,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "deepseek_v3": ("DeepseekV3", DEEPSEEK),
    "gemma3": (
        "Gemma3",
        {
            **LLAMA_LIKE,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
# Where all of them would take too long: every kind of layer and of mask.
FEW = ("llama", "mistral", "phi3", "qwen2", "qwen3", "gemma2", "gpt2")
# Their biases or windows count columns, or they take no 4D mask: drafts are rows.
ROWS_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("Bloom", BLOOM),
    "falcon_alibi": ("Falcon", {**FALCON, "alibi": True}),
    "mpt": ("Mpt", MPT),
    "gpt_neo": ("GPTNeo", GPT_NEO),
}
# Recurrent layers: every draft is a chain.
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "bamba": ("Bamba", {**STATES, "attn_layer_indices": [1]}),
    "qwen3_next": ("Qwen3Next", {**DELTA, **EXPERTS}),
    "qwen3_5": ("Qwen3_5Text", DELTA),
    "qwen3_5_moe": ("Qwen3_5MoeText", {**DELTA, **EXPERTS}),
    "olmo_hybrid": ("OlmoHybrid", DELTA),
    "falcon_h1": ("FalconH1", {**STATES, "mamba_d_ssm": 64}),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        {
            **STATES,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 16,
        },
    ),
    "mamba2": (
        "Mamba2",
        {
            **LLAMA_LIKE,
            "num_heads": 4,
            "head_dim": 16,
            "state_size": 8,
            "n_groups": 1,
            "chunk_size": 16,
        },
    ),
    "lfm2": ("Lfm2", CONVOLUTIONS),
    "lfm2_moe": ("Lfm2Moe", {**CONVOLUTIONS, **EXPERTS, "num_dense_layers": 1}),
}
# transformers reads several of their tokens at once otherwise than one by one: the first three from
# an empty state; nemotron_h and zamba2 err where they read one after a cache.
INEXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": ("Mamba", MAMBA),
    "falcon_mamba": ("FalconMamba", MAMBA),
    "jamba": (
        "Jamba",
        {
            **LLAMA_LIKE,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
    ),
    "nemotron_h": (
        "NemotronH",
        {
            **LLAMA_LIKE,
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 16,
            "head_dim": 8,
            "layers_block_type": ["mamba", "attention"],
        },
    ),
    "zamba2": (
        "Zamba2",
        {
            **LLAMA_LIKE,
            "num_hidden_layers": 4,
            "mamba_d_state": 8,
            "mamba_headdim": 16,
            "n_mamba_heads": 4,
            "mamba_ngroups": 1,
            "chunk_size": 16,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "hybrid_layer_ids": [1, 3],
            "num_mem_blocks": 1,
        },
    ),
}
ALL = {**ARCHITECTURES, **ROWS_ONLY, **RECURRENT, **INEXACT}


def tiny_model(name: str, **changes: Any) -> Any:
    """A causal LM in float32; the same weights every time."""
    family, settings = ALL[name]
    kind = f"{family}TextConfig" if name == "gemma3" else f"{family}Config"
    config = getattr(transformers, kind)(**{**settings, **changes})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()
