"""Which of model.generate's options drafts can honour; the others are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ngramkit.errors import UsageError

# Options of a generation config, and the values that ask for nothing.
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (None, 1),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0, 0.0),
    "dola_layers": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
    "use_mtp": (None, False),
    "output_scores": (None, False),
    "output_logits": (None, False),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
}
# Made by transformers for every call, or without influence on what is written.
CACHES = ("past_key_values", "cache_params")  # Mamba calls it so
KNOWN_INPUTS = {
    "attention_mask",
    "position_ids",
    *CACHES,
    "use_cache",
    "logits_to_keep",
    "cache_position",
    "streamer",
}
EXACT_CACHES = (None, "dynamic", "static", "hybrid", "sliding_window", "offloaded")


def refuse_what_cannot_be_honoured(
    model: Any, input_ids: torch.Tensor, config: Any, inputs: Mapping[str, Any]
) -> None:
    """Raises UsageError with the name of the first option that would have to be ignored.

    `inputs` are the model's inputs beside `input_ids`, and what generate was given for its loop.
    """
    if model.config.is_encoder_decoder:
        raise _refused("an encoder-decoder", "drafts continue a decoder's own text")
    for name, plain in PLAIN.items():
        value = getattr(config, name, None)
        if value not in plain:
            raise _refused(f"{name}={value}")
    if config.cache_implementation not in EXACT_CACHES:
        raise _refused(f"cache_implementation={config.cache_implementation}", "its cache is lossy")
    for name, value in inputs.items():
        if name not in KNOWN_INPUTS and value is not None and value is not False:
            raise _refused(name)
    for name in CACHES:
        _refuse_filled_cache(name, inputs.get(name))
    _refuse_in_batch(len(input_ids), config, inputs)
    _refuse_odd_padding(input_ids, inputs.get("attention_mask"), inputs.get("position_ids"))


def _refuse_filled_cache(name: str, cache: Any) -> None:
    if cache is not None and any(map(_filled, cache.layers)):
        raise _refused(name, "the prompt is read anew")


def _filled(layer: Any) -> bool:
    """Of keys and values, or of recurrent states."""
    states = any(getattr(layer, "has_previous_state", {}).values())
    return states or (hasattr(layer, "get_seq_length") and layer.get_seq_length() > 0)


def _refuse_in_batch(rows: int, config: Any, inputs: Mapping[str, Any]) -> None:
    """Rows are written one after another."""
    if rows == 1:
        return
    if inputs.get("streamer") is not None:
        raise _refused("a streamer with several rows")
    if config.max_time is not None:
        raise _refused("max_time with several rows", "the first would use up the others' time")


def _refuse_odd_padding(ids: torch.Tensor, mask: Any, positions: Any) -> None:
    whole = torch.ones_like(ids) if mask is None else mask.to(ids)
    if whole.shape != ids.shape:
        raise _refused("an attention_mask of another shape than input_ids")
    if not bool((whole[:, -1] == 1).all()):
        raise _refused("padding on the right", "pad on the left: padding_side='left'")
    if not bool((whole.diff(dim=-1) >= 0).all()):
        raise _refused("an attention_mask with holes")
    expected = (whole.cumsum(-1) - 1)[whole == 1]
    if positions is not None and not torch.equal(positions.to(ids)[whole == 1], expected):
        raise _refused("position_ids other than 0, 1, 2, ...")


def _refused(what: str, why: str = "") -> UsageError:
    reason = f"; {why}" if why else ""
    return UsageError(f"decoding with drafts cannot honour {what}{reason}", "leave it out")
