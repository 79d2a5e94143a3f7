"""The engines: what a pass costs with and without a draft, and what a step costs beside its pass.

On CUDA with random bfloat16 weights in the shape of a 7B model, where times do not depend on what
the weights say. Elsewhere the demo model on the CPU: there it shows only that the static engine's
passes, which hold rows that fill up, cost little more. A pass of SmolLM2-135M, where `make
real-model` has installed it, is set against what its weights take to read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import Row, interleaved
from ngramkit.decode.base import Verifier
from ngramkit.decode.device import device_facts
from ngramkit.decode.load import load_model
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.packed_weights import unpacked
from ngramkit.decode.prompt import prompt_ids
from ngramkit.decode.verifiers import open_verifier
from ngramkit.demo import demo_prompts
from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.models import packaged

CONTEXT = 512  # tokens
SMALL, BEHIND = "smollm2-135m", 256  # a model, and tokens of context of its passes
NODES = 64
NEW_TOKENS = 128
ROUNDS = 20
ENGINES = ("eager", "static")
# Bytes per second, as their maker says.
NOMINAL = {"H200": 4.8e12, "H100 80GB HBM3": 3.35e12, "A100-SXM4-80GB": 2.039e12}


def rows() -> Iterator[Row]:
    with torch.inference_mode():
        if torch.cuda.is_available():
            yield from on_gpu()
        else:
            yield from on_cpu()


def on_cpu() -> Iterator[Row]:
    model = load_model("demo", device="cpu")
    prompt = prompt_ids(model.tokenizer, next(iter(demo_prompts(1)))[1])
    best = passes(model.model)
    for nodes in (0, NODES):
        eager, static = best["eager", nodes], best["static", nodes]
        what = f"engine static, demo on the CPU, {CONTEXT} tokens of context, {nodes}-node pass"
        reference = f"{1e3 * eager:.2f} ms, eager"
        yield Row(what, f"{1e3 * static:.2f} ms", reference, eager / static, "near 1")
    for engine in ENGINES:
        inside, step = in_forward(model.model, engine, prompt)
        what = f"engine {engine}, demo on the CPU, a decode step, cacheback"
        share = f"{1 - inside / step:.1%} outside the model's forward"
        yield Row(what, f"{1e3 * step:.2f} ms, {share}", "the forward", inside / step, ">= 0.92")
    if packaged(SMALL) is not None:
        yield from beside_weights()


def beside_weights() -> Iterator[Row]:
    """A pass over one row against its weights' reading, and one over sixteen against that."""
    model = load_model(SMALL, device="cpu").model
    verifier = filled(model, "eager", np.arange(BEHIND, dtype=np.int32))
    floats = torch.ones(2**27)  # 0.5 GB
    size = sum(each.numel() for each in unpacked(model).parameters()) * 4  # head and embedding tied
    tasks = [partial(chosen, verifier, 0), partial(chosen, verifier, 15), floats.sum]
    interleaved(*tasks, rounds=2)
    one, many, read = interleaved(*tasks, rounds=ROUNDS)
    rate = floats.nbytes / read
    how = f"{device_facts(model)['device']}, float32, behind {BEHIND} tokens"
    yield Row(
        f"a pass of SmolLM2-135M over 1 row, {how}",
        f"{1e3 * one:.1f} ms",
        f"{1e3 * size / rate:.1f} ms, its weights at the {rate / 1e9:.1f} GB/s of a sum",
        size / rate / one,
        ">= 0.62 (1.6 times)",
    )
    yield Row(
        f"a pass of SmolLM2-135M over 16 rows, {how}",
        f"{1e3 * many:.1f} ms",
        f"{1e3 * one:.1f} ms, over 1 row",
        one / many,
        ">= 0.77 (1.3 times)",
    )


def on_gpu() -> Iterator[Row]:
    model, name = seven_billion(), torch.cuda.get_device_name()
    best = passes(model)
    for engine in ENGINES:
        one, many = best[engine, 0], best[engine, NODES]
        what = f"engine {engine}, 7B shape in bfloat16 on {name}, {NODES}-node pass"
        target = ">= 0.83 (1.2 times)" if engine == "static" else "static's"
        ours, reference = f"{1e3 * many:.2f} ms", f"{1e3 * one:.2f} ms, one token"
        yield Row(what, ours, reference, one / many, target)
    for engine in ENGINES:
        yield bandwidth(model, engine, best[engine, 0], name)
    prompt = np.arange(1, CONTEXT, dtype=np.int32)
    inside, step = in_passes(model, prompt)
    what = f"engine static, 7B shape in bfloat16 on {name}, a decode step, cacheback"
    ours = f"{1e3 * step:.2f} ms, {1 - inside / step:.1%} outside the pass"
    yield Row(what, ours, f"{1e3 * inside:.2f} ms, its pass", inside / step, ">= 0.95")


def seven_billion() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
        dtype=torch.bfloat16,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def passes(model: Any) -> dict[tuple[str, int], float]:
    """The least seconds of a pass by engine and nodes, until the chosen tokens are on the host."""
    prompt = np.arange(CONTEXT, dtype=np.int32)
    keys = [(engine, nodes) for nodes in (0, NODES) for engine in ENGINES]
    verifiers = {engine: filled(model, engine, prompt) for engine in ENGINES}
    tasks = [partial(chosen, verifiers[engine], nodes) for engine, nodes in keys]
    interleaved(*tasks, rounds=2)  # captures, loads, allocates
    return dict(zip(keys, interleaved(*tasks, rounds=ROUNDS), strict=True))


def filled(model: Any, engine: str, prompt: TokenArray) -> Verifier:
    room = len(prompt) + NEW_TOKENS + NODES
    verifier = open_verifier(model, "tree", engine, room=room)
    verifier.prefill(prompt)
    return verifier


def binary(nodes: int) -> DraftTree:
    at = np.arange(nodes, dtype=np.int32)
    return DraftTree(at, (at - 1) // 2, np.zeros(nodes, np.float32), np.zeros(nodes, np.uint8))


def chosen(verifier: Verifier, nodes: int) -> object:
    return verifier.verify(1, binary(nodes)).argmax(-1).tolist()


def bandwidth(model: Any, engine: str, seconds: float, name: str) -> Row:
    """Weights and keys and values over the time, against a copy on the same device."""
    config = model.config
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    weights -= model.get_input_embeddings().weight.numel() * 2  # one row of it is read
    cached = CONTEXT * config.num_hidden_layers * 2 * config.hidden_size * 2
    rate, copied = (weights + cached) / seconds, copy_rate()
    nominal = next((rate for chip, rate in NOMINAL.items() if chip in name), None)
    share = (
        "" if nominal is None else f" ({rate / nominal:.0%} of the nominal {nominal / 1e9:,.0f})"
    )
    return Row(
        f"engine {engine}, 7B shape in bfloat16 on {name}, one-token pass",
        f"{1e3 * seconds:.2f} ms, {rate / 1e9:,.0f} GB/s{share}",
        f"{copied / 1e9:,.0f} GB/s, a copy",
        rate / copied,
        ">= 0.75" if engine == "static" else "static's",
    )


def copy_rate() -> float:
    """Bytes per second read and written, by the best of some copies of 4 GiB."""
    source = torch.zeros(2**32, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    copy()
    return 2 * len(source) / interleaved(copy, rounds=ROUNDS)[0]


def decoded(model: Any, verifier: Verifier, prompt: TokenArray) -> Any:
    request = Request(prompt, NEW_TOKENS, NODES)
    return decode(verifier, load_drafter("cacheback"), request)


def in_forward(model: Any, engine: str, prompt: TokenArray) -> tuple[float, float]:
    """Seconds of a step in the model's forward, and of the whole step."""
    begun: list[float] = []
    spent: list[float] = []
    before = model.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter()))
    after = model.register_forward_hook(lambda *_: spent.append(time.perf_counter() - begun[-1]))
    room = len(prompt) + NEW_TOKENS + NODES
    runs = []
    for _ in range(3):
        verifier = open_verifier(model, "tree", engine, room=room)
        spent.clear()
        run = decoded(model, verifier, prompt)
        steps = run.seconds - run.prefill_seconds
        runs.append((sum(spent[1:]) / run.passes, steps / run.passes))
    before.remove()
    after.remove()
    return min(runs, key=lambda run: run[1])


class Counted:
    """A verifier that notes the drafts' sizes."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.sizes: Counter[int] = Counter()
        self.prefill, self.keep = verifier.prefill, verifier.keep

    @property
    def length(self) -> int:
        return self._verifier.length

    def verify(self, root: int, tree: DraftTree) -> torch.Tensor:
        self.sizes[len(tree)] += 1
        return self._verifier.verify(root, tree)


def in_passes(model: Any, prompt: TokenArray) -> tuple[float, float]:
    """Seconds of a step's pass on the device, and of the whole step.

    A pass alone: many in a row that the host does not wait for, so that it is never what is waited
    for.
    """
    room = len(prompt) + NEW_TOKENS + NODES
    for _ in range(2):  # the second finds everything captured
        verifier = Counted(open_verifier(model, "tree", "static", room=room))
        run = decoded(model, verifier, prompt)
    device = 0.0
    for size, count in verifier.sizes.items():
        tree = binary(size)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(ROUNDS):
            verifier.verify(1, tree)
        torch.cuda.synchronize()
        device += count * (time.perf_counter() - started) / ROUNDS
    return device / run.passes, (run.seconds - run.prefill_seconds) / run.passes
