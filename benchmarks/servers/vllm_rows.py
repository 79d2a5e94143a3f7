"""The engines of `benchmarks.servers.vllm_v2`, and the process of vLLM's that runs them.

Engines of a group run one after another in this process. Every engine answers the same prompts
greedily. Where ngramkit drafts in Model Runner V2, each chain is compared with the chain of a fresh
drafter over the same tokens, and the mirror of tokens with what the engine answered.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NGRAM = {
    "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1,
}  # fmt: skip
CUSTOM = {
    "method": "custom_class",
    "model": "ngramkit.engines.vllm.Proposer",
    "num_speculative_tokens": 5,
}
# Nothing is learnt, so a row alone decides its draft.
FIXED_DRAFTS: dict[str, Any] = {"min_probability": 0.1, "pause": False}
ASYNC, SYNC = {"async_scheduling": True}, {"async_scheduling": False}
OPTIONS: dict[str, Any] = {
    "dtype": "float32", "max_model_len": 512, "enforce_eager": True, "max_num_seqs": 4,
    "skip_tokenizer_init": True, "disable_log_stats": False, "kv_cache_memory_bytes": 64 << 20,
    "max_num_batched_tokens": 512, "seed": 0, "distributed_executor_backend": "uni",
}  # fmt: skip
COUNTERS = {
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
    "preempted": "vllm:num_preemptions",
}
VOCABULARY = 512


@dataclass(frozen=True)
class Row:
    """One engine and its requests."""

    speculative: dict[str, Any] | None = None
    draft: dict[str, Any] | None = None  # NGRAMKIT_DRAFT
    options: dict[str, Any] = field(default_factory=dict)
    asked: str = "plain"  # one of `requests`
    aborted: tuple[int, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def greedy(i: int = 0, **given: Any) -> Any:
    from vllm import SamplingParams

    plain = {"temperature": 0, "max_tokens": 30 + i, "detokenize": False, "ignore_eos": True}
    return SamplingParams(**{**plain, **given})


def prompts(count: int, length: int = 40, step: int = 7) -> list[dict[str, Any]]:
    """Return prompts of eight random tokens that repeat."""
    chance, made = random.Random(5), []
    for i in range(count):
        pattern = [chance.randrange(2, 500) for _ in range(8)]
        made.append({"prompt_token_ids": (pattern * 40)[: length + step * i]})
    return made


def requests(which: str, answers: Mapping[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Return (prompt, parameters) of each request; `answers`: those of the group's first row."""
    if which == "with their answers":
        keys = ("ngramkit_reference", "ngramkit_prediction")  # the second as by the front end
        return [
            (prompt, greedy(18 + 3 * i, extra_args={keys[i % 2]: answers[f"r{i}"][0]}))
            for i, prompt in enumerate(prompts(6))
        ]
    if which == "features":
        features = [
            greedy(0, stop_token_ids=[50, 60, 70, 80, 90, *range(100, 160)]),
            greedy(1, logprobs=3),
            greedy(2, presence_penalty=0.5, frequency_penalty=0.5),
            greedy(3, repetition_penalty=1.3),
            greedy(4, min_tokens=20, stop_token_ids=list(range(100, 200))),
            greedy(5, max_tokens=1),
            greedy(6, allowed_token_ids=list(range(2, 60))),
            greedy(7, ignore_eos=False),
        ]
        return list(zip(prompts(8), features, strict=True))
    if which == "seeded":
        return [
            (prompt, greedy(temperature=0.9, seed=11, n=2, max_tokens=25)) for prompt in prompts(4)
        ]
    if which == "to max_model_len":
        long = [{"prompt_token_ids": (list(range(2 + i, 10 + i)) * 80)[: 495 + 5 * i]}
                for i in range(3)]  # fmt: skip
        return [(prompt, greedy(i, max_tokens=60)) for i, prompt in enumerate(long)]
    if which == "preempted":
        return [(prompt, greedy(30 + i)) for i, prompt in enumerate(prompts(8, 60))]
    if which == "twice":
        return [(prompt, greedy(i % 2)) for i, prompt in enumerate(prompts(4) * 2)]
    if which == "switched off":
        off = [{"ngramkit": 0}, {"ngramkit": "off"}, {}, {"ngramkit_history": 0}]
        return [(prompt, greedy(12, extra_args=off[i % 4])) for i, prompt in enumerate(prompts(8))]
    return [(prompt, greedy(18 + 3 * i)) for i, prompt in enumerate(prompts(6))]


BY_BATCH = {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 3, 2], [4, 4, 0]]}
SMALL_CACHE = {
    "max_num_batched_tokens": 64, "num_gpu_blocks_override": 10, "enable_prefix_caching": False,
    "max_num_seqs": 8,
}  # fmt: skip
WARM = {
    "enforce_eager": False, "compilation_config": {"mode": 0, "cudagraph_mode": "NONE"},
    "kernel_config": {"enable_jit_warmup": True}, "max_num_batched_tokens": 128,
}  # fmt: skip
PROFILED = {
    "kv_cache_memory_bytes": None, "gpu_memory_utilization": 0.15, "max_num_batched_tokens": 128,
}  # fmt: skip


def pair(asked: str, options: dict[str, Any], aborted: tuple[int, ...] = (), **ours: Any) -> Any:
    """Return two rows for a scenario: without drafts, and with ours."""
    speculative = ours.pop("speculative", NGRAM)
    draft = ours.pop("draft", FIXED_DRAFTS)
    return {
        "none": Row(None, None, options, asked, aborted),
        "ngramkit": Row(speculative, draft, options, asked, aborted, **ours),
    }


# Group -> name -> row. numba ends V1's starts in a process, so ngramkit is the last of its group.
GROUPS: dict[str, dict[str, Row]] = {
    "V1": {"V1 none": Row(), "V1 ngramkit": Row(CUSTOM, FIXED_DRAFTS)},
    "V2": {
        "V2 none": Row(options=ASYNC),
        "V2 ngram": Row(NGRAM, options=ASYNC),
        "V2 ngramkit, trimmed": Row(NGRAM, FIXED_DRAFTS, SYNC),
        "V2 ngramkit, trimmed, learnt price": Row(NGRAM, {}, SYNC),
        "V2 ngramkit, fixed": Row(NGRAM, FIXED_DRAFTS, ASYNC),
    },
    "features": pair("features", ASYNC),
    "features, trimmed": pair("features", SYNC),
    "seeded": {
        "none": Row(NGRAM, FIXED_DRAFTS, ASYNC, "seeded"),
        "ngramkit": Row(NGRAM, FIXED_DRAFTS, ASYNC, "seeded"),
    },
    "to max_model_len": pair("to max_model_len", ASYNC),
    "K by batch size": pair("plain", ASYNC, speculative=BY_BATCH),
    "aborted": pair("plain", ASYNC, (1, 4)),
    "prefix caching": pair("twice", ASYNC),
    "preempted": pair("preempted", {**ASYNC, **SMALL_CACHE}),
    "preempted, trimmed": pair("preempted", {**SYNC, **SMALL_CACHE}),
    "JIT warm-up": pair("features", {**ASYNC, **WARM}),
    "profile run": pair("plain", {**ASYNC, **PROFILED}),
    "switched off": pair("switched off", SYNC),
    "remembered": pair("plain", ASYNC, draft={**FIXED_DRAFTS, "history": True}),
    "text": {
        "none": Row(options=ASYNC),
        "ngramkit, no text": Row(NGRAM, FIXED_DRAFTS, ASYNC),
        "ngramkit, fixed": Row(NGRAM, FIXED_DRAFTS, ASYNC, "with their answers"),
        "ngramkit, trimmed": Row(NGRAM, FIXED_DRAFTS, SYNC, "with their answers"),
    },
    "text, V1": {
        "none": Row(),
        "ngramkit": Row(CUSTOM, FIXED_DRAFTS, asked="with their answers"),
    },
    "tensor parallel": {
        "none": Row(options=ASYNC),
        "ngramkit, two ranks": Row(
            NGRAM,
            FIXED_DRAFTS,
            {**ASYNC, "tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
            variables={"VLLM_CPU_OMP_THREADS_BIND": "0|1"},  # else a NUMA node for each rank
        ),
    },
    "adaptive": pair(
        "plain", ASYNC, speculative={**NGRAM, "enable_adaptive_verification": True}
    ),
}  # fmt: skip


class Watched:
    """Compares what a Speculator's drafter does with fresh drafters."""

    def __init__(self, speculator: Any) -> None:
        from ngramkit.engines.batch import Asked, BatchDrafter
        from ngramkit.engines.config import DraftConfig

        self.speculator, self.chains, self.different = speculator, 0, 0
        self.texts: dict[str, tuple[list[int], int]] = {}  # by id: tokens, how many are the prompt
        requests, theirs = speculator.requests, speculator.requests.chains
        config = DraftConfig.from_environment() or DraftConfig()
        comparable = config.min_probability is not None and config.history is None

        def chains(names: Any, rows: Any, most: int, cost: float | None) -> Any:
            made = theirs(names, rows, most, cost)
            for name, row, chain in zip(names, rows, made, strict=True):
                if row is None:
                    continue
                self.texts[name] = row.tokens.tolist(), row.prompt
                length = max(min(most, OPTIONS["max_model_len"] - row.length - 1), 0)
                if comparable and length:
                    fresh = BatchDrafter(speculator.batch.source, config)
                    asked = Asked(row.prompt, references=row.request.references)
                    [wanted] = fresh.chain_batch([row.tokens], [length], cost, asked=[asked])
                    self.chains += 1
                    self.different += chain.token_ids.tolist() != wanted.token_ids.tolist()
            return made

        requests.chains = chains

    def report(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was counted; `mirrored`: requests whose tokens are what was answered."""
        requests, mirrored, shown = self.speculator.requests, 0, 0
        for name, (tokens, prompt) in self.texts.items():
            number, _, asked = name.rpartition("-")[0].rpartition("_")
            if asked in texts:
                shown += 1
                answer, output = texts[asked][int(number or 0)], tokens[prompt:]
                mirrored += answer[: len(output)] == output[: len(answer)]
        return {
            "mode": self.speculator.mode,
            "chains": self.chains,
            "different": self.different,
            "resynced": requests.rows.resynced,
            "K": self.speculator.step_slots,
            "mirrored": mirrored,
            "shown": sum(
                name.rpartition("-")[0].rpartition("_")[2] in texts for name in self.texts
            ),
            "requests": self.speculator.batch.statistics.requests,
            "predicted": [requests.predicted(name, 1) for name in texts],
            "texts": len(requests.texts),
        }


def run(row: Row, model: Path, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Start a row's engine, answer its requests, and return texts, steps and counts.

    `answers`: the texts of the group's first row.
    """
    from vllm import LLM

    with variables({**row.variables, **drafts(row.draft)}):
        started = time.time()
        llm = LLM(str(model), speculative_config=row.speculative, **{**OPTIONS, **row.options})
        ready = time.time()
        runner = runner_of(llm)
        ours = getattr(runner, "speculator", None)
        watched = Watched(ours) if hasattr(ours, "requests") else None
        engine = llm.llm_engine
        texts, steps = answer(engine, requests(row.asked, answers), row.aborted)
        found: dict[str, Any] = {
            "texts": texts,
            "steps": steps,
            "runner": "V2" if engine.vllm_config.use_v2_model_runner else "V1",
            "start": ready - started,
            "answers": time.time() - ready,
            "ours": None if watched is None else watched.report(texts),
        }
        for name, counter in COUNTERS.items():
            found[name] = sum(
                each.value for each in llm.get_metrics() if each.name == counter
            )  # fmt: skip
        shutdown = getattr(engine.engine_core, "shutdown", None)
        if shutdown is not None:
            shutdown()
        del llm, engine, runner, ours, watched
        gc.collect()
        return found


def answer(
    engine: Any, asked: Sequence[tuple[dict[str, Any], Any]], aborted: Sequence[int]
) -> tuple[dict[str, Any], int]:
    """Return the token ids of each request's outputs, and the engine's steps."""
    from vllm.sampling_params import RequestOutputKind

    done: dict[str, Any] = {}
    for i, (prompt, parameters) in enumerate(asked):
        parameters = parameters.clone()
        parameters.output_kind = RequestOutputKind.FINAL_ONLY
        engine.add_request(f"r{i}", prompt, parameters)
    steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                done[output.request_id] = [list(each.token_ids) for each in output.outputs]
        steps += 1
        if steps == 6 and aborted:
            engine.abort_request([f"r{i}" for i in aborted])
    return done, steps


def runner_of(llm: Any) -> Any:
    worker = getattr(getattr(llm.llm_engine, "model_executor", None), "driver_worker", None)
    return getattr(getattr(worker, "worker", worker), "model_runner", None)


def drafts(draft: Mapping[str, Any] | None) -> dict[str, str]:
    return {} if draft is None else {"NGRAMKIT_DRAFT": json.dumps(draft)}


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(given)
    yield
    for name in given:
        del os.environ[name]


def tiny_model(folder: Path) -> Path:
    """Save a Llama of random weights and 512 ids, once."""
    if not (folder / "config.json").exists():
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=1024,
            eos_token_id=1, bos_token_id=0, tie_word_embeddings=False,
        )  # fmt: skip
        model: Any = LlamaForCausalLM(config)
        model.float().save_pretrained(folder)
    return folder


def main(group: str, folder: str, result: str) -> None:
    """Run a group's rows; write what was found after each."""
    model, found = tiny_model(Path(folder)), {}
    answers: dict[str, Any] = {}
    for name, row in GROUPS[group].items():
        found[name] = run(row, model, answers)
        answers = answers or found[name]["texts"]
        Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
