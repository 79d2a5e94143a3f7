"""A real vLLM server with ngramkit's drafts, with its own, and with none (`make engines-vllm`).

    python -m benchmarks.servers.vllm ENVIRONMENT --questions FILE [--datastore DIR]

`benchmarks.servers.install_vllm` makes ENVIRONMENT. Each server answers the same questions
greedily: some one at a time, others eight at a time, and those once more if the server remembers
its answers. Every text must equal the one without drafts. The same holds for stop strings, schemas,
log probabilities, penalties, streams, and long prompts with preempted requests. Clients disconnect,
the server restarts over its history, and wrong configurations must end it with their cause. The
texts of one seed are counted. The model is SmolLM2-135M-Instruct in float32 (`make real-model`).

Steps are vLLM's own count of iterations; processor time is that of all processes of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.servers.process import (
    ServerProcess,
    try_wrong_configurations,
)
from benchmarks.servers.smollm2 import MODEL, hub_folder
from ngramkit.builders.datastore import build_datastore
from ngramkit.formats.history import History

PORT = 8311
TOKENS = 64  # of an answer
OURS = "ngramkit.engines.vllm.Proposer"
COUNTERS = {
    "steps": "vllm:iteration_tokens_total_count",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "preempted": "vllm:num_preemptions_total",
    "written": "vllm:generation_tokens_total",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
}


def main() -> None:
    """Run every server in turn; print the tables, and exit with 1 where a text differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers.vllm")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--questions", type=Path, required=True, help="MT-Bench's question file")
    parser.add_argument("--datastore", type=Path, help="of the model's tokenizer, to draft from")
    parser.add_argument("--history", type=Path, help="past requests, to draft from")
    parser.add_argument("--count", type=int, default=20, help="questions, and as many others")
    parser.add_argument("--drafts", nargs="+", help="names of the rows to run beside none (all)")
    parser.add_argument("--work", type=Path, default=Path("build/servers"))
    given = parser.parse_args()
    servers = ways(given.datastore, given.history)
    if given.drafts:
        unknown = [name for name in given.drafts if name not in servers]
        if unknown:
            parser.error(f"no drafts {unknown}; there are {list(servers)}")
        servers = {name: servers[name] for name in dict.fromkeys(["none", *given.drafts])}
    model = hub_folder(given.work / MODEL)
    host = Host(given.environment.resolve(), model, given.work)
    lines = given.questions.read_text("utf-8").splitlines()[: 2 * given.count]
    questions = [chat(json.loads(line)["turns"][0]) for line in lines]
    bodies, others = questions[: given.count], questions[given.count :]
    failures = 0
    draft = {} if given.datastore is None else {"datastores": [str(given.datastore.resolve())]}
    for failure in chain(
        compare_features(host, bodies, draft),
        compare_preempted(host, bodies),
        try_wrong_configurations(partial(Server, host, speculation(8))),
        try_another_tokenizer(host),
        compare_speed(host, bodies, others, servers),
    ):
        print(f"FAILED: {failure}", flush=True)
        failures += 1
    raise SystemExit(failures > 0)


def ways(datastore: Path | None, history: Path | None) -> dict[str, tuple[Any, Any]]:
    """Return name -> (vLLM's speculative configuration, ours in NGRAMKIT_DRAFT) of each server."""
    sources: dict[str, dict[str, Any]] = {}
    if datastore is not None:
        stored = {"datastores": [str(datastore.resolve())]}
        sources["datastore"] = stored
        sources["datastore and its own answers"] = {**stored, "history": True}
    sources["own text"] = {}
    sources["its own answers"] = {"history": True}
    if history is not None:
        sources["history"] = {"history": str(history.resolve()), "store": False}
    servers: dict[str, tuple[Any, Any]] = {"none": (None, None)}
    servers["vLLM's ngram, k = 8"] = (
        {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4},
        None,
    )
    servers["vLLM's suffix, k = 8"] = {"method": "suffix", "num_speculative_tokens": 8}, None
    for length in (8, 4):
        for source, draft in sources.items():
            servers[f"ngramkit, {source}, k = {length}"] = speculation(length), draft
    return servers


def speculation(length: int) -> dict[str, Any]:
    return {"method": "custom_class", "model": OURS, "num_speculative_tokens": length}


def chat(text: str, **options: Any) -> dict[str, Any]:
    """Return the body of a greedy request."""
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": TOKENS, "temperature": 0, **options}


# Servers.


@dataclass(frozen=True)
class Host:
    """The options of every server."""

    environment: Path
    model: Path
    work: Path


class Server(ServerProcess):
    def __init__(self, host: Host, speculative: Any, draft: Any, words: Sequence[str] = ()) -> None:
        environment = {
            **os.environ,
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_HOST_IP": "127.0.0.1",
            "HF_HUB_OFFLINE": "1",
            "LD_PRELOAD": str(host.environment / "lib" / "libiomp5.so"),
        }
        command: list[str | Path] = [
            host.environment / "bin" / "vllm", "serve", host.model, "--served-model-name", MODEL,
            "--dtype", "float32", "--max-model-len", "4096", "--enforce-eager", "--port", str(PORT),
            *words,
        ]  # fmt: skip
        if speculative is not None:
            command += ["--speculative-config", json.dumps(speculative)]
        super().__init__(command, environment, PORT, host.work / "server.log", draft, 20)

    def ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self.post("v1/chat/completions", {"model": MODEL, **body}))

    def ask_all(self, bodies: Sequence[Mapping[str, Any]], at_once: int) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self.ask, bodies))

    def stream(self, body: Mapping[str, Any], most: int | None = None) -> str:
        """Return a streamed answer's text; leave after `most` pieces."""
        pieces: list[str] = []
        for event in self.events("v1/chat/completions", {"model": MODEL, **body}):
            pieces += [choice["delta"].get("content") or "" for choice in event["choices"]]
            if most is not None and len(pieces) > most:
                break
        return "".join(pieces)


# The comparison.


def compare_speed(
    host: Host,
    alone: Sequence[Mapping[str, Any]],
    together: Sequence[Mapping[str, Any]],
    servers: Mapping[str, tuple[Any, Any]],
) -> Iterator[str]:
    """Print two rows for each server: requests `alone`, one at a time, and `together`, eight at
    once; where it remembers, one for these again, beside their first time without drafts.

    Yields those whose texts are not the ones without drafts.
    """
    plain: dict[str, tuple[list[str], Counter[str]]] = {}
    print("| drafts | at once | steps | accepted/drafted | processor time | propose(), ms a step |")
    print("|---|---|---|---|---|---|")
    for name, (speculative, draft) in servers.items():
        with Server(host, speculative, draft) as server:
            server.ask(chat("Hello"))  # compiles what is left to compile
            rounds = [("1", alone), ("8", together)]
            if "its own answers" in name or "suffix" in name:
                rounds.append(("8, again", together))
            for at_once, bodies in rounds:
                before = server.counters(COUNTERS)
                answers = texts(server.ask_all(bodies, int(at_once[0])))
                spent = server.counters(COUNTERS)
                spent.subtract(before)
                wanted, base = plain.setdefault(at_once[0], (answers, spent))
                differing = [i for i in range(len(bodies)) if answers[i] != wanted[i]]
                if differing:
                    yield f"{name}, {at_once} at once: other texts for questions {differing}"
                rate = spent["accepted"] / spent["drafted"] if spent["drafted"] else 0.0
                mine = 1e3 * spent["drafting"] / spent["steps"]
                print(
                    f"| {name} | {at_once} | {base['steps'] / spent['steps']:.2f} | {rate:.2f} | "
                    f"{base['processor'] / spent['processor']:.2f} | "
                    f"{f'{mine:.2f}' if spent['drafting'] else ''} |",
                    flush=True,
                )


def texts(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was written: every choice, with its log probabilities' tokens."""
    return [
        json.dumps(
            [
                (
                    choice["message"]["content"],
                    choice["finish_reason"],
                    [each["token"] for each in (choice.get("logprobs") or {}).get("content") or ()],
                )
                for choice in answer["choices"]
            ]
        )
        for answer in answers
    ]


def features(question: str) -> dict[str, dict[str, Any]]:
    """Return a greedy request of every kind that an engine treats in its own way."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    return {
        "stop strings": chat(question, stop=["\n\n", "island"]),
        "schema": chat(
            "Describe a person as JSON.",
            response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}},
        ),
        "choice": chat("Is water wet?", structured_outputs={"choice": ["yes", "no", "maybe"]}),
        "log probabilities": chat(question, logprobs=True, top_logprobs=3),
        "penalties": chat(question, presence_penalty=0.5, frequency_penalty=0.5),
        "repetition penalty": chat(question, repetition_penalty=1.2),
        "minimum of tokens": chat(question, min_tokens=32, stop=["\n"]),
        "a short answer": chat(question, max_tokens=1),
    }


def compare_features(
    host: Host, bodies: Sequence[Mapping[str, Any]], draft: Mapping[str, Any]
) -> Iterator[str]:
    """Ask for every feature with and without drafts; then clients leave, and the server that
    remembers is started again.

    Texts that one seed wrote have to be alike without drafts; with them they are only counted: on a
    CPU vLLM 0.33.0 samples where it verifies by temperatures that it never wrote (its issue 55005).
    """
    question = bodies[0]["messages"][0]["content"]
    asked = features(question)
    sampled = chat(question, temperature=0.8, seed=7, n=4)
    short = [chat(f"Say the number {i} and a word.", max_tokens=12) for i in range(200)]
    folder = host.work.resolve() / f"history-{time.time_ns()}"
    learns = speculation(8), {**draft, "history": str(folder)}
    written: dict[str, str] = {}
    for speculative, drafts in (None, None), learns, learns:
        with Server(host, speculative, drafts) as server:
            answers = texts([server.ask(body) for body in asked.values()])
            found = dict(zip(asked, answers, strict=True))
            found["a stream"] = server.stream(bodies[1])
            found["200 at once"] = json.dumps(texts(server.ask_all(short, 200)))
            samples = [texts([server.ask(sampled)])[0] for _ in range(4)]
            if any(len(json.loads(sample)) != 4 for sample in samples):
                yield "n = 4 writes another number of texts"
            print(f"asked 4 times, one seed wrote {len(set(samples))} texts", flush=True)
            if speculative is None and len(set(samples)) > 1:
                yield "one seed writes several texts without drafts"
            with ThreadPoolExecutor(24) as pool:
                list(pool.map(lambda body: server.stream(body, most=5), list(bodies) * 2))
            if not server.is_idle_within(30, COUNTERS):
                yield "requests are left behind by clients that left"
            found["after clients left"] = texts([server.ask(bodies[2])])[0]
            steps = server.counters(COUNTERS)["steps"]
        written = written or found
        same = [name for name in found if found[name] == written[name]]
        drafted = "without drafts" if speculative is None else "the same with drafts"
        print(f"{drafted}, in {steps:.0f} steps: {', '.join(same)}", flush=True)
        yield from (f"with drafts {name} differs" for name in found if name not in same)
    remembered = len(History.open(folder).news()[0])
    print(f"remembered by two starts: {remembered} requests")
    if not remembered:
        yield "nothing was remembered"


def compare_preempted(host: Host, bodies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Ask long prompts, prefilled in parts, of a cache too small for all of them."""
    text = " ".join(body["messages"][0]["content"] for body in bodies[:6])
    long = [chat(f"{i}. {text} Answer all of this.", max_tokens=400) for i in range(40)]
    words = ["--max-num-batched-tokens", "256", "--max-num-seqs", "24"]
    words += ["--num-gpu-blocks-override", "40", "--no-enable-prefix-caching"]
    written, preempted = [], []
    for speculative, draft in ((None, None), (speculation(8), {})):
        with Server(host, speculative, draft, words) as server:
            written.append(texts(server.ask_all(long, 24)))
            preempted.append(int(server.counters(COUNTERS)["preempted"]))
    print(
        f"long prompts in parts: preempted {preempted[0]} times without, {preempted[1]} with drafts"
    )
    if preempted[1] <= 10:
        yield f"only {preempted[1]} preemptions"
    if written[0] != written[1]:
        yield "long prompts that are preempted are answered otherwise"


def try_another_tokenizer(host: Host) -> Iterator[str]:
    """Start a server with a datastore of another tokenizer's ids: it has to end and say so."""
    folder = host.work.resolve() / "another-tokenizer"
    build_datastore(["Every text will do."], folder, model="demo")
    try:
        with Server(host, speculation(8), {"datastores": [str(folder)]}):
            yield "another tokenizer's datastore: it serves"
    except RuntimeError:
        said = re.search(r"encodes .* differently", (host.work / "server.log").read_text("utf-8"))
        print(f"another tokenizer's datastore: {said and said[0]}")
        if said is None:
            yield "another tokenizer's datastore is not told"


if __name__ == "__main__":
    main()
