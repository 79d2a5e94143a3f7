"""Conversion of a GGUF file's tokenizer to tokenizer files.

transformers' converter ignores the pre-tokeniser that `tokenizer.ggml.pre` names, so byte-level BPE
is built here, as in llama.cpp (src/llama-vocab.cpp).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from ngramkit.basics.errors import InputError, first_line
from ngramkit.basics.machine import require_package
from ngramkit.gguf.header import EXTRA, Header, damaged_gguf

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PRE_TOKENIZERS_BY_KIND = {
    "gpt-2": "gpt-2 phi-2 mpt olmo jais trillion",
    "digits": "smollm starcoder refact command-r codeshell exaone minerva-7b",
    "llama-3": "llama-bpe llama3 llama-v3 falcon3 pixtral",
    "qwen-2": "qwen2 deepseek-r1-qwen stablelm2",
}
KIND_BY_PRE_TOKENIZER = {
    name: kind for kind, names in PRE_TOKENIZERS_BY_KIND.items() for name in names.split()
}
# tokenizer.ggml.token_type (llama.h)
UNKNOWN, CONTROL, USER, UNUSED = 2, 3, 4, 5
# Tokens that end a generation, by text and by role (llama.cpp, src/llama-vocab.cpp).
ENDS = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
}  # fmt: skip
END_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
HARMONY = {"<|return|>", "<|call|>"}  # if both exist, <|end|> only ends a message
NAMED = {
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding",
}  # fmt: skip
log = logging.getLogger(__name__)


def write_tokenizer(header: Header, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Raises InputError for a missing or damaged tokenizer, UsageError if gguf is needed but missing.
    """
    form, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    if not header.texts("tokenizer.ggml.tokens"):
        raise InputError(f"cannot use {header.path}: it holds no tokenizer", "Use another model.")
    if form == "gpt2" and pre in KIND_BY_PRE_TOKENIZER:
        _byte_level(header, KIND_BY_PRE_TOKENIZER[pre]).save(
            str(folder / "tokenizer.json"), pretty=False
        )
    else:
        if form == "gpt2":
            log.warning(
                "%s: unknown pre-tokeniser %.40r; using transformers' conversion, "
                "which may split text differently",
                header.path,
                pre,
            )
        _write_converted(header, folder)
    config: dict[str, Any] = {"tokenizer_class": "TokenizersBackend", **_special_tokens(header)}
    if template := header.text("tokenizer.chat_template"):
        config["chat_template"] = template
    text = json.dumps(config, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def end_ids(header: Header) -> list[int]:
    """Return the sorted ids that end a generation in llama.cpp.

    Raises InputError for an id outside the vocabulary.
    """
    id_of = {text: i for i, text in enumerate(header.texts("tokenizer.ggml.tokens"))}
    texts = ENDS & id_of.keys()
    if texts >= HARMONY:
        texts -= {"<|end|>"}
    roles = {header.whole(f"tokenizer.ggml.{role}_token_id") for role in END_ROLES} - {-1}
    if max(roles, default=0) >= len(id_of):
        raise damaged_gguf(header.path, "a special token is outside the vocabulary")
    return sorted(roles | {id_of[text] for text in texts})


def _byte_level(header: Header, kind: str) -> Tokenizer:
    tokens, types = header.texts("tokenizer.ggml.tokens"), _token_types(header)
    vocabulary = {text: i for i, text in enumerate(tokens) if types[i] != UNUSED}
    if len(vocabulary) != len(tokens) - types.count(UNUSED):
        raise damaged_gguf(header.path, "two tokens have one text")
    parts = (merge.partition(" ") for merge in header.texts("tokenizer.ggml.merges"))
    merges = [(left, right) for left, _, right in parts]
    valid = all({*pair, "".join(pair)} <= vocabulary.keys() for pair in merges)
    if not merges or not valid:
        raise damaged_gguf(header.path, "its merges do not fit its tokens")
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=kind == "llama-3"))
    if kind == "qwen-2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    bos = _special_tokens(header).get("bos_token")
    if bos is not None and header.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama-3"):
        bos_id = header.whole("tokenizer.ggml.bos_token_id")
        piece = {"id": "BOS", "ids": [bos_id], "tokens": [bos]}
        tokenizer.post_processor = processors.TemplateProcessing("BOS $A", "BOS $A BOS $B", [piece])
    tokenizer.add_tokens(
        [
            AddedToken(text, normalized=False, special=types[i] != USER)
            for text, i in vocabulary.items()
            if types[i] in (UNKNOWN, CONTROL, USER)
        ]
    )
    return tokenizer


def _token_types(header: Header) -> list[int]:
    count = len(header.texts("tokenizer.ggml.tokens"))
    types = header.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [1] * count
    if getattr(types, "shape", None) != (count,):
        raise damaged_gguf(header.path, "tokens and token types differ in number")
    return [int(i) for i in types]


def _pre_tokenizer(kind: str) -> PreTokenizer:
    if kind in ("gpt-2", "digits"):
        words: PreTokenizer = ByteLevel(add_prefix_space=False)
        return words if kind == "gpt-2" else Sequence([Digits(individual_digits=True), words])
    digits = r"\p{N}{1,3}" if kind == "llama-3" else r"\p{N}"
    regex = Regex("|".join((SHORT, LETTERS, digits, REST)))
    split = Split(regex, "isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def _special_tokens(header: Header) -> dict[str, str]:
    tokens = header.texts("tokenizer.ggml.tokens")
    ids = {key: header.whole(f"tokenizer.ggml.{name}_token_id") for key, name in NAMED.items()}
    if max(ids.values()) >= len(tokens):
        raise damaged_gguf(header.path, "a special token is outside the vocabulary")
    return {key: tokens[i] for key, i in ids.items() if i >= 0}


def _write_converted(header: Header, folder: Path) -> None:
    require_package("gguf", "read the tokenizer of this GGUF file", EXTRA)
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            header.path.parent, gguf_file=header.path.name, trust_remote_code=False
        )
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    except Exception as error:  # the file is untrusted
        raise InputError(
            f"cannot convert the tokenizer of {header.path}: {first_line(error):.200}",
            "Use the model's original repository.",
        ) from error
