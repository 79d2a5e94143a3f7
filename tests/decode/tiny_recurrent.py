"""Random models with recurrent layers, as tiny_models has those with attention alone."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from tiny_models import LLAMA_LIKE, MAMBA

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
# Names as transformers has them; every draft of these is a chain.
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
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
# an empty state; bamba, nemotron_h and zamba2 err where they read one behind a cache.
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
    "bamba": ("Bamba", {**STATES, "attn_layer_indices": [1]}),
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


def recurrent_model(name: str, **changes: Any) -> Any:
    """A causal LM in float32; the same weights every time."""
    family, settings = {**RECURRENT, **INEXACT}[name]
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()
