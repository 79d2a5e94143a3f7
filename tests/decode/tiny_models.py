"""Random models of every supported architecture, small enough for a hundred prompts in seconds."""

from __future__ import annotations

from typing import Any

import torch
import transformers

VOCABULARY = 4096  # the demo tokenizer's
WINDOW = 12  # shorter than the prompts

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
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
BLOOM = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "n_layer": 2,
    "n_head": 4,
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MAMBA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
# Not by trees: Bloom takes no 4D mask, Mamba cannot give back a token.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("Bloom", BLOOM),
    "mamba": ("Mamba", MAMBA),
}
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
}


def tiny_model(name: str, **changes: Any) -> Any:
    """A causal LM in float32; the same weights every time."""
    family, settings = {**ARCHITECTURES, **OTHERS}[name]
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    suffix = "LMHeadModel" if name == "gpt2" else "ForCausalLM"
    torch.manual_seed(0)
    return getattr(transformers, f"{family}{suffix}")(config).eval()
