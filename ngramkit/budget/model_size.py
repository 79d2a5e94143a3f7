"""The weights that a pass reads, from a model's config.

A mixture of experts reads the experts that its tokens choose: of E experts, with k for each token,
T tokens choose E (1 - (1 - k / E)^T) different ones on average if they choose independently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ngramkit.budget.stored_bits import (
    bits_of_weights,
    positive_number,
    quantisation_of,
    share_left_out,
    unknown_method,
)
from ngramkit.gguf.header import BLOCKS, Tensor

Floats = npt.NDArray[np.float64]

HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", *HEADS)
INNER = ("intermediate_size_mlp", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k",
          "top_k_experts")  # fmt: skip
EXPERT_INNER = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size",
                "ffn_hidden_size")  # fmt: skip
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
SHARED_INNER = ("shared_expert_intermediate_size", "shared_intermediate_size",
                "moe_shared_expert_intermediate_size", "share_expert_dim")  # fmt: skip
VOCABULARY = ("vocab_size", "padded_vocab_size")
# Patterns of modules that quantisation may leave out.
ATTENTION = r"(?:attn|attention)(?:\W*$|.*\bq(?:kv|_[ab])?_proj)"
SHARED_EXPERTS = r"shared_experts?(?:\W*$|.*up_proj)"


@dataclass(frozen=True)
class ModelSize:
    """Numbers of weights, and the bits of stored ones over those that they compute in."""

    dense: float = 1.0  # that every token uses, shared experts too, without the head
    head: float = 0.0  # of the output layer
    expert: float = 0.0  # of one routed expert, in all layers
    experts: int = 1  # routed ones of a layer
    chosen: int = 1  # of them by each token
    stored_dense: float = 1.0  # with the head
    stored_expert: float = 1.0
    cached: float = 0.0  # numbers in the KV cache for a token
    attended: float = 0.0  # multiplications of a new token for each token before it
    unknown: str = ""  # quantisation whose bits are not known

    @property
    def used(self) -> float:
        return self.dense + self.head + self.chosen * self.expert

    @property
    def total(self) -> float:
        return self.dense + self.head + self.experts * self.expert

    def distinct(self, tokens: Floats) -> Floats:
        """Return the expected number of distinct experts of a layer that `tokens` load."""
        missed = 1 - min(self.chosen / self.experts, 1.0)
        loaded: Floats = self.experts * (1 - missed**tokens)
        return loaded

    def read(self, tokens: Floats) -> Floats:
        """Return the weights that a pass reads, in weights of the width it computes in."""
        experts = self.stored_expert * self.expert * self.distinct(tokens)
        read: Floats = self.stored_dense * (self.dense + self.head) + experts
        return read


def model_size(outer: Mapping[str, Any], dtype: str | None = None) -> ModelSize | None:
    """Return the size by the values of a config.json; None if they do not show it.

    `dtype`: the type that the model computes in, in place of the config's.
    """
    config = language_config(outer)
    experts_config = config.get("ffn_config")  # of DBRX
    every = {**(experts_config if isinstance(experts_config, Mapping) else {}), **config}
    hidden = positive_number(every, HIDDEN)
    experts, chosen = int(positive_number(every, EXPERTS)), int(positive_number(every, CHOSEN))
    mixers, plain, sparse = _count_layers(every, mixed=experts > 1 and chosen > 0)
    if not hidden or not mixers:
        return None
    attention, cached, attended = _attention_size(every, hidden)
    matrices = 2 if every.get("mlp_hidden_act") == "relu2" else 3  # gate, up, down
    width = positive_number(every, EXPERT_INNER)
    shared = positive_number(every, SHARED_INNER) or positive_number(every, SHARED) * width
    if str(every.get("model_type")).startswith("llama4"):
        shared = width
    inside = plain * (positive_number(every, INNER) or 4 * hidden) + sparse * shared
    dense = mixers * attention + matrices * hidden * inside + sparse * hidden * experts
    size = ModelSize(
        dense=dense,
        head=positive_number(every, VOCABULARY) * hidden,
        expert=matrices * hidden * width * sparse,
        experts=experts if sparse else 1,
        chosen=min(chosen, experts) if sparse else 1,
        cached=mixers * cached,
        attended=mixers * attended,
    )
    how = quantisation_of(outer) or quantisation_of(config)
    if how is None:
        return size
    wide = mixers * attention * share_left_out(how, ATTENTION, mixers)
    wide += matrices * hidden * sparse * shared * share_left_out(how, SHARED_EXPERTS, mixers)
    types = {**outer, **every} if dtype is None else {"dtype": dtype}
    native = 32 if str(types.get("dtype") or types.get("torch_dtype")).endswith("32") else 16
    bits = bits_of_weights(how)
    stored = (bits or native) / native
    of_expert = str(how.get("expert_dtype") or every.get("expert_dtype"))
    expert_bits = bits_of_weights({"dtype": of_expert}) if bits else 0.0
    return replace(
        size,
        stored_dense=(size.head + wide + stored * (dense - wide)) / (dense + size.head),
        stored_expert=(expert_bits or bits or native) / native,
        unknown="" if bits else unknown_method(how),
    )


def _config_values(config: Any) -> Mapping[str, Any]:
    to_dict = getattr(config, "to_dict", None)
    values = to_dict() if callable(to_dict) else config
    return values if isinstance(values, Mapping) else {}


def served_config(model: Any) -> dict[str, Any]:
    """Return the language model's config.json as an engine serves it.

    `model`: a ModelConfig of vLLM or SGLang. Its dtype counts, and its quantization unless the
    checkpoint is quantised.
    """
    outer = _config_values(getattr(model, "hf_config", None))
    values = dict(_config_values(getattr(model, "hf_text_config", None)) or outer)
    how = quantisation_of(outer) or quantisation_of(values)
    method = getattr(model, "quantization", None)
    if how is None and method is not None:  # while the weights are loaded
        given = getattr(model, "quantization_config", None)
        how = {"quant_method": str(method), "given": str(given or "")}
    values["quantization_config"] = how
    dtype = getattr(model, "dtype", None) or values.get("dtype") or outer.get("dtype")
    return {**values, "dtype": str(dtype)} if dtype else values


def language_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the language model: of nested ones with layers, that of the most ids."""
    best, most, nested = config, (-1.0, False), [("", config)]
    for name, values in nested:  # which grows
        rank = positive_number(values, VOCABULARY), bool(re.search("text|lang|llm", name))
        if rank > most and positive_number(values, LAYERS):
            best, most = values, rank
        nested += [(str(key), each) for key, each in values.items() if isinstance(each, Mapping)]
    return best


GGUF_KEYS = {  # of a header, after its architecture -> of a config
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "vocab_size": "vocab_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
}


# general.file_type (llama.h) -> the type of most tensors (ggml.h).
FILE_TYPES = {
    0: 0, 1: 1, 2: 2, 3: 3, 7: 8, 8: 6, 9: 7, 10: 10, 11: 11, 12: 11, 13: 11, 14: 12, 15: 12,
    16: 13, 17: 13, 18: 14, 19: 16, 20: 17, 21: 10, 22: 21, 23: 18, 24: 19, 25: 20, 26: 21, 27: 21,
    28: 22, 29: 22, 30: 23, 31: 29, 32: 30, 36: 34, 37: 35, 38: 39,
}  # fmt: skip
F16 = 1


def gguf_size(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> ModelSize | None:
    """Return the size by a GGUF file's metadata; values may be strings, as llama.cpp gives them.

    Weights have the bits of their `tensors`, else those of the metadata's file type.
    """
    tensors = tensors or {}
    kind = metadata.get("general.architecture")
    config = {to: _plain(metadata.get(f"{kind}.{key}")) for key, to in GGUF_KEYS.items()}
    embedding = tensors.get("token_embd.weight")
    if config["vocab_size"] is None and embedding is not None:
        config["vocab_size"] = embedding.shape[-1]
    size = model_size(config)
    if size is None:
        return None
    unread = "token_embd.weight" if "output.weight" in tensors else ""  # a row of it is
    matrices = [t for t in tensors.values() if len(t.shape) > 1 and t.name != unread]
    usual = FILE_TYPES.get(_plain(metadata.get("general.file_type")), F16)
    dense, experts = (
        _tensors_share([t for t in matrices if ("_exps." in t.name) is routed], usual)
        for routed in (False, True)
    )
    return replace(size, stored_dense=dense, stored_expert=experts)


def _tensors_share(tensors: Sequence[Tensor], usual: int) -> float:
    """Return the bits of the tensors' numbers over 16, those of the type `usual` without any."""
    sizes = [(each.size, each.type) for each in tensors] or [(1, usual)]
    bits = sum(size * 8 * BLOCKS[type_][1] / BLOCKS[type_][0] for size, type_ in sizes)
    return min(bits / 16 / sum(size for size, _ in sizes), 1.0)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def _attention_size(config: Mapping[str, Any], hidden: float) -> tuple[float, float, float]:
    """Return a layer's weights, its numbers in the KV cache, and multiplications, per token."""
    heads = positive_number(config, HEADS) or 1.0
    latent = positive_number(config, ("kv_lora_rank",))
    rope = positive_number(config, ("qk_rope_head_dim",))
    if latent:  # DeepSeek's latent attention: one latent vector is the key and value of all heads
        plain = positive_number(config, ("qk_nope_head_dim",))
        value = positive_number(config, ("v_head_dim",))
        low = positive_number(config, ("q_lora_rank",))
        query = heads * (plain + rope)
        queries = low * (hidden + query) if low else hidden * query
        others = hidden * (latent + rope) + latent * heads * (plain + value)
        return queries + others + heads * value * hidden, latent + rope, heads * (2 * latent + rope)
    width = positive_number(config, ("head_dim",)) or hidden / heads
    keys = positive_number(config, KEY_HEADS) or heads
    return 2 * hidden * width * (heads + keys), 2 * width * keys, 2 * width * heads


def _count_layers(config: Mapping[str, Any], *, mixed: bool) -> tuple[int, int, int]:
    """Return the numbers of attention, dense feed-forward, and expert layers.

    Configs have a dozen names for it.
    """
    kinds = config.get("layers_block_type")
    if isinstance(pattern := config.get("hybrid_override_pattern"), str):  # of Nemotron-H
        kinds = [{"E": "moe", "-": "mlp"}.get(each, "mixer") for each in pattern]
    if isinstance(kinds, Sequence) and "moe" in kinds:  # each block is one of the three
        sparse, plain = list(kinds).count("moe"), list(kinds).count("mlp")
        return len(kinds) - sparse - plain, plain, sparse
    layers = int(positive_number(config, LAYERS))
    sparse = min(_expert_layers(config, layers), layers) if mixed else 0
    return layers, layers - sparse, sparse


def _expert_layers(config: Mapping[str, Any], layers: int) -> int:
    chosen, each = config.get("moe_layers"), config.get("moe_layer_freq")
    if isinstance(chosen, list) and chosen:  # Llama 4: their numbers
        return len(chosen)
    if isinstance(each, list):  # 1 for a layer with experts
        return sum(bool(one) for one in each)
    only = config.get("mlp_only_layers")
    first = positive_number(
        config, ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    )
    every = ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step",
             "expert_layer_period", "moe_layer_interval")  # fmt: skip
    sparse = (layers - int(first)) // max(int(positive_number(config, every)), 1)
    return max(sparse - (len(only) if isinstance(only, list) else 0), 0)
