"""What a pass costs with and without a draft, and what a step costs beside its pass.

On CUDA with random bfloat16 weights in the shape of a 7B model, where times do not depend on what
the weights say. Elsewhere the demo model on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import Row, interleaved
from ngramkit.decode.base import Verifier
from ngramkit.decode.load import load_model
from ngramkit.decode.loop import Request, decode
from ngramkit.decode.text import prompt_ids
from ngramkit.decode.verifiers import open_verifier
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import DraftTree, TokenArray
from ngramkit.drafters.registry import load_drafter

CONTEXT = 512  # tokens
NODES = 64
NEW_TOKENS = 128
ROUNDS = 20
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
    inside, step = in_forward(model.model, prompt)
    what = "engine eager, demo on the CPU, a decode step, cacheback"
    share = f"{1 - inside / step:.1%} outside the model's forward"
    yield Row(what, f"{1e3 * step:.2f} ms, {share}", "the forward", inside / step, ">= 0.92")


def on_gpu() -> Iterator[Row]:
    model, name = seven_billion(), torch.cuda.get_device_name()
    one, many = passes(model)
    what = f"engine eager, 7B shape in bfloat16 on {name}, {NODES}-node pass"
    ours, reference = f"{1e3 * many:.2f} ms", f"{1e3 * one:.2f} ms, one token"
    yield Row(what, ours, reference, one / many, ">= 0.83 (1.2 times)")
    yield bandwidth(model, one, name)


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


def passes(model: Any) -> list[float]:
    """The least seconds of a pass without a draft and with NODES nodes, until the chosen tokens are
    on the host."""
    prompt = np.arange(CONTEXT, dtype=np.int32)
    verifier = open_verifier(model, "tree", room=len(prompt) + NEW_TOKENS + NODES)
    verifier.prefill(prompt)
    tasks = [partial(chosen, verifier, nodes) for nodes in (0, NODES)]
    interleaved(*tasks, rounds=2)  # loads, allocates
    return interleaved(*tasks, rounds=ROUNDS)


def binary(nodes: int) -> DraftTree:
    at = np.arange(nodes, dtype=np.int32)
    return DraftTree(at, (at - 1) // 2, np.zeros(nodes, np.float32), np.zeros(nodes, np.uint8))


def chosen(verifier: Verifier, nodes: int) -> object:
    return verifier.verify(1, binary(nodes)).argmax(-1).tolist()


def bandwidth(model: Any, seconds: float, name: str) -> Row:
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
        f"engine eager, 7B shape in bfloat16 on {name}, one-token pass",
        f"{1e3 * seconds:.2f} ms, {rate / 1e9:,.0f} GB/s{share}",
        f"{copied / 1e9:,.0f} GB/s, a copy",
        rate / copied,
        ">= 0.75",
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


def in_forward(model: Any, prompt: TokenArray) -> tuple[float, float]:
    """Seconds of a step in the model's forward, and of the whole step."""
    begun: list[float] = []
    spent: list[float] = []
    before = model.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter()))
    after = model.register_forward_hook(lambda *_: spent.append(time.perf_counter() - begun[-1]))
    room = len(prompt) + NEW_TOKENS + NODES
    runs = []
    for _ in range(3):
        verifier = open_verifier(model, "tree", room=room)
        spent.clear()
        run = decoded(model, verifier, prompt)
        steps = run.seconds - run.prefill_seconds
        runs.append((sum(spent[1:]) / run.passes, steps / run.passes))
    before.remove()
    after.remove()
    return min(runs, key=lambda run: run[1])
