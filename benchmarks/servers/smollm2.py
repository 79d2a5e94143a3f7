"""SmolLM2-135M-Instruct (`make real-model`) as a folder that engines read."""

from __future__ import annotations

from pathlib import Path

MODEL = "smollm2-135m"


def hub_folder(folder: Path) -> Path:
    """Write the model as transformers' own files, which vLLM reads, in float32; return `folder`."""
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    from benchmarks.llama_cpp import smollm2_file
    from ngramkit.corpus.tokenizer import load_tokenizer

    gguf = smollm2_file()
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # Not by transformers: it reads the tokenizer of this file otherwise than the model's own.
    tokenizer = load_tokenizer(str(gguf))
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    plain.load_state_dict(loaded.state_dict())
    saved = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer.backend, eos_token=tokenizer.eos_token
    )
    saved.chat_template = tokenizer.chat_template
    saved.save_pretrained(folder)
    plain.save_pretrained(folder)
    return folder
