"""The choice of a model's verifier."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
import transformers

from ngramkit.basics.errors import InputError
from ngramkit.decode.base import ResumableVerifier
from ngramkit.decode.cache import InPlaceCache, is_recurrent
from ngramkit.decode.length_limits import LengthLimitVerifier, rope_limits
from ngramkit.decode.load import context_of
from ngramkit.decode.probe import is_verifier_exact
from ngramkit.decode.verify_rows import BatchVerifier, ChainVerifier
from ngramkit.decode.verify_tree import TreeVerifier

VERIFIERS: dict[str, type[TreeVerifier | BatchVerifier]] = {
    "tree": TreeVerifier,
    "batch": BatchVerifier,
    "chain": ChainVerifier,
}
_WARNED_OF_ROWS: WeakSet[Any] = WeakSet()  # models


def open_verifier(model: Any, mode: str, *, room: int) -> ResumableVerifier:
    """Return a verifier for one request of a transformers causal LM.

    `mode` is one of `choose_verify_mode`. `room` is the number of tokens (prompt, answer, one
    draft) to allocate at first.
    """
    verifier = VERIFIERS[mode](model, room=room)
    limits, context = rope_limits(model.config.get_text_config()), context_of(model)
    if context is not None and room > context:  # learned positions end with it
        limits = replace(limits, lengths=tuple(sorted({*limits.lengths, context})))
    return LengthLimitVerifier(verifier, model, limits) if limits.lengths else verifier


def choose_verify_mode(model: Any, mode: str | None = None) -> str:
    """Return `mode` if the model can use it, or for None the best: tree, batch or chain.

    Models without tree masks use batch, recurrent ones chain.

    Raises InputError if the model can use none.
    """
    require_own_inputs(model)
    recurrent = is_recurrent(model)
    if recurrent or mode in ("batch", "chain"):
        if not is_verifier_exact(model, ChainVerifier if recurrent else BatchVerifier):
            raise _takes_no_drafts(model.config.model_type)
        return "batch" if mode == "batch" else "chain"
    if is_verifier_exact(model, TreeVerifier):
        return "tree"
    if not is_verifier_exact(model, BatchVerifier):
        raise _takes_no_drafts(model.config.model_type)
    if model not in _WARNED_OF_ROWS:
        _WARNED_OF_ROWS.add(model)
        logging.getLogger("ngramkit").warning(
            "%s cannot verify a draft as a tree; it is verified as rows, verify=batch",
            model.config.model_type,
        )
    return "batch"


def require_own_inputs(model: Any) -> None:
    """Raise InputError if `generate` puts virtual tokens before the prompt, as peft may."""
    owner = getattr(model.prepare_inputs_for_generation, "__self__", model)
    peft = getattr(owner, "active_peft_config", None)
    if getattr(peft, "is_prompt_learning", False) or _puts_virtual_tokens(model):
        tuning = getattr(peft, "peft_type", "virtual tokens")
        raise InputError(
            f"cannot decode {type(owner).__name__} with drafts: it puts virtual tokens before the "
            f"prompt ({getattr(tuning, 'value', tuning)})",
            "Use model.generate, or an adapter of another kind, such as LoRA.",
        )


def _puts_virtual_tokens(model: Any) -> bool:
    cache = InPlaceCache(model.config.get_text_config().num_hidden_layers, room=0)
    ids = torch.zeros((1, 2), dtype=torch.int64, device=model.device)
    given = {"past_key_values": cache, "attention_mask": None, "use_cache": True}
    try:
        inputs = model.prepare_inputs_for_generation(ids, is_first_iteration=True, **given)
    except Exception:  # it needs more arguments; the probe compares with generate itself
        return False
    held = inputs.get("past_key_values")
    return inputs.get("inputs_embeds") is not None or (
        held is not None and held.get_seq_length() > 0
    )


def _takes_no_drafts(kind: str) -> InputError:
    return InputError(
        f"cannot draft for {kind}: transformers {transformers.__version__} computes several tokens "
        "at once differently from one by one",
        "Use a model for which both are the same, see docs/decoding.md.",
    )
