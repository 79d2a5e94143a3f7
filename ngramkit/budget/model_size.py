"""The weights that a pass reads, from a model's config.

A mixture of experts reads the experts that its tokens choose: of E experts, with k for each token,
T tokens choose E (1 - (1 - k / E)^T) different ones on average if they choose independently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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


@dataclass(frozen=True)
class ModelSize:
    """Numbers of weights; `stored` is the bits of a weight on disk over those it computes in."""

    dense: float = 1.0  # that every token uses, shared experts too, without the head
    head: float = 0.0  # of the output layer, which quantisation leaves as it is
    expert: float = 0.0  # of one routed expert, in all layers
    experts: int = 1  # routed ones of a layer
    chosen: int = 1  # of them by each token
    stored: float = 1.0
    cached: float = 0.0  # numbers in the KV cache for a token
    attended: float = 0.0  # multiplications of a new token for each token before it

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
        quantised = self.dense + self.expert * self.distinct(tokens)
        read: Floats = self.head + self.stored * quantised
        return read


def model_size(config: Mapping[str, Any] | Any) -> ModelSize | None:
    """Return the size by a config.json or a config of transformers; None if it does not show it."""
    if not isinstance(config, Mapping):
        to_dict = getattr(config, "to_dict", None)
        config = to_dict() if callable(to_dict) else {}
    inner = config.get("text_config")
    outer, config = config, inner if isinstance(inner, Mapping) else config
    experts_config = config.get("ffn_config")  # of DBRX
    every = {**(experts_config if isinstance(experts_config, Mapping) else {}), **config}
    hidden = _number(every, HIDDEN)
    experts, chosen = int(_number(every, EXPERTS)), int(_number(every, CHOSEN))
    mixers, plain, sparse = _count_layers(every, mixed=experts > 1 and chosen > 0)
    if not hidden or not mixers:
        return None
    attention, cached, attended = _attention_size(every, hidden)
    matrices = 2 if every.get("mlp_hidden_act") == "relu2" else 3  # gate, up, down
    width = _number(every, EXPERT_INNER)
    shared = _number(every, SHARED_INNER) or _number(every, SHARED) * width
    if str(every.get("model_type")).startswith("llama4"):
        shared = width
    inside = plain * (_number(every, INNER) or 4 * hidden) + sparse * shared
    return ModelSize(
        dense=mixers * attention + matrices * hidden * inside + sparse * hidden * experts,
        head=_number(every, ("vocab_size", "padded_vocab_size")) * hidden,
        expert=matrices * hidden * width * sparse,
        experts=experts if sparse else 1,
        chosen=min(chosen, experts) if sparse else 1,
        stored=_stored_share({**outer, **every}),
        cached=mixers * cached,
        attended=mixers * attended,
    )


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


def gguf_size(header: Mapping[str, Any]) -> ModelSize | None:
    """Return the size by a GGUF header, as if all weights had the width of their arithmetic."""
    kind = header.get("general.architecture")
    return model_size({to: header.get(f"{kind}.{key}") for key, to in GGUF_KEYS.items()})


def _attention_size(config: Mapping[str, Any], hidden: float) -> tuple[float, float, float]:
    """Return a layer's weights, its numbers in the KV cache, and multiplications, per token."""
    heads = _number(config, HEADS) or 1.0
    latent, rope = _number(config, ("kv_lora_rank",)), _number(config, ("qk_rope_head_dim",))
    if latent:  # DeepSeek's latent attention: one latent vector is the key and value of all heads
        plain, value = _number(config, ("qk_nope_head_dim",)), _number(config, ("v_head_dim",))
        low = _number(config, ("q_lora_rank",))
        query = heads * (plain + rope)
        queries = low * (hidden + query) if low else hidden * query
        others = hidden * (latent + rope) + latent * heads * (plain + value)
        return queries + others + heads * value * hidden, latent + rope, heads * (2 * latent + rope)
    width = _number(config, ("head_dim",)) or hidden / heads
    keys = _number(config, KEY_HEADS) or heads
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
    layers = int(_number(config, LAYERS))
    sparse = min(_expert_layers(config, layers), layers) if mixed else 0
    return layers, layers - sparse, sparse


def _expert_layers(config: Mapping[str, Any], layers: int) -> int:
    chosen, each = config.get("moe_layers"), config.get("moe_layer_freq")
    if isinstance(chosen, list) and chosen:  # Llama 4: their numbers
        return len(chosen)
    if isinstance(each, list):  # 1 for a layer with experts
        return sum(bool(one) for one in each)
    only = config.get("mlp_only_layers")
    first = _number(config, ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"))
    every = ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step",
             "expert_layer_period", "moe_layer_interval")  # fmt: skip
    sparse = (layers - int(first)) // max(int(_number(config, every)), 1)
    return max(sparse - (len(only) if isinstance(only, list) else 0), 0)


def _stored_share(config: Mapping[str, Any]) -> float:
    """Return the bits of a stored weight over the bits that it is computed in."""
    native = 32 if str(config.get("dtype") or config.get("torch_dtype")).endswith("32") else 16
    how = config.get("quantization_config")
    return (_bits_of_weights(how) or native) / native if isinstance(how, Mapping) else 1.0


def _bits_of_weights(how: Mapping[str, Any]) -> float:
    if bits := _number(how, ("bits", "w_bit", "weight_bits")):
        return bits
    groups = how.get("config_groups")
    if isinstance(groups, Mapping):  # compressed-tensors
        weights = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        found = [_number(each, ("num_bits",)) for each in weights if isinstance(each, Mapping)]
        return max(found, default=0.0)
    named = " ".join(str(how.get(key)) for key in ("quant_method", "quant_algo", "fmt")).lower()
    if how.get("load_in_4bit") or "fp4" in named:
        return 4.0
    return 8.0 if how.get("load_in_8bit") or "fp8" in named else 0.0


def _number(config: Mapping[str, Any], keys: Sequence[str]) -> float:
    """Return the first positive number under `keys`, the mean of a list of them, or 0.0."""
    for key in keys:
        value = config.get(key)
        values: list[Any] = value if isinstance(value, list) and value else [value]
        if all(isinstance(each, int | float) and 0 < each < 1e9 for each in values):
            return float(sum(values) / len(values))
    return 0.0
