"""How well a cache remembers: the loss of a known text, read token by token through a verifier.

Teacher-forced: whatever the model holds likeliest, the known token is what it reads next. A greedy
run writes the known text exactly where every token of it was the likeliest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ngramkit.decode.base import Verifier
from ngramkit.decode.specache.cache import Hits
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.verify import SpeCacheVerifier
from ngramkit.decode.verify import TreeVerifier
from ngramkit.drafters.base import DraftTree, TokenArray


@dataclass(frozen=True)
class Forced:
    """One text after one prompt. `losses` in nats; the first token's is the prompt pass's own."""

    losses: np.ndarray[Any, np.dtype[np.float64]]  # float64[n]
    exact: bool  # greedy decoding writes the text
    hits: Hits | None  # of fetched pairs, where they were measured
    bytes: Mapping[str, int]  # of the cache, at the end

    @property
    def loss(self) -> float:
        """Nats per token, without the first: the prompt's pass is the same for every cache."""
        return float(self.losses[1:].mean())


def forced(model: Any, prompt: TokenArray, text: TokenArray, cache: SpeCache | None) -> Forced:
    """`text` (int32[n], n > 1) after `prompt`; `model` is a transformers causal LM."""
    room = len(prompt) + len(text)
    if cache is None:
        return _read(TreeVerifier(model, room=room), prompt, text)
    verifier = SpeCacheVerifier(model, cache, room=room)
    try:
        run = _read(verifier, prompt, text)
    finally:
        verifier.close()
    hits = verifier.run.hits if cache.measure else None
    return Forced(run.losses, run.exact, hits, verifier.run.bytes)


def _read(verifier: Verifier, prompt: TokenArray, text: TokenArray) -> Forced:
    losses, exact = [], True
    with torch.inference_mode():
        logits = verifier.prefill(prompt)
        for i, token in enumerate(text.tolist()):
            row = logits[-1].double()
            losses.append(float(row.logsumexp(0) - row[token]))
            exact &= int(row.argmax()) == token
            if i + 1 < len(text):
                logits = verifier.verify(token, DraftTree.empty())
                verifier.keep([])
    held = verifier.bytes if isinstance(verifier, TreeVerifier) else {}
    return Forced(np.array(losses), exact, None, held)
