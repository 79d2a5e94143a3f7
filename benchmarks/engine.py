"""The cost of a pass with and without a draft, and of the rest of a step.

On CUDA with random bfloat16 weights in the shape of a 7B model, where times do not depend on the
values of weights; otherwise with the demo model on the CPU. If `make real-model` has installed
SmolLM2-135M, its pass is compared with the time of reading its weights, and its work outside
linear layers with the earlier implementation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks import Row, interleaved
from ngramkit.basics.models import packaged_gguf
from ngramkit.decode.load import device_facts, load_model
from ngramkit.decode.loop import decode
from ngramkit.decode.packed_weights import unpacked
from ngramkit.decode.request import Request
from ngramkit.decode.result import work_clock
from ngramkit.decode.sampling import best_and_tops
from ngramkit.decode.verifiers import open_verifier
from ngramkit.demo import demo_prompts
from ngramkit.drafters.base import MAX_EVIDENCE_TOKENS, DraftTree, TokenArray
from ngramkit.drafters.create import load_drafter

CONTEXT = 512  # tokens
SMALL, BEHIND = "smollm2-135m", 256  # a model, and tokens of context of its passes
NODES = 64
SHARES = "TRANSFORMERS_SDPA_FORCE_GQA"  # see load_model
NEW_TOKENS = 128
ROUNDS = 20


def rows() -> Iterator[Row]:
    if torch.cuda.is_available():
        what = f"7B shape in bfloat16 on {torch.cuda.get_device_name()}"
        model, prompt = seven_billion(), np.arange(1, CONTEXT, dtype=np.int32)
    else:
        demo = load_model("demo", device="cpu")
        what, model = "demo on the CPU", demo.model
        prompt = demo.tokenizer.encode_prompt(next(iter(demo_prompts(1)))[1])
    with torch.inference_mode():
        one, many = passes(model)
        yield Row(
            f"{what}, {CONTEXT} tokens of context, {NODES}-node pass",
            f"{1e3 * many:.2f} ms", f"{1e3 * one:.2f} ms, one token", one / many,
            "near 1 on a GPU",
        )  # fmt: skip
        inside, step = in_forward(model, prompt)
        share = f"{1 - inside / step:.1%} outside the model's forward"
        yield Row(
            f"{what}, a decode step, cacheback",
            f"{1e3 * step:.2f} ms, {share}", "the forward", inside / step, ">= 0.92",
        )  # fmt: skip
    if packaged_gguf(SMALL) is not None:
        yield from beside_weights()


def beside_weights() -> Iterator[Row]:
    """Compare a pass over one row with reading the weights, and one over sixteen with that."""
    model = load_model(SMALL, device="cpu").model
    verifier = open_verifier(model, "tree", room=BEHIND + 17)
    verifier.prefill(np.arange(BEHIND, dtype=np.int32))
    floats = torch.ones(2**27)  # 0.5 GB
    size = sum(each.numel() for each in unpacked(model).parameters()) * 4  # head and embedding tied
    tasks: list[Callable[[], object]] = [
        partial(tokens_of, verifier, 0), partial(tokens_of, verifier, 15), floats.sum,
    ]  # fmt: skip
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
    for nodes in (7, 15):
        yield from beside_linears(verifier, nodes)


def beside_linears(verifier: Any, nodes: int) -> Iterator[Row]:
    """Compare a pass with one that copies shared keys for every head, and reading its rows'
    likeliest tokens with the plain formula."""
    logits = verifier.verify(1, binary(nodes))
    now = work_clock("cpu")

    def seconds(task: Callable[[], object], shares: bool = True) -> float:
        with patch.dict(os.environ, {SHARES: str(int(shares))}):
            started = now()
            task()
            return now() - started

    passing = partial(tokens_of, verifier, nodes)
    for what, ours, reference, how in (
        (
            f"a pass of SmolLM2-135M over {nodes + 1} rows",
            partial(seconds, passing),
            partial(seconds, passing, shares=False),
            "keys copied for every head",
        ),
        (
            f"the likeliest tokens of its {nodes + 1} rows",
            partial(seconds, partial(best_and_tops, logits)),
            partial(seconds, partial(argmax_and_log_probs, logits)),
            "argmax, topk and logsumexp",
        ),
    ):
        pairs = np.array([(reference(), ours()) for _ in range(5 * ROUNDS)])
        before, after = 1e3 * np.median(pairs, 0)  # the least would be other programs' doing
        ratio = float(np.median(pairs[:, 0] / pairs[:, 1]))
        yield Row(what, f"{after:.2f} ms", f"{before:.2f} ms, {how}", ratio, "> 1")


def argmax_and_log_probs(logits: torch.Tensor) -> object:
    values, ids = logits.topk(MAX_EVIDENCE_TOKENS, -1)
    log_probs = values - logits.logsumexp(-1, keepdim=True)
    return logits.argmax(-1).tolist(), ids.numpy(), log_probs.numpy()


def seven_billion() -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    )
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()  # type: ignore[no-untyped-call]


def passes(model: Any) -> list[float]:
    """Return the least seconds of a pass without a draft and with NODES, tokens on the host."""
    verifier = open_verifier(model, "tree", room=CONTEXT + NODES + 1)
    verifier.prefill(np.arange(CONTEXT, dtype=np.int32))
    tasks = [partial(tokens_of, verifier, nodes) for nodes in (0, NODES)]
    interleaved(*tasks, rounds=2)  # loads, allocates
    return interleaved(*tasks, rounds=ROUNDS)


def tokens_of(verifier: Any, nodes: int) -> object:
    """Run a pass over a draft of so many nodes; return its tokens, on the host."""
    return verifier.verify(1, binary(nodes)).argmax(-1).tolist()


def binary(nodes: int) -> DraftTree:
    at = np.arange(nodes, dtype=np.int32)
    return DraftTree(at, (at - 1) // 2, np.zeros(nodes, np.float32), np.zeros(nodes, np.uint8))


def in_forward(model: Any, prompt: TokenArray) -> tuple[float, float]:
    """Return the seconds of a step in the model's forward, and of the whole step."""
    begun: list[float] = []
    spent: list[float] = []

    def synchronized() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    before = model.register_forward_pre_hook(lambda *_: begun.append(synchronized()))
    after = model.register_forward_hook(lambda *_: spent.append(synchronized() - begun[-1]))
    runs = []
    for _ in range(3):
        verifier = open_verifier(model, "tree", room=len(prompt) + NEW_TOKENS + NODES)
        spent.clear()
        run = decode(verifier, load_drafter("cacheback"), Request(prompt, NEW_TOKENS, NODES))
        steps = run.seconds - run.prefill_seconds
        runs.append((sum(spent[1:]) / run.passes, steps / run.passes))
    before.remove()
    after.remove()
    return min(runs, key=lambda run: run[1])
