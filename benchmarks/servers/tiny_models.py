"""A model of random weights and 512 ids and its adapters, for real engines; made where vLLM is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY = 512
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj")  # modules that adapters change
LAYERS, WIDTH, RANK = 2, 64, 4


def tiny_model(folder: Path) -> Path:
    """Save a Llama and a tokenizer; return `folder`."""
    if not (folder / "tokenizer.json").exists():
        import torch
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=128,
            num_hidden_layers=LAYERS, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=1024, eos_token_id=1, bos_token_id=0,
            tie_word_embeddings=False,
        )  # fmt: skip
        model: Any = LlamaForCausalLM(config)
        model.float().save_pretrained(folder)
        words = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
        fast: Any = PreTrainedTokenizerFast
        fast(tokenizer_object=words, eos_token="w1").save_pretrained(folder)
    return folder


def tiny_adapter(folder: Path, seed: int) -> Path:
    """Save a LoRA adapter of the `tiny_model`, in peft's format; return `folder`."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    chance = torch.Generator().manual_seed(seed)
    weights = {
        f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{half}.weight": torch.randn(
            (RANK, WIDTH) if half == "A" else (WIDTH, RANK), generator=chance
        )
        for layer in range(LAYERS)
        for name in ADAPTED
        for half in "AB"
    }
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ADAPTED,
        "bias": "none", "task_type": "CAUSAL_LM",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
