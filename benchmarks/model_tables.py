"""A bigram table's operations per second against one large matrix product's, in the same run.

On the CPU with the demo model. With a GPU, also with random bfloat16 weights in the shape of
Mistral 7B.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from benchmarks import Row, interleaved
from ngramkit.builders.model_bigram import build_model_bigram
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.tokenizer_record import TokenizerRecord, tokenizer_fingerprint

# Side of the square matrices whose product is the device's peak: a fraction of a second each.
CPU_SIDE, ACCELERATOR_SIDE = 1024, 8192
MISTRAL_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def rows() -> Iterator[Row]:
    import torch

    from ngramkit.decode.load import load_model

    demo = load_model("demo", device="cpu")
    yield _row("model-bigram demo, CPU", demo.model, demo.tokenizer, "under 5 s")
    if torch.cuda.is_available():
        model, tokenizer = _of_mistrals_shape()
        device = torch.cuda.get_device_name()
        yield _row(f"model-bigram, Mistral 7B's shape, {device}", model, tokenizer, "under 1.5 s")


def _row(what: str, model: Any, tokenizer: TextTokenizer, target: str) -> Row:
    times: list[float] = []
    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:

        def ours() -> None:
            out = Path(folder) / str(len(times))
            seconds = build_model_bigram(model, tokenizer, out).seconds
            assert seconds is not None
            times.append(seconds)

        def reference() -> None:
            peaks.append(matmul_peak(model.device, model.dtype))

        interleaved(ours, reference)
    rate = tokenizer.record.vocabulary * flops_of_a_pass(model) / min(times)
    return Row(
        what=f"{what}, {tokenizer.record.vocabulary:,} tokens",
        ours=f"{min(times):.2f} s, {rate / 1e9:,.0f} GFLOP/s",
        reference=f"{max(peaks) / 1e9:,.0f} GFLOP/s, one large matrix product",
        ratio=rate / max(peaks),
        target=target,
    )


def flops_of_a_pass(model: Any) -> int:
    """Return the operations for one token, counted while one runs."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def packed(inputs: Any, weight: Any, *_: Any, **__: Any) -> int:
        return int(2 * math.prod(inputs) * weight[0])

    operation = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # which torch does not count
    mapping: dict[Any, Any] = {} if operation is None else {operation: packed}
    ids = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        model(input_ids=ids, use_cache=False)
    return int(counter.get_total_flops())


def matmul_peak(device: Any, dtype: Any) -> float:
    """Measure FLOP/s: the best of some products of large square matrices."""
    import torch

    def finished() -> float:
        """Return the time at which the device has finished its work."""
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter()

    side = CPU_SIDE if device.type == "cpu" else ACCELERATOR_SIDE
    # Not ones or zeros: an accelerator draws less power for those, and runs faster than it can.
    left = torch.randn(side, side, device=device).to(dtype)
    right = torch.randn(side, side, device=device).to(dtype)
    best = float("inf")
    for _ in range(4):
        began = finished()
        torch.mm(left, right)
        best = min(best, finished() - began)
    return 2.0 * side**3 / best


def _of_mistrals_shape() -> tuple[Any, TextTokenizer]:
    """Return random weights, and a tokenizer of as many made-up words."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoModelForCausalLM, MistralConfig

    config, of = cast(Any, MistralConfig), cast(Any, AutoModelForCausalLM)
    with torch.device("cuda"):
        model = of.from_config(config(**MISTRAL_7B), dtype=torch.bfloat16).eval()
    size = MISTRAL_7B["vocab_size"]
    backend = Tokenizer(WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    record = TokenizerRecord("made-up", size, tokenizer_fingerprint(backend))
    return model, TextTokenizer(record, backend, {"bos_token": "w1"})
