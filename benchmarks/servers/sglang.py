"""A real SGLang server with ngramkit's trees, with its own, and with none (`make engines-sglang`).

    python -m benchmarks.servers.sglang ENVIRONMENT --questions FILE [--datastore DIR]

`benchmarks.servers.install_sglang` makes ENVIRONMENT: SGLang's scheduler, its NGRAM worker and its
HTTP server over kernels in torch. Each server answers the same questions greedily: some one at a
time, others eight at a time, and those once more, because SGLang's corpus and a growing history
remember answers. All ids must equal those without drafts. The same holds for stop strings, schemas,
`n`, long prompts in parts, more requests than slots, and after clients have disconnected. On a CPU
SGLang verifies trees greedily at any temperature, without overlap. The model is
SmolLM2-135M-Instruct in float32 (`make real-model`).

Passes are SGLang's own count, prefills included; processor time is that of all of its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from benchmarks.servers.process import (
    ServerProcess,
    try_wrong_configurations,
)
from benchmarks.servers.smollm2 import MODEL, hub_folder
from ngramkit.corpus.chat import OWN, Message, find_template
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.history import History

PORT = 8312
PLACES = 8  # requests at once
TOKENS = 64  # of an answer
COUNTERS = {
    "passes": "sglang:cuda_graph_passes_total",
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "retracted": "sglang:num_retracted_reqs_total",
}
Answer = dict[str, Any]


def main() -> None:
    """Run every server in turn; print the table, and exit with 1 where ids differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers.sglang")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--questions", type=Path, required=True, help="MT-Bench's question file")
    parser.add_argument("--datastore", type=Path, help="of the model's tokenizer, to draft from")
    parser.add_argument("--alone", type=int, default=8, help="questions, one at a time")
    parser.add_argument("--together", type=int, default=8, help="others, eight at once")
    parser.add_argument("--no-table", action="store_true", help="only what is asked beside it")
    parser.add_argument("--work", type=Path, default=Path("build/servers"))
    given = parser.parse_args()
    model = hub_folder(given.work / MODEL)
    host = Host(given.environment.absolute(), model.resolve(), given.work.resolve())
    tokenizer = load_tokenizer(str(model))
    lines = given.questions.read_text("utf-8").splitlines()
    turns = [json.loads(line)["turns"][0] for line in lines]
    template = find_template(OWN, tokenizer)
    prompts = [template.prompt([Message("user", turn)]) for turn in turns]
    alone = prompts[: given.alone]
    together = prompts[given.alone :][: given.together]
    source, draft = "own text", dict[str, Any](vocabulary=tokenizer.record.vocabulary)
    if given.datastore is not None:
        source, draft = "datastore", {"datastores": [str(given.datastore.resolve())]}
    failures = 0
    for failure in chain(
        () if given.no_table else compare_speed(host, alone, together, ways(source, draft)),
        try_first_steps(host, prompts[0]),
        compare_features(host, prompts, draft),
        try_wrong_configurations(lambda draft: Server(host, Way(8, draft))),
    ):
        print(f"FAILED: {failure}", flush=True)
        failures += 1
    raise SystemExit(failures > 0)


@dataclass(frozen=True)
class Way:
    """How a server speculates: SGLang's options, and ours in NGRAMKIT_DRAFT."""

    nodes: int = 0  # of a tree; 0: no drafts
    draft: Mapping[str, Any] | str | None = None
    words: Sequence[str] = ()
    name: str = field(default="", compare=False)


def ways(source: str, draft: Mapping[str, Any]) -> list[Way]:
    """Return the servers that are compared, the one without drafts first."""
    made = [Way(name="none")]
    for nodes in (8, 16):
        made += [
            Way(nodes, name="SGLang's corpus"),
            Way(nodes, draft, name=f"ngramkit, {source}"),
            Way(nodes, {**draft, "history": True}, name=f"ngramkit, {source}, history"),
        ]
    return made


# Servers.


@dataclass(frozen=True)
class Host:
    """The options of every server."""

    environment: Path
    model: Path
    work: Path


class Server(ServerProcess):
    def __init__(self, host: Host, way: Way) -> None:
        environment = {
            **os.environ,
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",  # more wait for each other on a busy machine
        }
        command: list[str | Path] = [
            host.environment / "bin" / "python", "-m", "sglang.launch_server",
            "--model-path", host.model, "--device", "cpu", "--dtype", "float32",
            "--attention-backend", "torch_native", "--context-length", "4096",
            "--max-total-tokens", "16384", "--max-running-requests", str(PLACES),
            "--enable-metrics", "--skip-server-warmup", "--port", str(PORT), *way.words,
        ]  # fmt: skip
        if way.nodes:
            command += ["--speculative-algorithm", "NGRAM"]
            command += ["--speculative-num-draft-tokens", str(way.nodes)]
        super().__init__(command, environment, PORT, host.work / "server.log", way.draft)

    def ask(self, prompt: str, **sampling: Any) -> Answer:
        """Return the greedy answer to a prompt: ids, text, and SGLang's facts of the request. A
        list where it has several."""
        return self.post("generate", body(prompt, **sampling))  # type: ignore[no-any-return]

    def ask_all(self, prompts: Sequence[str], at_once: int, **sampling: Any) -> list[Answer]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(partial(self.ask, **sampling), prompts))

    def leave(self, prompt: str) -> None:
        """Ask, and leave after a few pieces of the answer."""
        for _ in islice(self.events("generate", body(prompt)), 5):
            pass


def body(prompt: str, **sampling: Any) -> dict[str, Any]:
    return {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS, **sampling},
    }


# The comparison.


def compare_speed(
    host: Host, alone: Sequence[str], together: Sequence[str], servers: Sequence[Way]
) -> Iterator[str]:
    """Print three rows for each server: prompts `alone`, one at a time, `together`, eight at once,
    and these again, beside their first time without drafts. Yields those whose ids are not the ones
    without drafts."""
    plain: dict[str, tuple[list[list[int]], Counter[str]]] = {}
    print(
        "| drafts | nodes | at once | passes | accepted a pass | processor time "
        "| drafting, ms a pass |\n|---|---|---|---|---|---|---|"
    )
    for way in servers:
        with Server(host, way) as server:
            server.ask("Hello")  # compiles what is left to compile
            rounds = [("1", alone), ("8", together)]
            if way.nodes:
                rounds.append(("8, again", together))
            for at_once, prompts in rounds:
                before = server.counters(COUNTERS)
                answers = server.ask_all(prompts, int(at_once[0]))
                spent = server.counters(COUNTERS)
                spent.subtract(before)
                written = ids(answers)
                wanted, base = plain.setdefault(at_once[0], (written, spent))
                differing = [i for i in range(len(prompts)) if written[i] != wanted[i]]
                if differing:
                    yield f"{way.name}, {at_once} at once: other ids for questions {differing}"
                facts = [answer["meta_info"] for answer in answers]
                verified = sum(each.get("spec_verify_ct", 0) for each in facts)
                right = sum(each.get("spec_num_correct_drafts", 0) for each in facts)
                mine = 1e3 * spent["drafting"] / spent["passes"]
                print(
                    f"| {way.name} | {way.nodes or ''} | {at_once} "
                    f"| {base['passes'] / spent['passes']:.2f} "
                    f"| {f'{right / verified:.2f}' if verified else ''} "
                    f"| {base['processor'] / spent['processor']:.2f} "
                    f"| {f'{mine:.2f}' if spent['drafting'] else ''} |",
                    flush=True,
                )


def ids(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


def try_first_steps(host: Host, prompt: str) -> Iterator[str]:
    """Start servers with what the documentation sets first, as it is typed there.

    Yield each that writes other ids, drafts nothing of an answer that it should remember, or does
    not refuse a wrong text.
    """
    with Server(host, Way()) as server:
        wanted = ids([server.ask(prompt)])
    for typed in "{}", '{"history": true}':
        with Server(host, Way(8, typed)) as server:
            answers = [server.ask(prompt) for _ in range(2)]
            yield from refusals(server, prompt)
        right = answers[1]["meta_info"]["spec_num_correct_drafts"]
        print(f"NGRAMKIT_DRAFT={typed!r}: {right} tokens of a repeated answer accepted", flush=True)
        if ids(answers) != 2 * wanted:
            yield f"{typed}: other ids"
        if "history" in typed and right < TOKENS // 2:
            yield f"{typed}: of a remembered answer {right} tokens were accepted"


def refusals(server: Server, prompt: str) -> Iterator[str]:
    """Yield each wrong text of a request that is not answered with status 400."""
    for wrong in 5, [1.5], "x" * (1 << 19):
        try:
            server.ask(prompt, custom_params={"ngramkit_reference": wrong})
            yield f"ngramkit_reference = {str(wrong)[:20]} is answered"
        except urllib.error.HTTPError as error:
            if error.code != 400 or "must" not in error.read().decode():
                yield f"ngramkit_reference = {str(wrong)[:20]}: status {error.code}"


def compare_features(host: Host, prompts: Sequence[str], draft: Mapping[str, Any]) -> Iterator[str]:
    """Ask for what an engine treats in its own way, with and without drafts; then clients leave,
    requests are aborted, and the server that remembers is started again."""
    folder = host.work / f"history-{time.time_ns()}"
    small = ("--max-total-tokens", "2600", "--chunked-prefill-size", "256")
    learns = Way(8, {**draft, "history": str(folder)}, small)
    written = []
    for way in Way(words=small), learns, learns:
        with Server(host, way) as server:
            found = features(server, prompts)
            with ThreadPoolExecutor(24) as pool:
                list(pool.map(server.leave, prompts[:24]))
            with ThreadPoolExecutor(1) as pool:
                endless = pool.submit(server.ask, prompts[0], max_new_tokens=2000, ignore_eos=True)
                time.sleep(3)
                server.post("abort_request", {"abort_all": True, "rid": ""})
                reason = endless.result()["meta_info"]["finish_reason"]["type"]
            if reason != "abort":
                yield f"an aborted request ended by {reason}"
            found["after clients left"] = server.ask(prompts[2])
            # An idle server shows its load now and then.
            if not server.is_idle_within(60, COUNTERS):
                yield "requests are left behind by clients that left"
            if way.nodes:
                yield from switched_off(server, prompts[3])
            retracted = server.counters(COUNTERS)["retracted"]
        print(f"retracted {retracted:.0f} times, {way.nodes} nodes", flush=True)
        written.append({name: json.dumps(only_ids(one)) for name, one in found.items()})
    for number, names in enumerate(written[1:], 1):
        yield from (
            f"start {number}: {name} differs" for name in names if names[name] != written[0][name]
        )
    print(f"the same with and without drafts, on two starts: {', '.join(written[0])}")
    remembered = len(History.open(folder).news()[0])
    print(f"remembered by two starts: {remembered} requests")
    if not remembered:
        yield "nothing was remembered"


def features(server: Server, prompts: Sequence[str]) -> dict[str, Any]:
    """Return the answers to greedy requests of every kind whose text drafts must not change: not of
    those with penalties, which SGLang applies once a pass while it speculates."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    long = ["".join(prompts[i : i + 3]) for i in range(8)]
    return {
        "stop strings": server.ask(prompts[0], stop=["\n\n", "island"]),
        "a schema": server.ask(prompts[1], json_schema=json.dumps(schema)),
        "a regular expression": server.ask(prompts[1], regex="(yes|no|maybe)( indeed){2}"),
        "n = 4": server.ask(prompts[2], n=4),
        "a minimum of tokens": server.ask(prompts[0], min_new_tokens=32, stop=["\n"]),
        "a short answer": server.ask(prompts[0], max_new_tokens=1),
        "30 over 8 places": server.ask_all(prompts[:30], 30, max_new_tokens=16),
        "long prompts in parts, more than fit": server.ask_all(
            long, 8, max_new_tokens=300, ignore_eos=True
        ),
    }


def only_ids(answer: Any) -> list[Any]:
    return [each["output_ids"] for each in (answer if isinstance(answer, list) else [answer])]


def switched_off(server: Server, prompt: str) -> Iterator[str]:
    """Yield where a request that switched drafts off is drafted for."""
    server.ask(prompt)
    accepted = [
        server.ask(prompt, **said)["meta_info"]["spec_num_correct_drafts"]
        for said in ({}, *({"custom_params": {"ngramkit": off}} for off in (False, 0, "off")))
    ]
    print(f"accepted of a remembered answer: {accepted[0]}, switched off {accepted[1:]}")
    if not accepted[0] or any(accepted[1:]):
        yield f"requests that switched drafts off accepted {accepted[1:]}, another {accepted[0]}"


if __name__ == "__main__":
    main()
