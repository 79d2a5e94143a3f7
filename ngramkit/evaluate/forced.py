"""How well a cache remembers: the loss of a known text, read token by token through a verifier.

Teacher-forced: whatever the model holds likeliest, the known token is what it reads next. A greedy
run writes the known text exactly where every token of it was the likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ngramkit.decode.base import Verifier
from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.specache.cache import Hits
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import Drafter, DraftTree, TokenArray
from ngramkit.drafters.registry import NoDraft


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


def forced_each(
    model: Any,
    prompt: TokenArray,
    text: TokenArray,
    caches: Mapping[str, SpeCache | None],
    drafter: Callable[[], Drafter] | None = None,
) -> dict[str, Forced]:
    """The same with several caches by name, after one reading of the prompt: every cache reads it
    in full precision. `drafter` makes one that guesses, where a SpeCache asks for it."""
    room = len(prompt) + len(text)
    cache = InPlaceCache(model.config.get_text_config().num_hidden_layers, room)
    full = TreeVerifier(model, room=room, cache=cache)
    with torch.inference_mode():
        logits = full.prefill(prompt)
    found = {}
    for name, options in caches.items():
        if options is None:
            found[name] = _read(full, logits, text)
            full.rewind(len(prompt))
            continue
        guesses = None
        if options.speculative == "drafter" and drafter is not None:
            guesses = Guesses(drafter())
            guesses.start(prompt)
        verifier = SpeCacheVerifier(model, options, room=room, guesses=guesses)
        try:
            with torch.inference_mode():
                verifier.take_over(cache)
            found[name] = _of_specache(verifier, _read(verifier, logits, text), options)
        finally:
            verifier.close()
    return found


def forced(model: Any, prompt: TokenArray, text: TokenArray, cache: SpeCache | None) -> Forced:
    """`text` (int32[n], n > 1) after `prompt`; `model` is a transformers causal LM."""
    room = len(prompt) + len(text)
    if cache is None:
        full = TreeVerifier(model, room=room)
        with torch.inference_mode():
            return _read(full, full.prefill(prompt), text)
    verifier = SpeCacheVerifier(model, cache, room=room)
    try:
        with torch.inference_mode():
            return _of_specache(verifier, _read(verifier, verifier.prefill(prompt), text), cache)
    finally:
        verifier.close()


def _of_specache(verifier: SpeCacheVerifier, read: Forced, options: SpeCache) -> Forced:
    hits = verifier.run.hits if options.measure else None
    return Forced(read.losses, read.exact, hits, verifier.run.bytes)


def _read(verifier: Verifier, logits: torch.Tensor, text: TokenArray) -> Forced:
    """`logits` follow the prompt."""
    losses, exact = [], True
    guesses = verifier.drafter if isinstance(verifier, SpeCacheVerifier) else NoDraft()
    with torch.inference_mode():
        for i, token in enumerate(text.tolist()):
            row = logits[-1].double()
            losses.append(float(row.logsumexp(0) - row[token]))
            exact &= int(row.argmax()) == token
            if i + 1 < len(text):
                guesses.accept(text[i : i + 1])
                guesses.draft(1)
                logits = verifier.verify(token, DraftTree.empty())
                verifier.keep([])
    held = verifier.bytes if isinstance(verifier, TreeVerifier) else {}
    return Forced(np.array(losses), exact, None, held)
