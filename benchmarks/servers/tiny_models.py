"""Models of random weights and 512 ids, and adapters, for real engines; made where vLLM is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY = 512
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj")  # modules that adapters change
LAYERS, WIDTH, RANK = 2, 64, 4
PICTURE = 3  # the id that stands for a picture's tokens
SIDE, QUERIES = 32, 4  # pixels of a picture's side, tokens of a picture


def tiny_model(folder: Path) -> Path:
    """Save a Llama and a tokenizer; return `folder`."""
    if not (folder / "tokenizer.json").exists():
        import torch
        from transformers import LlamaForCausalLM

        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(_llama())
        model.float().save_pretrained(folder)
        _tokenizer().save_pretrained(folder)
    return folder


def tiny_blip(folder: Path) -> Path:
    """Save a Llama that sees pictures, and its processor; return `folder`.

    vLLM imports torchvision for most other models.
    """
    if not (folder / "processor_config.json").exists():
        import torch
        from transformers import (
            Blip2Config,
            Blip2ForConditionalGeneration,
            Blip2Processor,
            Blip2QFormerConfig,
            Blip2VisionConfig,
            BlipImageProcessorPil,
        )

        torch.manual_seed(0)
        small: dict[str, Any] = {
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "initializer_range": 0.5,
        }  # fmt: skip
        config = Blip2Config(
            vision_config=Blip2VisionConfig(image_size=SIDE, patch_size=8, **small),
            qformer_config=Blip2QFormerConfig(encoder_hidden_size=32, **small),
            text_config=_llama(),
            num_query_tokens=QUERIES,
            image_token_index=PICTURE,
        )
        model: Any = Blip2ForConditionalGeneration(config)
        model.query_tokens.data.normal_()
        model.float().save_pretrained(folder)
        pixels: Any = BlipImageProcessorPil(size={"height": SIDE, "width": SIDE})
        both: Any = Blip2Processor
        both(pixels, _tokenizer(), num_query_tokens=QUERIES).save_pretrained(folder)
    return folder


def _llama() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=128,
        num_hidden_layers=LAYERS, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=1024, eos_token_id=1, bos_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip


def _tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    ids = {"<image>" if i == PICTURE else f"w{i}": i for i in range(VOCABULARY)}
    words = Tokenizer(WordLevel(ids, unk_token="w0"))
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=words, eos_token="w1")


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
