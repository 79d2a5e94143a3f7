"""vLLM's Model Runner V2 with ngramkit's drafts on a GPU: texts, waits and tokens a second.

    python -m benchmarks.servers.vllm_gpu [--write]

It needs vLLM 0.33 and ngramkit in the same environment, and one GPU. No model is downloaded.

*texts*: the groups of `benchmarks.servers.vllm_rows` with a tiny Llama in float32, CUDA graphs and
VLLM_GPU_SYNC_CHECK=error, which ends an engine that waits for the device where it may not. Texts
must equal those without drafts, chains those of fresh drafters.

*times*: models with the sizes of real ones and random weights, in bfloat16. Their answers say
nothing, so two kinds of requests stand for the ends of the range. *Repeated*: greedy answers over
64 ids, which repeat themselves, so that most drafts are right. *Random*: answers drawn from these
ids, so that most drafts are wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import markdown
from benchmarks._figures import write_figures
from benchmarks.load import MODELS
from benchmarks.servers import vllm_watch
from benchmarks.servers.tiny_models import tiny_model
from benchmarks.servers.vllm_rows import (
    ASYNC,
    GROUPS,
    NGRAM,
    SYNC,
    counted,
    drafts,
    prompts,
    variables,
)
from benchmarks.servers.vllm_table import differing, iterations
from benchmarks.servers.vllm_v2 import IN_PROCESS, PLAIN, check, check_disk, run_group

COMMAND = "python -m benchmarks.servers.vllm_gpu"
PROCESSES = 8  # groups that run at once
# Groups that need several GPUs, or a server of their own.
LEFT_OUT = ("tensor parallel", "pipeline parallel", "data parallel", "text, V1")
# CUDA graphs without torch.compile: an engine starts in half a minute.
GRAPHS = {
    "enforce_eager": False, "compilation_config": {"mode": 0, "cudagraph_mode": "FULL"},
    "kernel_config": {"enable_jit_warmup": False},
}  # fmt: skip
# The groups' small caches have ten blocks of a CPU's size.
TINY = {**GRAPHS, "gpu_memory_utilization": 0.1, "block_size": 128}
TEXTS_HEAD = (
    "group: engine", "equal texts", "steps without drafts", "steps", "drafted", "accepted",
)  # fmt: skip
SYNC_CHECK = {"VLLM_GPU_SYNC_CHECK": "error"}
REQUESTS = (1, 8, 64, 256)
SLOTS, TOKENS, PROMPT, IDS = 8, 128, 64, 64
SPECULATIVE = {**NGRAM, "num_speculative_tokens": SLOTS}
ADAPTIVE = {**SPECULATIVE, "enable_adaptive_verification": True}
NONE, SYNCHRONOUS = "no drafts", "no drafts, synchronous"
SCHEDULING_HEAD = (
    "requests at once", "asynchronous, tokens/s", "synchronous, tokens/s",
    "asynchronous over synchronous",
)  # fmt: skip
# Name -> speculative configuration, NGRAMKIT_DRAFT, options.
ENGINES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    NONE: (None, None, ASYNC),
    SYNCHRONOUS: (None, None, SYNC),
    "vLLM's `ngram`": (SPECULATIVE, None, ASYNC),
    "ngramkit, fixed": (SPECULATIVE, {}, ASYNC),
    "ngramkit, trimmed": (SPECULATIVE, {}, SYNC),
    "ngramkit, adaptive": (ADAPTIVE, {}, ASYNC),
}
KINDS: dict[str, dict[str, Any]] = {
    "repeated": {"temperature": 0},
    "random": {"temperature": 1.0, "seed": 1},
}
CHOSEN = ("Qwen3-8B, dense", "Qwen3-30B-A3B, 8 of 128 experts")


Timed = dict[str, dict[int, dict[str, Any]]]  # by engine and number of requests


class Answered(NamedTuple):
    tokens: int  # after each request's first
    seconds: float
    steps: int
    drafted: float  # tokens
    accepted: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def main() -> None:
    """Run both parts; exit with 1 if a text differs or an engine fails."""
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument(
        "--parts", nargs="+", choices=("texts", "times"), default=["texts", "times"]
    )
    parser.add_argument("--groups", nargs="+", choices=[*GROUPS])
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*CHOSEN])
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES], default=[*ENGINES])
    parser.add_argument("--work", type=Path, default=Path("build/servers"))
    parser.add_argument("--write", action="store_true", help="keep the figures")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    failures = 0
    if "texts" in given.parts:
        groups = given.groups or [group for group in GROUPS if group not in LEFT_OUT]
        found = run_groups(groups, given.work)
        for failure in wrong_texts(found, given.work):
            print(f"FAILED: {failure}", flush=True)
            failures += 1
        if given.write:
            figures = {"gpu": gpu(), "head": TEXTS_HEAD, "rows": text_rows(found)}
            write_figures("vllm_gpu_texts", COMMAND, figures)
    if "times" in given.parts:
        timed = {name: time_engines(name, given) for name in given.models}
        rows = [row for name, engines in timed.items() for row in time_rows(name, engines)]
        failures += sum("failed" in row for row in rows)
        head = ["model", "requests", "drafts", *heads()]
        print(markdown(head, rows))
        if given.write:
            write_figures("vllm_gpu", COMMAND, {"gpu": gpu(), "head": head, "rows": rows})
            if SYNCHRONOUS in given.engines:
                rows = scheduling_rows(timed[given.models[0]])
                figures = {"gpu": gpu(), "head": SCHEDULING_HEAD, "rows": rows}
                write_figures("vllm_gpu_scheduling", COMMAND, figures)
    raise SystemExit(failures > 0)


def gpu() -> str:
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def run_groups(groups: Sequence[str], work: Path) -> dict[str, dict[str, Any]]:
    """Return what was found of each group's engines; several groups run at once."""
    environment = Path(sys.prefix)
    tiny_model(work / "tiny-llama")  # groups share it

    def run(group: str) -> dict[str, Any]:
        runner = {"VLLM_USE_V2_MODEL_RUNNER": "0"} if "V1" in group else SYNC_CHECK
        return run_group(group, environment, work, {**os.environ, **runner}, TINY)

    second = "history, asked again"  # it reads what another group wrote
    first = [group for group in groups if group != second]
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = dict(zip(first, pool.map(run, first), strict=True))
    if second in groups:
        found[second] = run(second)
    return found


def wrong_texts(found: Mapping[str, dict[str, Any]], work: Path) -> Iterator[str]:
    """Print a line for each engine, and yield what is wrong."""
    for group in found:
        for failure in chain(check(group, found), check_disk(group, work)):
            yield f"{group}: {failure}"


def text_rows(found: Mapping[str, dict[str, Any]]) -> list[list[str]]:
    """Return a row for each engine with drafts, next to the first of its group."""
    rows = []
    for group, engines in found.items():
        plain = next(iter(found.get(PLAIN.get(group, group), engines).values()))
        for name, each in engines.items():
            if name == "failed" or each is plain or "none" in name.split():
                continue
            same = len(plain["texts"]) - differing(plain["texts"], each["texts"])
            counts = (plain["steps"], each["steps"], each["drafted"], each["accepted"])
            equal = f"{same} of {len(plain['texts'])}"
            rows.append([f"{group}: {name}", equal, *(f"{count:.0f}" for count in counts)])
    return rows


def heads() -> list[str]:
    return [f"{what}, {kind}" for kind in KINDS for what in ("tokens/s", "gain", "accepted")] + [
        "ms waited", "ms drafting",
    ]  # fmt: skip


def time_engines(name: str, given: argparse.Namespace) -> Timed:
    """Return what each engine measured, by numbers of requests."""
    folder = config_folder(given.work / "sizes" / name.split(",")[0], MODELS[name])
    found: Timed = {}
    for engine in dict.fromkeys([NONE, *given.engines]):
        found[engine] = in_process(folder, engine)
        print(f"{name}, {engine}: {json.dumps(found[engine])}", flush=True)
        if len(found[NONE]) < len(REQUESTS):
            raise SystemExit("vLLM does not serve without drafts; its log is above")
    return found


def scheduling_rows(found: Timed) -> list[list[str]]:
    """Compare the two ways of scheduling without drafts."""
    rows = []
    for requests, each in found[SYNCHRONOUS].items():
        ahead, waiting = (Answered(*of["repeated"]).rate for of in (found[NONE][requests], each))
        rows.append([str(requests), f"{ahead:,.0f}", f"{waiting:,.0f}", f"{ahead / waiting:.2f}"])
    return rows


def time_rows(name: str, found: Timed) -> list[list[str]]:
    """Return a row for each number of requests and each engine."""
    rows = []
    for requests in REQUESTS:
        for engine, each in found.items():
            if requests not in each:
                rows.append([name, str(requests), engine, *("failed" for _ in heads())])
                continue
            cells = [name, str(requests), engine]
            for kind in KINDS:
                ours, plain = (Answered(*of[requests][kind]) for of in (each, found[NONE]))
                rate = ours.accepted / ours.drafted if ours.drafted else 0.0
                cells += [
                    f"{ours.rate:,.0f}",
                    f"{ours.rate / plain.rate:.2f}",
                    f"{rate:.2f}" if ours.drafted else "",
                ]
            waited, drafting = each[requests]["host"]
            cells += [f"{1e3 * waited:.2f}", f"{1e3 * drafting:.2f}"] if drafting else ["", ""]
            rows.append(cells)
    return rows


def in_process(folder: Path, engine: str) -> dict[int, dict[str, Any]]:
    """Return what `serve` found, in a process of its own; nothing of what failed."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=serve, args=(theirs, folder, engine)
    )
    process.start()
    theirs.close()
    found: dict[int, dict[str, Any]] = {}
    try:
        while True:
            requests, each = ours.recv()
            found[requests] = each
    except EOFError:
        process.join()
    return found


def serve(told: Any, folder: Path, engine: str) -> None:
    """Start an engine; send (requests, what was measured) for each number of requests."""
    speculative, draft, options = ENGINES[engine]
    with variables({**IN_PROCESS, **drafts(draft, folder)}):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"  # as a server has it
        llm = start(folder, speculative, options)
        for requests in REQUESTS:
            found: dict[str, Any] = {}
            before = host_times(llm)
            for kind, sampling in KINDS.items():
                answer(llm, requests, {**sampling, "max_tokens": 24})  # kernels are compiled
                found[kind] = answer(llm, requests, {**sampling, "max_tokens": TOKENS})
            calls, waited, drafting = (
                now - then for now, then in zip(host_times(llm), before, strict=True)
            )
            found["host"] = (waited / calls, drafting / calls) if calls else (0, 0)
            told.send((requests, found))
        told.close()
        llm.llm_engine.engine_core.shutdown()


def config_folder(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write a config.json of vLLM's Qwen3; return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    mixture = "num_experts" in config
    more = {
        "architectures": ["Qwen3MoeForCausalLM" if mixture else "Qwen3ForCausalLM"],
        "model_type": "qwen3_moe" if mixture else "qwen3",
        "intermediate_size": config.get("intermediate_size", 6144), "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 1,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    return folder


def start(folder: Path, speculative: Any, options: Mapping[str, Any]) -> Any:
    """Start an engine with random weights whose logits are far apart."""
    from vllm import LLM
    from vllm.model_executor.model_loader import dummy_loader

    def draw(tensor: Any, **_: Any) -> None:
        if tensor.is_floating_point():
            tensor.data.fill_(1.0) if tensor.dim() < 2 else tensor.data.normal_(0.0, 0.02)

    dummy_loader.initialize_single_dummy_weight = draw
    return LLM(
        str(folder), speculative_config=speculative, load_format="dummy", dtype="bfloat16",
        max_model_len=1024, max_num_seqs=max(REQUESTS), skip_tokenizer_init=True, seed=0,
        disable_log_stats=False, enable_prefix_caching=False, **{**GRAPHS, **options},
    )  # fmt: skip


def answer(llm: Any, requests: int, sampling: Mapping[str, Any]) -> Answered:
    """Answer requests at once; what is measured begins when each has its first token."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        **sampling, ignore_eos=True, detokenize=False, allowed_token_ids=list(range(2, 2 + IDS)),
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip
    engine, waiting = llm.llm_engine, set[str]()
    for i, prompt in enumerate(prompts(requests, PROMPT, 0)):
        each = parameters.clone()
        if each.seed is not None:
            each.seed += i
        engine.add_request(f"r{i}", prompt, each)
        waiting.add(f"r{i}")
    tokens, started, before = 0, 0.0, (0, 0.0, 0.0)
    while engine.has_unfinished_requests():
        for output in engine.step():
            new = sum(len(each.token_ids) for each in output.outputs)
            if new and not waiting:
                tokens += new
            elif new:
                waiting.discard(output.request_id)
                if not waiting:
                    started, before = time.perf_counter(), counts(llm)
    seconds = time.perf_counter() - started
    steps, drafted, accepted = (now - then for now, then in zip(counts(llm), before, strict=True))
    return Answered(tokens, seconds, int(steps), drafted, accepted)


def counts(llm: Any) -> tuple[int, float, float]:
    """Return iterations, drafted tokens and accepted tokens so far."""
    found = counted(llm.get_metrics())
    return iterations(llm), found["drafted"], found["accepted"]


def host_times(llm: Any) -> tuple[int, float, float]:
    [found] = llm.collective_rpc(vllm_watch.host_times)
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
