"""The engines of `benchmarks.servers.vllm_v2`, and the process of vLLM's that runs them.

Engines of a group run one after another in this process. Every engine answers the same prompts
greedily. In each worker where ngramkit drafts in Model Runner V2, `vllm_watch` compares each chain
with the chain of a fresh drafter over the same tokens, and the tokens in host memory with what the
engine answered.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.servers import vllm_watch
from benchmarks.servers.tiny_models import (
    ADAPTED,
    tiny_adapter,
    tiny_blip,
    tiny_model,
)

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
    "dtype": "float32", "max_model_len": vllm_watch.MAX_MODEL_LEN, "enforce_eager": True,
    "max_num_seqs": 4, "skip_tokenizer_init": True, "disable_log_stats": False,
    "kv_cache_memory_bytes": 64 << 20, "max_num_batched_tokens": 512, "seed": 0,
    "distributed_executor_backend": "uni",
}  # fmt: skip
COUNTERS = {
    "drafted": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
    "preempted": "vllm:num_preemptions",
}


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


def embedded(prompt: Mapping[str, Any], model: Path, *, mixed: bool) -> dict[str, Any]:
    """Return a prompt as embeddings; with `mixed` its first tokens stay ids."""
    import torch
    from safetensors.torch import load_file

    ids = prompt["prompt_token_ids"]
    rows = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    found: dict[str, Any] = {"prompt_embeds": rows[torch.tensor(ids)]}
    if mixed:
        known = [i < 16 for i in range(len(ids))]
        shown = [token if at else 0 for token, at in zip(ids, known, strict=True)]
        found |= {"prompt_token_ids": shown, "prompt_is_token_ids": known}
    return found


def pictures() -> list[tuple[Any, ...]]:
    """Return requests with a picture and one without; the first two differ by it alone."""
    import numpy as np
    from PIL import Image

    asked: list[tuple[Any, ...]] = []
    first, second, third = prompts(3)
    for prompt, seed in ((first, 1), (first, 2), (second, None), (third, 1), (first, 1)):
        if seed is not None:
            pixels = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), np.uint8)
            prompt = {**prompt, "multi_modal_data": {"image": Image.fromarray(pixels)}}
        asked.append((prompt, greedy(24)))
    return asked


def adapted(model: Path) -> list[tuple[Any, ...]]:
    """Return requests with two adapters and without one, each prompt with and without."""
    from vllm.lora.request import LoRARequest

    adapters = [
        LoRARequest(name, number, str(tiny_adapter(model.parent / f"tiny-adapter-{name}", number)))
        for number, name in enumerate("ab", 1)
    ]
    asked = zip(prompts(3), [adapters[0], adapters[0], adapters[1]], strict=True)
    return [(prompt, greedy(18), adapter) for prompt, named in asked for adapter in (named, None)]


def requests(which: str, model: Path, answers: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return (prompt, parameters) of each request, and its adapter if it has one.

    `answers`: those of the group's first row.
    """
    if which == "adapters":
        return adapted(model)
    if which == "pictures":
        return pictures()
    if which == "with their answers":
        references = ("ngramkit_reference", "ngramkit_prediction")  # the second as by the front end
        return [
            (prompt, greedy(18 + 3 * i, extra_args={references[i % 2]: answers[f"r{i}"][0]}))
            for i, prompt in enumerate(prompts(6))
        ]
    if which == "embedded":
        twice = greedy(temperature=1, top_k=1, n=2, seed=1)  # vLLM refuses n = 2 at temperature 0
        return [
            (embedded(prompt, model, mixed=i in (2, 4)), twice if i > 3 else greedy(i))
            for i, prompt in enumerate(prompts(6))
        ]
    if which == "remembered":
        keys: list[Any] = [{}, {}, {}, {"ngramkit_history": 0}, {}, {}]
    if which == "tenants":
        keys = [{"ngramkit_history": key} for key in ("acme", "acme", "globex", "", 0)] + [{}]
    if which in ("remembered", "tenants"):
        asked = zip(prompts(6), keys, strict=True)
        return [(prompt, greedy(18, extra_args=key)) for prompt, key in asked]
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


PART = 16  # tokens of a streamed part
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


def two(kind: str) -> Row:
    """Return a row with two processes, `kind` parallel."""
    return Row(
        NGRAM,
        FIXED_DRAFTS,
        {**ASYNC, f"{kind}_parallel_size": 2, "distributed_executor_backend": "mp"},
        variables={"VLLM_CPU_OMP_THREADS_BIND": "0|1"},  # else a NUMA node for each rank
    )


# vLLM reads the processor next to the tokenizer.
PICTURES = {"skip_tokenizer_init": False}


def engines(draft: dict[str, Any]) -> Row:
    """Return a row with two data-parallel engines, each in a process of its own."""
    return Row(
        NGRAM, draft, {**ASYNC, "data_parallel_size": 2}, "apart",
        variables={"VLLM_CPU_SIM_MULTI_NUMA": "1"},  # else a NUMA node for each engine
    )  # fmt: skip


# On a CPU vLLM has one row of logits a request for an adapter of the head, and fails with drafts.
LORA = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2, "lora_target_modules": [*ADAPTED]}
# Folders next to the model.
HISTORY, TENANTS, ADAPTERS = "v2-history", "v2-tenants", "v2-adapters"
SHARED, SEEN = "v2-shared", "v2-seen"
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
    "tensor parallel": {"none": Row(options=ASYNC), "ngramkit, two ranks": two("tensor")},
    "pipeline parallel": {"none": Row(options=ASYNC), "ngramkit, two stages": two("pipeline")},
    "data parallel": {
        "none": Row(options=ASYNC),
        "ngramkit": engines(FIXED_DRAFTS),
        "ngramkit, one history": engines({**FIXED_DRAFTS, "history": SHARED}),
    },
    "beam search": pair(
        "beams", {**ASYNC, "skip_tokenizer_init": False}, draft={**FIXED_DRAFTS, "history": True}
    ),
    "prompt embeddings": {
        **pair("embedded", {**ASYNC, "enable_prompt_embeds": True}),
        "ngramkit, remembers": Row(
            NGRAM, {**FIXED_DRAFTS, "history": True}, {**ASYNC, "enable_prompt_embeds": True},
            "embedded",
        ),
    },
    "pictures": {
        **pair("pictures", {**ASYNC, **PICTURES}),
        "ngramkit, trimmed": Row(NGRAM, FIXED_DRAFTS, {**SYNC, **PICTURES}, "pictures"),
        "ngramkit, remembers": Row(
            NGRAM, {**FIXED_DRAFTS, "history": SEEN}, {**ASYNC, **PICTURES}, "pictures"
        ),
    },
    "streaming inputs": pair("streams", ASYNC),
    "LoRA": {
        **pair("adapters", {**ASYNC, **LORA}),
        "ngramkit, trimmed": Row(NGRAM, FIXED_DRAFTS, {**SYNC, **LORA}, "adapters"),
        "ngramkit, a history for each": Row(
            NGRAM, {**FIXED_DRAFTS, "history": ADAPTERS, "history_by": "lora"},
            {**ASYNC, **LORA}, "adapters",
        ),
    },
    # Their processes end between them.
    "history on disk": pair("remembered", ASYNC, draft={**FIXED_DRAFTS, "history": HISTORY}),
    "history, asked again": {
        "ngramkit, read only": Row(
            NGRAM, {**FIXED_DRAFTS, "history": HISTORY, "store": False}, ASYNC, "remembered"
        ),
        "ngramkit": Row(NGRAM, {**FIXED_DRAFTS, "history": HISTORY}, ASYNC, "remembered"),
    },
    "tenants": pair(
        "tenants", ASYNC, draft={**FIXED_DRAFTS, "history": TENANTS, "history_by": "key"}
    ),
    "adaptive": pair(
        "plain", ASYNC, speculative={**NGRAM, "enable_adaptive_verification": True}
    ),
}  # fmt: skip


def run(row: Row, model: Path, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Start a row's engine, answer its requests, and return texts, steps and counts.

    `answers`: the texts of the group's first row.
    """
    from vllm import LLM
    from vllm.v1.metrics.reader import get_metrics_snapshot

    if row.asked == "pictures":
        model = tiny_blip(model.parent / "tiny-blip")
    with variables({**row.variables, **drafts(row.draft, model.parent)}):
        if row.asked in ("streams", "apart"):
            return {**asyncio.run(run_async(row, model)), **counted(get_metrics_snapshot())}
        started = time.time()
        llm = LLM(str(model), speculative_config=row.speculative, **{**OPTIONS, **row.options})
        ready = time.time()
        llm.collective_rpc(vllm_watch.start)
        engine = llm.llm_engine
        if row.asked == "beams":
            texts, steps = search_beams(llm)
        else:
            texts, steps = answer(engine, requests(row.asked, model, answers), row.aborted)
        found: dict[str, Any] = {
            "texts": texts,
            "steps": steps,
            "runner": "V2" if engine.vllm_config.use_v2_model_runner else "V1",
            "draft": row.draft or {},
            "start": ready - started,
            "answers": time.time() - ready,
            "ours": [each for each in llm.collective_rpc(vllm_watch.report, args=(texts,)) if each],
            **counted(llm.get_metrics()),
        }
        shutdown = getattr(engine.engine_core, "shutdown", None)
        if shutdown is not None:
            shutdown()
        del llm, engine
        gc.collect()
        return found


def counted(metrics: Sequence[Any]) -> dict[str, float]:
    """Return the values of COUNTERS."""
    return {
        name: sum(each.value for each in metrics if each.name == counter)
        for name, counter in COUNTERS.items()
    }


def answer(
    engine: Any, asked: Sequence[tuple[Any, ...]], aborted: Sequence[int]
) -> tuple[dict[str, Any], int]:
    """Return the token ids of each request's outputs, and the engine's steps."""
    from vllm.sampling_params import RequestOutputKind

    done: dict[str, Any] = {}
    for i, (prompt, parameters, *adapter) in enumerate(asked):
        parameters = parameters.clone()
        parameters.output_kind = RequestOutputKind.FINAL_ONLY
        named = {"lora_request": adapter[0]} if adapter else {}
        engine.add_request(f"r{i}", prompt, parameters, **named)
    steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                done[output.request_id] = [list(each.token_ids) for each in output.outputs]
        steps += 1
        if steps == 6 and aborted:
            engine.abort_request([f"r{i}" for i in aborted])
    return done, steps


def search_beams(llm: Any) -> tuple[dict[str, Any], int]:
    """Return every prompt's beams, and the engine's steps: one a token."""
    from vllm.sampling_params import BeamSearchParams

    tokens = 8
    asked = BeamSearchParams(beam_width=2, max_tokens=tokens, ignore_eos=True)
    found = llm.beam_search(prompts(3), asked)
    return {
        f"b{i}": [beam.tokens for beam in each.sequences] for i, each in enumerate(found)
    }, tokens


async def run_async(row: Row, model: Path) -> dict[str, Any]:
    """Answer a row's requests by an AsyncLLM, which may have several engines."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    started = time.time()
    options = {**OPTIONS, **row.options, "speculative_config": row.speculative}
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(str(model), **options))
    ready = time.time()

    async def tell_all(function: Any, *given: Any) -> list[Any]:
        call = engine.engine_core.call_utility_all_async
        engines = await call("collective_rpc", function, None, given, None)
        return [reply for ranks in engines for reply in ranks if reply]

    await tell_all(vllm_watch.start)
    streams = row.asked == "streams"
    texts = await (ask_streams(engine) if streams else ask_engines(engine))
    found = {
        "texts": texts,
        "steps": 0,
        "runner": "V2" if engine.vllm_config.use_v2_model_runner else "V1",
        "draft": row.draft or {},
        "start": ready - started,
        "answers": time.time() - ready,
        # The last part's answer follows the others' in the request's tokens.
        "ours": await tell_all(vllm_watch.report, {} if streams else texts),
    }
    engine.shutdown()
    return found


async def ask_streams(engine: Any) -> dict[str, Any]:
    """Send prompts whose parts arrive one after another; each part gets an answer."""
    from vllm.engine.protocol import StreamingInput
    from vllm.sampling_params import RequestOutputKind

    parameters = greedy(max_tokens=12, output_kind=RequestOutputKind.DELTA)

    async def parts(tokens: list[int]) -> AsyncIterator[Any]:
        for begin in range(0, len(tokens), PART):
            yield StreamingInput({"prompt_token_ids": tokens[begin : begin + PART]}, parameters)

    async def ask(name: str, tokens: list[int]) -> list[int]:
        written: list[int] = []
        async for output in engine.generate(parts(tokens), parameters, name):
            written += output.outputs[0].token_ids
        return written

    asked = [each["prompt_token_ids"] for each in prompts(4, 3 * PART, 0)]
    written = await asyncio.gather(*(ask(f"s{i}", each) for i, each in enumerate(asked)))
    return {f"s{i}": [each] for i, each in enumerate(written)}


async def ask_engines(engine: Any) -> dict[str, Any]:
    """Send the plain requests to two data-parallel engines, every second to the second one."""
    from vllm.sampling_params import RequestOutputKind

    async def ask(i: int, prompt: Any, parameters: Any) -> list[int]:
        parameters.output_kind = RequestOutputKind.FINAL_ONLY
        [last] = [
            output
            async for output in engine.generate(
                prompt, parameters, f"r{i}", data_parallel_rank=i % 2
            )
        ]
        return list(last.outputs[0].token_ids)

    asked = requests("plain", Path(), {})
    written = await asyncio.gather(*(ask(i, *each) for i, each in enumerate(asked)))
    return {f"r{i}": [each] for i, each in enumerate(written)}


def drafts(draft: Mapping[str, Any] | None, work: Path) -> dict[str, str]:
    """Return NGRAMKIT_DRAFT; the folder of a history is below `work`."""
    if draft is None:
        return {}
    history = draft.get("history")
    placed = {"history": str(work / history)} if isinstance(history, str) else {}
    return {"NGRAMKIT_DRAFT": json.dumps({**draft, **placed})}


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(given)
    yield
    for name in given:
        del os.environ[name]


def main(group: str, folder: str, result: str, options: str = "{}") -> None:
    """Run a group's rows; write what was found after each. `options` replace those of OPTIONS."""
    OPTIONS.update(json.loads(options))
    model, found = tiny_model(Path(folder)), {}
    answers: dict[str, Any] = {}
    for name, row in GROUPS[group].items():
        found[name] = run(row, model, answers)
        answers = answers or found[name]["texts"]
        Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
