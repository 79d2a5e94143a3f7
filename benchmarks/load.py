"""`python -m benchmarks.load [--write] [--log FILE]`: drafts under load, in computed pass times.

A simulated server of 1 to 256 requests at once drafts by the engines' own rule. Passes take what
the formula says for a dense model and for models of 64 and 128 experts (`budget.model_cost`). A
drafted token is right with a given probability after right ones, and its score may be too high.
Next to these are the ratios of a table that suffix-gpu published for a GPU.

--log FILE: replays the recorded requests of a log instead, for 1, 8 and 64 at once. --write keeps
the table in benchmarks/figures/.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

import ngramkit
from benchmarks import existing, markdown
from benchmarks._figures import write_figures
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import ModelSize, model_size
from ngramkit.budget.pass_times import PassTimes
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

REQUESTS = (1, 8, 32, 64, 128, 256)
LENGTH = 8  # tokens of a chain, at most
CONTEXT = 512  # tokens of each request's prompt
RUNS = 32  # of one request; a run of more requests counts for as many
MODELS: dict[str, dict[str, Any]] = {  # by their config.json
    "Qwen3-8B, dense": {
        "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
        "vocab_size": 151936,
    },
    "OLMoE-1B-7B, 8 of 64 experts": {
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64,
        "num_experts_per_tok": 8, "vocab_size": 50304,
    },
    "Qwen3-30B-A3B, 8 of 128 experts": {
        "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    },
}  # fmt: skip
DRAFTS = {"0.6": (0.6, 0.6), "0.1, scores of 0.8": (0.1, 0.8)}  # (right, believed to be)
# Tokens per second over no drafts in suffix-gpu 0.1.3's own table: Qwen3-8B on an RTX 4090, where
# no drafts write 59, 428, 1,447 and 1,468 tokens a second for 1, 8, 64 and 128 requests.
PUBLISHED = {
    "suffix-gpu, published": {1: 76 / 59, 8: 835 / 428, 64: 2510 / 1447, 128: 2416 / 1468},
    "Arctic's suffix decoding, published there": {
        1: 80 / 59, 8: 985 / 428, 64: 2268 / 1447, 128: 2259 / 1468,
    },
}  # fmt: skip


class Served(NamedTuple):
    drafted: float  # tokens per step
    accepted: float
    time: float  # of a token, over no drafts


def served(
    rows: int,
    length: int,
    cost: PassTimes,
    *,
    right: float = 0.8,
    believed: float = 0.8,
    steps: int = 200,
    context: int = 1,
    seed: int = 0,
) -> Served:
    """Serve `rows` requests at once whose drafted tokens are right with `right` after right ones.

    The drafter believes in `believed`. All steps count in `time`, also those in which it finds out
    that its scores are wrong.
    """
    random = np.random.default_rng(seed)
    parents, zeros = np.arange(-1, length - 1, dtype=np.int32), np.zeros(length, np.int32)
    scores = (believed ** np.arange(1, length + 1)).astype(np.float32)

    class Zeros(NoDraft):
        def draft(self, budget: int) -> DraftTree:
            n = min(budget, length)
            return DraftTree(zeros[:n], parents[:n], scores[:n], zeros[:n].astype(np.uint8))

    drafter = BatchDrafter(DrafterSource(Zeros, 9), DraftConfig(threads=1), cost=cost)
    spent = plain = 0.0
    texts = [[1] * context + [1 + row % 8] for row in range(rows)]
    for _ in range(steps):
        chains = drafter.chain_batch([np.array(t, np.int32) for t in texts], [length] * rows)
        mean, written = sum(map(len, texts)) / rows, 0
        tokens = np.array([rows, rows + sum(map(len, chains))], np.float64)
        times = cost.times(tokens, rows, mean)
        for text, chain in zip(texts, chains, strict=True):
            accepted = min(int(random.geometric(1 - right)) - 1, len(chain))
            written += accepted + 1
            text += [0] * accepted + [1]
        spent += float(times[1])
        plain += float(times[0]) * written / rows
    counts = drafter.statistics
    return Served(
        counts.draft_tokens / counts.rows, counts.accepted_tokens / counts.rows, spent / plain
    )


def simulated() -> Iterator[list[str]]:
    for name, config in MODELS.items():
        size = model_size(config)
        assert isinstance(size, ModelSize)
        for drafts, (right, believed) in DRAFTS.items():
            cells = []
            for rows in REQUESTS:
                steps = 60 + 240 // rows
                found = [
                    served(
                        rows, LENGTH, ModelCost(size=size), right=right, believed=believed,
                        steps=steps, context=CONTEXT, seed=seed,
                    )
                    for seed in range(max(RUNS // rows, 1))
                ]  # fmt: skip
                speed = 1 / fmean(each.time for each in found)
                cells.append(f"{speed:.2f} ({fmean(each.drafted for each in found):.1f})")
                print(name, drafts, rows, cells[-1], flush=True)
            yield [name, drafts, *cells]
    for name, speeds in PUBLISHED.items():
        yield [name, "", *(f"{speeds[n]:.2f}" if n in speeds else "" for n in REQUESTS)]


def replayed(log: Path) -> Iterator[list[str]]:
    """Replay a log without artifacts, for a dense model whose tokens are SmolLM2's."""
    for requests in (1, 8, 64):
        found = list(
            ngramkit.forecast(
                log, model="smollm2-135m", concurrency=requests, budgets=(8, 16),
                pass_cost=(1 + 9 / 128) / (1 + 1 / 128),
            )
        )  # fmt: skip
        steps = [1 / each.passes_share for each in found]
        drafted = [each.drafted / (each.passes * each.batch) for each in found]
        cells = [*(f"{n:.2f}" for n in steps), *(f"{n:.1f}" for n in drafted)]
        yield [str(requests), *cells, *(f"{1 / each.time_share:.2f}" for each in found)]
        print(cells, flush=True)


HEADS = {
    "load": ("model", "right", *(f"{n} at once" for n in REQUESTS)),
    "engine_batches": (
        "requests at once", "tokens/step, 8 tokens", "tokens/step, 16", "drafted/step, 8",
        "drafted/step, 16", "rate, 8", "rate, 16",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--log", type=existing, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    name, command = "load", "python -m benchmarks.load"
    rows = simulated() if options.log is None else replayed(options.log)
    if options.log is not None:
        name, command = "engine_batches", f"{command} --log {options.log.name}"
    kept = list(rows)
    print(markdown(HEADS[name], kept))
    if options.write:
        write_figures(name, command, {"head": HEADS[name], "rows": kept})


if __name__ == "__main__":
    main()
