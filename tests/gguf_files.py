"""GGUF files as llama.cpp's converter writes them, made without it: the embedded model as one."""

from __future__ import annotations

import json
import struct
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

DEMO = Path(str(files("ngramkit") / "demo" / "model"))
STEP = 32
U32, F32, BOOL, TEXT, LIST, I32 = 4, 6, 7, 8, 9, 5


def text(value: str) -> bytes:
    body = value.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(body)) + body


def value(entry: Any) -> bytes:
    """A type and a value, by what it is in Python."""
    if isinstance(entry, bool):
        return struct.pack("<I?", BOOL, entry)
    if isinstance(entry, int):
        return struct.pack("<II", U32, entry)
    if isinstance(entry, float):
        return struct.pack("<If", F32, entry)
    if isinstance(entry, str):
        return struct.pack("<I", TEXT) + text(entry)
    if entry and isinstance(entry[0], str):
        parts = b"".join(map(text, entry))
        return struct.pack("<IIQ", LIST, TEXT, len(entry)) + parts
    body = np.array(entry, "<i4").tobytes()
    return struct.pack("<IIQ", LIST, I32, len(entry)) + body


def write_gguf(
    path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]] | None = None
) -> Path:
    """float32 tensors, as arrays of the shape that torch has them in."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value(entry) for key, entry in metadata.items())
    at, body = 0, b""
    for name, array in tensors.items():
        shape = array.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        content = array.astype("<f4").tobytes()
        body += content + b"\0" * (-len(content) % STEP)
        at = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % STEP) + body)
    return path


def demo_metadata(**changed: Any) -> dict[str, Any]:
    """What llama.cpp would say of the embedded model; None leaves a pair out."""
    config = json.loads((DEMO / "config.json").read_text())
    body = json.loads((DEMO / "tokenizer.json").read_text())
    vocabulary = sorted(body["model"]["vocab"], key=body["model"]["vocab"].get)
    metadata = {
        "general.architecture": "llama",
        "general.name": "demo",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.vocab_size": len(vocabulary),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [3, *[1] * (len(vocabulary) - 1)],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in body["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    merged = {**metadata, **{key.replace("__", "."): entry for key, entry in changed.items()}}
    return {key: entry for key, entry in merged.items() if entry is not None}


def write_mamba(path: Path) -> Path:
    """A recurrent model of one layer, with the embedded model's tokenizer and random weights."""
    width, inner, state, rank, kernel = 64, 128, 16, 2, 4
    kept = {k: v for k, v in demo_metadata().items() if not k.startswith("llama.")}
    sizes = {
        "context_length": 512, "embedding_length": width, "block_count": 1,
        "feed_forward_length": 0, "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5, "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank,
    }  # fmt: skip
    shapes = {
        "attn_norm.weight": (width,), "ssm_in.weight": (2 * inner, width),
        "ssm_conv1d.weight": (inner, kernel), "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner), "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,), "ssm_a": (inner, state), "ssm_d": (inner,),
        "ssm_out.weight": (width, inner),
    }  # fmt: skip
    layer = {f"blk.0.{name}": shape for name, shape in shapes.items()}
    outer = {"token_embd.weight": (len(kept["tokenizer.ggml.tokens"]), width)}
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.normal(0, 0.3, shape)
        for name, shape in {**outer, "output_norm.weight": (width,), **layer}.items()
    }
    tensors["blk.0.ssm_a"] = -np.abs(tensors["blk.0.ssm_a"])
    metadata = {"general.architecture": "mamba", **{f"mamba.{k}": v for k, v in sizes.items()}}
    return write_gguf(path, {**kept, **metadata}, tensors)


def demo_tensors() -> dict[str, np.ndarray[Any, Any]]:
    """The embedded model's weights under llama.cpp's names, in its order of rotary halves."""
    from safetensors.numpy import load_file

    config = json.loads((DEMO / "config.json").read_text())
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    tensors = {}
    for name, array in load_file(DEMO / "model.safetensors").items():
        array = array.astype(np.float32)
        if name.startswith("model.layers."):
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            part = rest.removesuffix(".weight")
            if part.endswith(("q_proj", "k_proj")):
                count = heads[part[-6]]
                halves = array.reshape(count, 2, len(array) // count // 2, -1)
                array = halves.swapaxes(1, 2).reshape(array.shape)
            tensors[f"blk.{layer}.{names[part]}.weight"] = array
        elif name == "model.embed_tokens.weight":
            tensors["token_embd.weight"] = array
        elif name == "model.norm.weight":
            tensors["output_norm.weight"] = array
    return tensors
