"""Steps of vLLM's Model Runner V2 with SmolLM2-135M-Instruct, by drafts.

`benchmarks.servers.vllm_v2` runs it in vLLM's environment. Some questions are asked one at a time,
others eight at once, and those once more. vLLM's `suffix`, which remembers answers too, runs in
Model Runner V1 only. Every text must equal the one without drafts. Steps are vLLM's count of
iterations; Triton's interpreter takes most of the time, so times mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.servers.vllm_rows import ASYNC, OPTIONS, SYNC, answer, counted, drafts, variables

SLOTS, AT_ONCE = 8, 8
NGRAM = {"method": "ngram", "num_speculative_tokens": SLOTS, "prompt_lookup_max": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": SLOTS}
RUNNER_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
HEAD = (
    "drafts", "steps, one at a time", "steps, eight at once", "steps, asked again",
    "accepted / verified",
)  # fmt: skip


class Round(NamedTuple):
    texts: dict[str, list[list[int]]]  # by request
    steps: int
    seconds: float  # of this process's processor time


def ways(datastore: Path | None) -> dict[str, tuple[Any, Any, Any]]:
    """Return name -> (speculative configuration, ours in NGRAMKIT_DRAFT, options)."""
    stored = {} if datastore is None else {"datastores": [str(datastore)]}
    found: dict[str, tuple[Any, Any, Any]] = {
        "none": (None, None, ASYNC),
        "vLLM's `ngram`": (NGRAM, None, ASYNC),
        "ngramkit, own text": (NGRAM, {}, ASYNC),
    }
    if stored:
        found["ngramkit, datastore"] = NGRAM, stored, ASYNC
    source = "datastore and its own answers" if stored else "its own answers"
    found[f"ngramkit, {source}"] = NGRAM, {**stored, "history": True}, ASYNC
    found["vLLM's `suffix` (V1)"] = SUFFIX, None, SYNC
    return found


def main() -> None:
    """Print a row for each engine, and write them with the failures."""
    given = arguments("vllm_table", count=4, tokens=48).parse_args()
    lines = given.questions.read_text("utf-8").splitlines()[: given.count + AT_ONCE]
    questions = [json.loads(line)["turns"][0] for line in lines]
    base: list[Round] = []
    rows: list[list[str]] = []
    failures: list[str] = []
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    for name, (speculative, draft, options) in ways(given.datastore).items():
        runner = RUNNER_V1 if speculative is SUFFIX else {}
        with variables({**drafts(draft, given.result.parent), **runner}):
            rounds, rate = ask(given, speculative, options, questions)
        base = base or rounds
        for i, (plain, each) in enumerate(zip(base, rounds, strict=True)):
            differ = differing(plain.texts, each.texts)
            if differ:
                failures.append(f"{name}: {differ} other texts in round {i}")
        steps = [
            f"{plain.steps / each.steps:.2f}" for plain, each in zip(base, rounds, strict=True)
        ]
        rows.append([name, *steps, rate])
        print(f"| {' | '.join(rows[-1])} | {[each.steps for each in rounds]} steps", flush=True)
        given.result.write_text(json.dumps({"head": HEAD, "rows": rows, "failures": failures}))


def arguments(name: str, *, count: int, tokens: int) -> argparse.ArgumentParser:
    """Return a parser of what both tables are made of; `count`, `tokens`: the defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.servers.{name}")
    parser.add_argument("model", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--datastore", type=Path)
    parser.add_argument("--count", type=int, default=count, help="questions that are asked alone")
    parser.add_argument("--tokens", type=int, default=tokens)
    return parser


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Return how many texts are not those wanted."""
    return sum(found.get(name) != text for name, text in wanted.items())


def ask(
    given: Any, speculative: Any, options: Any, questions: Sequence[str]
) -> tuple[list[Round], str]:
    """Return texts and steps of each round, and which part of the drafted tokens was right."""
    llm = start(given.model, speculative, options)
    requests = requests_for(llm, questions, given.tokens)
    alone, together = requests[: given.count], requests[given.count :]
    batches = [[[each] for each in alone], [together], [together]]
    rounds = [ask_round(llm, each) for each in batches]
    counts = counted(llm.get_metrics())
    rate = f"{counts['accepted'] / counts['drafted']:.2f}" if counts["drafted"] else ""
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    return rounds, rate


def start(model: Path, speculative: Any, options: Mapping[str, Any]) -> Any:
    """Start an engine in this process."""
    from vllm import LLM

    more = {
        "skip_tokenizer_init": False, "max_num_seqs": AT_ONCE, "max_model_len": 1024,
        "kv_cache_memory_bytes": 256 << 20,
    }  # fmt: skip
    return LLM(str(model), speculative_config=speculative, **{**OPTIONS, **options, **more})


def requests_for(llm: Any, questions: Sequence[str], tokens: int) -> list[tuple[Any, Any]]:
    """Return (prompt, parameters) of each question."""
    from vllm import SamplingParams

    tokenizer: Any = llm.get_tokenizer()
    parameters = SamplingParams(temperature=0, max_tokens=tokens, detokenize=False)
    asked = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": each}], add_generation_prompt=True, return_dict=False
        )
        for each in questions
    ]
    return [({"prompt_token_ids": list(each)}, parameters) for each in asked]


def ask_round(llm: Any, batches: Sequence[Any]) -> Round:
    """Ask one batch after another."""
    steps, seconds, texts = iterations(llm), time.process_time(), {}
    for i, batch in enumerate(batches):
        found, _ = answer(llm.llm_engine, batch, ())
        texts.update({f"{i} {name}": text for name, text in found.items()})
    return Round(texts, iterations(llm) - steps, time.process_time() - seconds)


def iterations(llm: Any) -> int:
    return sum(
        each.count for each in llm.get_metrics() if each.name == "vllm:iteration_tokens_total"
    )


if __name__ == "__main__":
    main()
