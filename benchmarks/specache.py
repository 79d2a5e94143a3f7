"""SpeCache against the full cache: time per token and bytes by context length, and what it forgets.

NGRAMKIT_BENCH_MODEL names the model (a folder, a short name or a Hub id); without it, the embedded
demo model. On a CPU the copies run in line and nothing overlaps, so a step is slower than with the
full cache: there the bytes and the losses are what counts. On CUDA the same command measures the
overlap (`NGRAMKIT_BENCH_MODEL=... python -m benchmarks specache`); it has not been run there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks import Row, in_turns
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.specache.options import SpeCache, cache_of
from ngramkit.decode.specache.verify import SpeCacheVerifier
from ngramkit.decode.verify import TreeVerifier
from ngramkit.drafters.base import DraftTree
from ngramkit.evaluate.forced import forced
from ngramkit.evaluate.needle import docstrings, needles

STEPS = 8
LENGTHS = (1024, 2048, 4096, 8192)
TOP_K = (16, 64, 256)
TEXT = 256  # tokens whose loss is taken
DEVICE = ("low_bit", "residual", "fetched")


def rows() -> Iterator[Row]:
    model = load_model(os.environ.get("NGRAMKIT_BENCH_MODEL", "demo"))
    lengths = [length for length in LENGTHS if length <= (model.context or LENGTHS[-1])]
    hay = model.tokenizer.encode(docstrings(lengths[-1] * 8))
    for bits in (2, 1):
        options = SpeCache(bits=bits, group=32, top_k=64, residual=64)
        for length in lengths:
            yield _step(model, hay[: length - STEPS - 2], length, options)
    yield from _losses(model, hay)
    yield from _needles(model, lengths[: 2 if model.model.device.type == "cpu" else None])


def _step(model: LanguageModel, prompt: Any, length: int, options: SpeCache) -> Row:
    verifiers: dict[str, Any] = {
        "full": lambda: TreeVerifier(model.model, room=length),
        "ours": lambda: SpeCacheVerifier(model.model, options, room=length),
    }
    held: dict[str, dict[str, int]] = {}

    def seconds(name: str) -> float:
        verifier = verifiers[name]()
        with torch.inference_mode():
            verifier.prefill(prompt)
            verifier.verify(5, DraftTree.empty())  # the first guess, memory
            verifier.keep([])
            began = time.perf_counter()
            for token in range(6, 6 + STEPS):
                verifier.verify(token, DraftTree.empty()).argmax().item()
                verifier.keep([])
            spent = time.perf_counter() - began
        if name == "ours":
            held[name] = verifier.run.bytes
            verifier.close()
        else:
            held[name] = verifier.bytes
        return spent / STEPS

    took = in_turns({name: lambda name=name: seconds(name) for name in ("full", "ours")}, 3)
    device = sum(held["ours"][part] for part in DEVICE)
    full = held["full"]["full"]
    return Row(
        f"SpeCache, {options.bits} bits, {model.name}, {length:,} tokens: a step, device bytes",
        f"{1e3 * took['ours']:.1f} ms, {device / 1e6:.1f} MB and "
        f"{held['ours']['mixed'] / 1e6:.1f} MB of work space",
        f"{1e3 * took['full']:.1f} ms, {full / 1e6:.1f} MB, the full cache",
        full / device,
        "fewer bytes",
    )


def _losses(model: LanguageModel, hay: Any) -> Iterator[Row]:
    """Of a text's end given its beginning; the reference is the full cache's."""
    half = min(len(hay), 2048) - TEXT
    prompt, text = hay[:half], hay[half : half + TEXT]
    full = forced(model.model, prompt, text, None).loss
    for bits in (2, 1):
        for top_k in (0, *TOP_K):
            options = SpeCache(bits=bits, group=32, top_k=top_k, residual=64)
            loss = forced(model.model, prompt, text, options).loss
            name = f"{top_k} pairs fetched" if top_k else "none fetched"
            yield Row(
                f"SpeCache, {bits} bits, {name}, {model.name}: perplexity after {half:,} tokens",
                f"{np.exp(loss):.3f}",
                f"{np.exp(full):.3f}, the full cache",
                float(np.exp(full - loss)),
                "near 1",
            )


def _needles(model: LanguageModel, lengths: list[int]) -> Iterator[Row]:
    """The loss of a needle's number, three depths and two seeds each."""
    hay = docstrings(lengths[-1] * 8)
    hidden = list(needles(model.tokenizer, hay, lengths, depths=3, seeds=2))
    losses = {}
    for bits in (2, 1):
        options = SpeCache(bits=bits, group=32, top_k=64, residual=64)
        for name in ("full", "low-bit", "specache"):
            found = [
                forced(model.model, n.prompt, n.answer, cache_of(name, options)) for n in hidden
            ]
            losses[name] = float(np.mean([each.loss for each in found]))
            exact = sum(each.exact for each in found)
            if name != "full":
                yield Row(
                    f"needles, {bits} bits, {name}, {model.name}, up to {lengths[-1]:,} tokens",
                    f"{exact} of {len(hidden)} exact, {losses[name]:.3f} nats a token",
                    f"{losses['full']:.3f} nats, the full cache",
                    float(np.exp(losses["full"] - losses[name])),
                    "near 1",
                )
