"""SpeCache against the full cache: time per token, bytes and losses by context length.

NGRAMKIT_BENCH_MODEL names the model (a folder, a short name or a Hub id); without it, the embedded
demo model. On a CPU the copies run in line and nothing overlaps, so a step is slower than with the
full cache: there the bytes and the losses are what counts. On CUDA the same command measures the
overlap (`NGRAMKIT_BENCH_MODEL=... python -m benchmarks specache`).
`python -m benchmarks.specache` measures only times and bytes, of SmolLM2-135M, and writes the table
of docs/specache.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import Row, in_turns, markdown
from benchmarks._figures import write_figures
from benchmarks.engine import SMALL
from benchmarks.needle import docstrings, needles, read_with_each, take_over
from ngramkit.decode.cache import InPlaceCache
from ngramkit.decode.load import LanguageModel, load_model
from ngramkit.decode.specache.attention import using_specache_attention
from ngramkit.decode.specache.options import SpeCache, cache_of
from ngramkit.decode.specache.verify import SpeCacheVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import DraftTree

STEPS, ROUNDS = 8, 3
LENGTHS = (1024, 2048, 4096, 8192)
TOP_K = (16, 64, 256)
TEXT = 256  # tokens whose loss is taken
DEVICE = ("low_bit", "residual", "fetched")


class Step(NamedTuple):
    """A step after `length` tokens with both caches."""

    length: int
    bits: int
    seconds: float
    device: int  # bytes
    mixed: int  # bytes of work space
    full_seconds: float
    full_bytes: int


def main() -> None:
    model = load_model(SMALL)
    hay = model.tokenizer.encode(docstrings(LENGTHS[-1] * 8))
    rows = []
    for length in LENGTHS:
        two, one = _steps(model, hay[: length - STEPS - 2], length)
        full = f"{1e3 * two.full_seconds:.0f} ms, {two.full_bytes / 1e6:.1f} MB"
        cells = [
            f"{each.seconds / each.full_seconds:.2f} times, {each.device / 1e6:.1f} MB "
            f"({each.mixed / 1e6:.1f})"
            for each in (two, one)
        ]
        rows.append([f"{length:,}", full, *cells])
    head = ["context", "full cache", "2 bit", "1 bit"]
    print(markdown(head, rows))
    command = "python -m benchmarks.specache"
    write_figures("specache_steps", command, {"head": head, "rows": rows})


def rows() -> Iterator[Row]:
    model = load_model(os.environ.get("NGRAMKIT_BENCH_MODEL", "demo"))
    lengths = [length for length in LENGTHS if length <= (model.context or LENGTHS[-1])]
    hay = model.tokenizer.encode(docstrings(lengths[-1] * 8))
    for length in lengths:
        for step in _steps(model, hay[: length - STEPS - 2], length):
            yield _row(model.name, step)
    yield from _losses(model, hay)
    yield from _needles(model, lengths[: 2 if model.model.device.type == "cpu" else None])


def _row(model: str, step: Step) -> Row:
    return Row(
        f"SpeCache, {step.bits} bits, {model}, {step.length:,} tokens: a step, device bytes",
        f"{1e3 * step.seconds:.1f} ms, {step.device / 1e6:.1f} MB and "
        f"{step.mixed / 1e6:.1f} MB of work space",
        f"{1e3 * step.full_seconds:.1f} ms, {step.full_bytes / 1e6:.1f} MB, the full cache",
        step.full_bytes / step.device,
        "fewer bytes",
    )


def _steps(model: LanguageModel, prompt: Any, length: int) -> Iterator[Step]:
    """Read the prompt once, in full precision as every cache does, and time steps after it."""
    cache = InPlaceCache(model.model.config.get_text_config().num_hidden_layers, length)
    full = TreeVerifier(model.model, room=length, cache=cache)
    with torch.inference_mode():
        full.prefill(prompt)
    for bits in (2, 1):
        yield _step(model, full, cache, bits, length)


def _step(
    model: LanguageModel, full: TreeVerifier, cache: InPlaceCache, bits: int, length: int
) -> Step:
    read = cache.length
    options = SpeCache(bits=bits, group=32, top_k=64, residual=64)
    ours = SpeCacheVerifier(model.model, options, room=length)
    with torch.inference_mode():
        take_over(ours, cache)
        ours.verify(5, DraftTree.empty())  # the first guess, memory
    ours.keep([])
    ours.close()

    def seconds(verifier: Any) -> float:
        with (
            using_specache_attention(model.model) if verifier is ours else nullcontext(),
            torch.inference_mode(),
        ):
            began = time.perf_counter()
            for token in range(6, 6 + STEPS):
                verifier.verify(token, DraftTree.empty()).argmax().item()
                verifier.keep([])
            spent = time.perf_counter() - began
        full.rewind(read)
        return spent / STEPS

    took = in_turns({"full": lambda: seconds(full), "ours": lambda: seconds(ours)}, ROUNDS)
    held = ours.run.bytes
    device = sum(held[part] for part in DEVICE)
    # The buffers of the full cache have room for more; what is compared is what the text takes.
    whole = cache.bytes * ours.length // cache.in_place[0].keys.shape[2]
    return Step(length, bits, took["ours"], device, held["mixed"], took["full"], whole)


def _losses(model: LanguageModel, hay: Any) -> Iterator[Row]:
    """Measure the loss of a text's end given its beginning, against the full cache's."""
    half = min(len(hay), 2048) - TEXT
    prompt, text = hay[:half], hay[half : half + TEXT]
    caches: dict[str, SpeCache | None] = {
        f"{bits} {top_k}": SpeCache(bits=bits, group=32, top_k=top_k, residual=64)
        for bits in (2, 1)
        for top_k in (0, *TOP_K)
    }
    found = read_with_each(model.model, prompt, text, {"full": None, **caches})
    full = found["full"].loss
    for bits in (2, 1):
        for top_k in (0, *TOP_K):
            loss = found[f"{bits} {top_k}"].loss
            name = f"{top_k} pairs fetched" if top_k else "none fetched"
            yield Row(
                f"SpeCache, {bits} bits, {name}, {model.name}: perplexity after {half:,} tokens",
                f"{np.exp(loss):.3f}",
                f"{np.exp(full):.3f}, the full cache",
                float(np.exp(full - loss)),
                "near 1",
            )


def _needles(model: LanguageModel, lengths: list[int]) -> Iterator[Row]:
    """Measure the loss of a needle's number, three depths and two seeds each."""
    hay = docstrings(lengths[-1] * 8)
    hidden = list(needles(model.tokenizer, hay, lengths, depths=3, seeds=2))
    losses = {}
    for bits in (2, 1):
        options = SpeCache(bits=bits, group=32, top_k=64, residual=64)
        for name in ("full", "low-bit", "specache"):
            each = {name: cache_of(name, options)}
            found = [read_with_each(model.model, n.prompt, n.answer, each)[name] for n in hidden]
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


if __name__ == "__main__":
    main()
