"""Attention over a SpeCache, registered with transformers as ATTENTION_NAME.

Caches never see queries, attention functions never see the cache, and not every model passes
keyword arguments on, so a context variable joins them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ngramkit.basics.errors import UsageError
from ngramkit.basics.machine import Lock

if TYPE_CHECKING:
    from ngramkit.decode.specache.prefetching_cache import SpeCacheRun

ATTENTION_NAME = "specache"
CURRENT_RUN: ContextVar[SpeCacheRun] = ContextVar("specache run")  # the run of the current pass
_LOCK = Lock()
QUERIES_AT_ONCE = 256  # prompt rows at a time, if attention has a softcap or sinks


@contextmanager
def using_specache_attention(model: Any) -> Iterator[None]:
    """Make the model use this attention in the context; each pass sets CURRENT_RUN.

    Other threads wait: the attention is the model's, not the request's.
    """
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    config = model.config.get_text_config()
    with _LOCK:
        before = config._attn_implementation
        _set_attention(model, ATTENTION_NAME)
        try:
            yield
        finally:
            _set_attention(model, before)


def _set_attention(model: Any, name: str) -> None:
    logger = logging.getLogger("transformers.modeling_utils")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # the first pass shows whether the model uses it
    try:
        model.set_attn_implementation(name)
    finally:
        logger.setLevel(level)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend to the cache; return [1, rows, query heads, dim].

    query [1, query heads, rows, dim]; key and value [1, heads, n, dim]. A prompt is attended in
    full precision; later passes give their weights to the run.
    """
    specache = CURRENT_RUN.get(None)
    if specache is None:
        raise UsageError(
            "cannot decode: a request with a SpeCache in another thread uses the model",
            "Wait until it ends, or load the model once more.",
        )
    index = int(module.layer_idx)  # type: ignore[arg-type]
    specache.attended.add(index)
    if specache.reads_prompt and softcap is None and s_aux is None:
        kwargs.pop("dropout", None)
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = _Call(scaling, softcap, s_aux)
    if specache.reads_prompt:
        return call.in_pieces(query, key, value, attention_mask), None
    weights = call.weights(query, key, attention_mask)
    out = _weighted_values(weights, value)
    specache.take_weights(index, weights, lambda exact: call.weights(query, exact, attention_mask))
    return out, None


class _Call:
    def __init__(self, scaling: float, softcap: float | None, sinks: torch.Tensor | None) -> None:
        self._scaling, self._softcap, self._sinks = scaling, softcap, sinks

    def weights(
        self, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, last: int = -1
    ) -> torch.Tensor:
        """Return [heads, query heads per head, rows, n]; rows sum to 1, less their sink."""
        heads, n, dim = key.shape[1:]
        rows = query.shape[2]
        grouped = query[0].reshape(heads, -1, dim)  # a head's query heads, row by row
        scores = (grouped @ key[0].mT * self._scaling).view(heads, -1, rows, n)
        if self._softcap is not None:
            scores = torch.tanh(scores / self._softcap) * self._softcap
        scores = scores.masked_fill(~_visible_rows(mask, rows, n, last, scores.device), -math.inf)
        exact = scores if scores.dtype == torch.float64 else scores.float()
        if self._sinks is None:
            return exact.softmax(-1)
        sinks = self._sinks.view(heads, -1, 1, 1).to(exact).expand(-1, -1, rows, 1)
        return torch.cat([exact, sinks], -1).softmax(-1)[..., :-1]

    def in_pieces(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Attend by pieces: the weights of a whole prompt grow quadratically."""
        out = []
        for begin in range(0, query.shape[2], QUERIES_AT_ONCE):
            rows = query[:, :, begin : begin + QUERIES_AT_ONCE]
            end = begin + rows.shape[2]
            part = mask[:, :, begin:end] if mask is not None else None
            out.append(_weighted_values(self.weights(rows, key, part, end), value))
        return torch.cat(out, 1)


def _weighted_values(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    heads, group, rows, n = weights.shape
    out = weights.to(value.dtype).reshape(heads, group * rows, n) @ value[0]
    return out.view(1, heads * group, rows, -1).transpose(1, 2).contiguous()


def _visible_rows(
    mask: torch.Tensor | None, rows: int, n: int, last: int, device: torch.device
) -> torch.Tensor:
    """Return bool[rows, n]; without a mask, causal up to `last`, or n for -1."""
    if mask is not None:
        return mask[0, 0, :, :n] if mask.dtype == torch.bool else mask[0, 0, :, :n] >= 0
    end = n if last < 0 else last
    own = torch.arange(end - rows, end, device=device)
    return torch.arange(n, device=device)[None] <= own[:, None]
