"""The tokenizer of a GGUF file, written as a model folder's tokenizer files.

Byte-level BPE is built from the metadata, with the pre-tokeniser that `tokenizer.ggml.pre` names,
so that it splits text as the model's own repository and llama.cpp (src/llama-vocab.cpp) do;
transformers' converter, which ignores that name, converts all other kinds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngramkit.errors import InputError
from ngramkit.gguf.header import Header, broken
from ngramkit.gguf.source import require_package

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
KINDS = {
    "gpt-2": "gpt-2 phi-2 mpt olmo jais trillion",
    "digits": "smollm starcoder refact command-r codeshell exaone minerva-7b",
    "llama-3": "llama-bpe llama3 llama-v3 falcon3 pixtral",
    "qwen-2": "qwen2 deepseek-r1-qwen stablelm2",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
# tokenizer.ggml.token_type (llama.h)
UNKNOWN, CONTROL, USER, UNUSED = 2, 3, 4, 5
NAMED = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}
log = logging.getLogger(__name__)


def write_tokenizer(header: Header, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json. Raises InputError where the file holds no
    tokenizer, a damaged one, or one that needs the package gguf, which is not installed."""
    form, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    if not header.texts("tokenizer.ggml.tokens"):
        raise InputError(f"{header.path} holds no tokenizer", "use another model")
    if form == "gpt2" and pre in KIND_OF:
        body, config = _byte_level(header, KIND_OF[pre]), _config(header)
        _write(folder / "tokenizer.json", body)
        _write(folder / "tokenizer_config.json", config)
        return
    if form == "gpt2":
        log.warning(
            "%s: the pre-tokeniser %.40r is unknown; transformers' conversion is taken, "
            "which may split text differently",
            header.path,
            pre,
        )
    _write_converted(header, folder)


def _write(path: Path, body: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")


def _byte_level(header: Header, kind: str) -> dict[str, Any]:
    tokens, types = header.texts("tokenizer.ggml.tokens"), _types(header)
    vocabulary = {text: i for i, text in enumerate(tokens) if types[i] != UNUSED}
    if len(vocabulary) != len(tokens) - types.count(UNUSED):
        raise broken(header.path, "two tokens have one text")
    merges = [merge.split(" ", 1) for merge in header.texts("tokenizer.ggml.merges")]
    valid = all(len(m) == 2 and {*m, m[0] + m[-1]} <= vocabulary.keys() for m in merges)
    if not merges or not valid:
        raise broken(header.path, "its merges do not fit its tokens")
    return {
        "version": "1.0",
        "added_tokens": [
            _added(i, text, types[i])
            for text, i in vocabulary.items()
            if types[i] in (UNKNOWN, CONTROL, USER)
        ],
        "normalizer": {"type": "NFC"} if kind == "qwen-2" else None,
        "pre_tokenizer": _pre_tokenizer(kind),
        "post_processor": _post_processor(header, kind),
        "decoder": _byte_level_step(),
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": merges,
            "ignore_merges": kind == "llama-3",
        },
    }


def _types(header: Header) -> list[int]:
    """Return the type of every token; 1, normal, where the file has none."""
    count = len(header.texts("tokenizer.ggml.tokens"))
    types = header.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [1] * count
    if getattr(types, "shape", None) != (count,):
        raise broken(header.path, "its tokens and their types are not one to one")
    return [int(i) for i in types]


def _added(i: int, text: str, kind: int) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": text, **plain, "special": kind != USER}


def _byte_level_step(*, splits: bool = False) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": splits,
    }


def _pre_tokenizer(kind: str) -> dict[str, Any]:
    """Return the pre-tokeniser: text into words, words into the alphabet of bytes."""
    if kind == "gpt-2":
        return _byte_level_step(splits=True)
    if kind == "digits":
        first = {"type": "Digits", "individual_digits": True}
        return {"type": "Sequence", "pretokenizers": [first, _byte_level_step(splits=True)]}
    digits = r"\p{N}{1,3}" if kind == "llama-3" else r"\p{N}"
    regex = "|".join((SHORT, LETTERS, digits, REST))
    split = {
        "type": "Split",
        "pattern": {"Regex": regex},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, _byte_level_step()]}


def _post_processor(header: Header, kind: str) -> dict[str, Any] | None:
    """Return the step that puts BOS before a prompt, where the model expects it."""
    bos = _special(header).get("bos_token")
    adds = header.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama-3")
    if bos is None or not adds:
        return None
    token = {"SpecialToken": {"id": bos, "type_id": 0}}
    text = [{"Sequence": {"id": part, "type_id": 0}} for part in "AB"]
    i = header.texts("tokenizer.ggml.tokens").index(bos)
    return {
        "type": "TemplateProcessing",
        "single": [token, text[0]],
        "pair": [token, text[0], token, text[1]],
        "special_tokens": {bos: {"id": bos, "ids": [i], "tokens": [bos]}},
    }


def _special(header: Header) -> dict[str, str]:
    tokens = header.texts("tokenizer.ggml.tokens")
    ids = {key: header.whole(f"tokenizer.ggml.{name}_token_id") for key, name in NAMED.items()}
    if max(ids.values()) >= len(tokens):
        raise broken(header.path, "a special token is none of its tokens")
    return {key: tokens[i] for key, i in ids.items() if i >= 0}


def _config(header: Header) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "TokenizersBackend", **_special(header)}
    template = header.text("tokenizer.chat_template")
    return {**config, "chat_template": template} if template else config


def _write_converted(header: Header, folder: Path) -> None:
    """Write the tokenizer as transformers converts it."""
    require_package("gguf")
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            header.path.parent, gguf_file=header.path.name, trust_remote_code=False
        )
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    except Exception as error:  # strangers' values anywhere in its conversion
        first_line = (str(error).splitlines() or [repr(error)])[0]
        raise InputError(
            f"the tokenizer of {header.path} cannot be converted: {first_line:.200}",
            "use the model's original repository",
        ) from error
    _write(folder / "tokenizer_config.json", _config(header))
