"""Text written through a SpeCache, and its passes."""

from __future__ import annotations

import numpy as np
import torch

from ngramkit.decode.loop import Request, decode
from ngramkit.decode.specache.verify import Guesses, SpeCacheVerifier
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft


def prompt_of(length, seed=0):
    return np.random.default_rng(seed).integers(1, 4000, length).astype(np.int32)


def written(model, prompt, options, new_tokens=6, room=None, drafter=None):
    """(tokens, verifier) of a run."""
    drafter = drafter or NoDraft()
    guesses = drafter if isinstance(drafter, Guesses) else None
    verifier = SpeCacheVerifier(
        model, options, room=room or len(prompt) + new_tokens, guesses=guesses
    )
    try:
        request = Request(prompt=prompt, max_new_tokens=new_tokens, budget=1)
        return decode(verifier, drafter, request).token_ids.tolist(), verifier
    finally:
        verifier.close()


def passes(model, prompt, options, new_tokens):
    """(tokens, asked): as naive.decode says them, without what the pre-decode asked for."""
    verifier = SpeCacheVerifier(model, options, room=len(prompt) + new_tokens)
    with torch.inference_mode():
        tokens, asked = [int(verifier.prefill(prompt)[0].argmax())], []
        while len(tokens) < new_tokens:
            tokens.append(int(verifier.verify(tokens[-1], DraftTree.empty())[0].argmax()))
            verifier.keep([])
            fetched = [layer.fetched for layer in verifier.run.low_layers]
            asked.append([None if f is None else f.positions.tolist() for f in fetched])
    verifier.close()
    return tokens, asked
