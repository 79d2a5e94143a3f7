"""Small tokenizers in the layouts of real models' repositories, made without transformers."""

from __future__ import annotations

import json

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from ngramkit.corpus.stdlib import stdlib_files

END, IM_END = "<|endoftext|>", "<|im_end|>"


def byte_level():
    """Return a tokenizer as GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, [END, IM_END], alphabet)


def sentence_pieces():
    """Return a tokenizer as Llama 2's: bytes where no piece fits, a space and BOS at the start."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    prepend, replace = normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([prepend, replace])
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    body = json.loads(trained(tokenizer, ["<unk>", "<s>", "</s>", *bytes_], []).to_str())
    body["added_tokens"] = body["added_tokens"][:3]  # the bytes are ordinary pieces
    tokenizer = Tokenizer.from_str(json.dumps(body))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    bos = [("<s>", 1)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", bos)
    return tokenizer


def trained(tokenizer, special, alphabet):
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    texts = [path.read_text(encoding="utf-8") for _, path in stdlib_files()[:3]]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def added(content, special=True, normalized=False):
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    return {"content": content, "normalized": normalized, "special": special, **flags}


LISTED = {str(i): added(content) for i, content in enumerate(["<unk>", "<s>", "</s>"])}
LLAMA = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "legacy": False,
    "add_bos_token": True,
    "added_tokens_decoder": LISTED,
}
OLD = {"__type": "AddedToken", **{k: v for k, v in added("</s>").items() if k != "special"}}
VICUNA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": OLD, "legacy": True}
MORE = {**LISTED, "700": added("<pad>"), "701": added("<tool>", special=False, normalized=True)}
CODE = {"tokenizer_class": "CodeLlamaTokenizer"}
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}bot:"
QWEN = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": IM_END, "chat_template": CHAT}
NEOX = {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False}
GPT2 = {"tokenizer_class": "GPT2Tokenizer", "eos_token": END}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
# name: (made by, tokenizer_config.json, config.json's model_type, further files)
SHAPES = {
    "llama-2": ("pieces", LLAMA, "llama", {}),
    "llama-2-legacy": ("pieces", {**LLAMA, "legacy": True}, "llama", {}),
    "llama-2-no-prefix": ("pieces", {**LLAMA, "add_prefix_space": False}, "llama", {}),
    "llama-2-no-config": ("pieces", LLAMA, None, {}),
    "llama-2-more-tokens": (
        "pieces",
        {**LLAMA, "added_tokens_decoder": MORE, "additional_special_tokens": ["<x>"]},
        "llama",
        {},
    ),
    "vicuna": (
        "pieces",
        VICUNA,
        "llama",
        {"special_tokens_map.json": {"eos_token": added("</s>"), "pad_token": "<unk>"}},
    ),
    "mistral": ("pieces", LLAMA, "mistral", {}),
    "phi-3": ("pieces", LLAMA, "phi3", {}),
    "codellama": ("pieces", {**LLAMA, **CODE}, "llama", {}),
    "codellama-no-infill": ("pieces", {**LLAMA, **CODE, "prefix_token": None}, "llama", {}),
    "gemma": ("pieces", {**LLAMA, "tokenizer_class": "GemmaTokenizer"}, "gemma2", {}),
    "gpt2": ("bytes", {"model_max_length": 1024}, "gpt2", {}),
    "gpt2-prefix": ("bytes", {**GPT2, "add_prefix_space": True}, "gpt2", {}),
    "gpt2-added": ("bytes", GPT2, "gpt2", {"added_tokens.json": {"<zz>": 700, "<yy>": 701}}),
    "starcoder2": ("bytes", {**GPT2, "additional_special_tokens": ["<fim>"]}, "starcoder2", {}),
    "opt": ("bytes", {**GPT2, "eos_token": "</s>", "pad_token": "<pad>"}, "opt", {}),
    "neox": ("bytes", NEOX, "gpt_neox", {}),
    "mpt": ("bytes", NEOX, "mpt", {}),
    "qwen2": ("bytes", {**QWEN, "bos_token": None}, "qwen2", {}),
    "qwen3": ("bytes", QWEN, "qwen3", {}),
    "qwen3.5": ("bytes", QWEN, "qwen3_5", {}),
    "qwen-bare": ("bytes", None, "qwen3", {}),
    "cohere": ("bytes", {"tokenizer_class": "CohereTokenizerFast"}, "cohere", {}),
    "llama-3": ("bytes", {**FAST, "bos_token": IM_END}, "llama", {}),
    "llama-bytes": ("bytes", {**GPT2, "tokenizer_class": "LlamaTokenizer"}, "llama", {}),
    "smollm": ("bytes", {**GPT2, "eos_token": IM_END}, "llama", {}),
    "granite": ("bytes", GPT2, "granite", {}),
    "falcon": ("bytes", FAST, "falcon", {}),
    "bloom": ("bytes", {**FAST, "tokenizer_class": "BloomTokenizerFast"}, "bloom", {}),
    "images": (
        "bytes",
        {**FAST, "extra_special_tokens": {"image_token": "<image>"}, "video_token": "<video>"},
        "smollm3",
        {},
    ),
    "bare": ("bytes", None, "llama", {}),
    "template-file": ("bytes", QWEN, "qwen3", {"chat_template.jinja": "jinja " + CHAT}),
}


def write_all(folder):
    """Write a folder of each shape; return {name: path}."""
    makers = {"bytes": byte_level().to_str(), "pieces": sentence_pieces().to_str()}
    return {
        name: write(folder / name, makers[made], *rest) for name, (made, *rest) in SHAPES.items()
    }


def write(folder, body, config, kind, more):
    folder.mkdir()
    files = {"tokenizer_config.json": config, "config.json": kind and {"model_type": kind}, **more}
    (folder / "tokenizer.json").write_text(body, encoding="utf-8")
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        if content is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder
