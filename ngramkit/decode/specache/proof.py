"""Copies on a side stream prove themselves before they are believed: beside copies in line.

They are written for CUDA and have never run on a GPU here. So where a device, its driver and these
versions have no record of success, a short made-up text is read and written both ways with the
options that are asked for. Logits must agree, and what was stored and fetched bit by bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ngramkit.decode.probe import counted, known, remember, spread_tokens, tolerance_of
from ngramkit.decode.specache.cache import SpeCacheLayer
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.store import Copies, InLine, OnStream
from ngramkit.decode.specache.verify import SpeCacheVerifier
from ngramkit.drafters.base import DraftTree

COPIES = "SpeCacheCopies"  # what is remembered of a model, see decode.probe
GROUPS = 4  # that are quantised in the made-up prompt, beside its residual
STEPS = 6  # passes that write a token


def copies_of(model: Any, options: SpeCache) -> Copies:
    """How pairs travel between the model's device and CPU memory."""
    if model.device.type != "cuda":
        return InLine()
    return proven(model, options, lambda: OnStream(model.device))


def proven(model: Any, options: SpeCache, make: Callable[[], Copies]) -> Copies:
    """What `make` gives, if it does what copies in line do; else those, and that is said."""
    if known(model, COPIES):
        return make()
    with counted(model):
        found = fault(model, options, make())
    if not found:
        remember(model, COPIES)
        return make()
    logging.getLogger("ngramkit").warning(
        "copies beside the passes of %s %s; they are made in line", model.config.model_type, found
    )
    return InLine()


def fault(model: Any, options: SpeCache, copies: Copies) -> str:
    """What is wrong with `copies`, empty where nothing is. Running out of memory is raised."""
    options = replace(options, speculative="model", measure=False)
    try:
        with torch.inference_mode():
            right, wanted = _written(model, options, InLine())
            found, held = _written(model, options, copies)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        line = str(error).partition("\n")[0]
        return f"fail ({type(error).__name__}: {line:.200})"
    for step, (one, other) in enumerate(zip(found, right, strict=True)):
        spread = (other - other.mean()).norm()
        if not (one - other).norm() <= tolerance_of(model) * spread:
            return f"lead to other logits in pass {step}"
    same = all(torch.equal(one, other) for one, other in zip(held, wanted, strict=True))
    return "" if same else "bring other pairs"


def _written(
    model: Any, options: SpeCache, copies: Copies
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Logits [V] of every pass, and all stored and fetched pairs in the end."""
    tokens = spread_tokens(model)
    length = options.residual + GROUPS * options.group + 1
    prompt = np.array([next(tokens) for _ in range(length)], np.int32)
    verifier = SpeCacheVerifier(model, options, room=length + STEPS, copies=copies)
    try:
        logits = [verifier.prefill(prompt)[0].float()]
        for _ in range(STEPS):  # the same text both ways, whatever the logits say
            logits.append(verifier.verify(next(tokens), DraftTree.empty())[0].float())
            verifier.keep([])
        held = [part for layer in verifier.run.low_layers for part in _pairs(layer, copies)]
    finally:
        verifier.close()
    return logits, held


def _pairs(layer: SpeCacheLayer, copies: Copies) -> list[torch.Tensor]:
    copies.wait_here(copies.mark())
    parts = [part.clone() for part in layer.store.everything]
    if layer.fetched is not None:
        copies.wait(layer.fetched.mark)
        parts += [layer.fetched.keys.cpu(), layer.fetched.values.cpu()]
    return parts
