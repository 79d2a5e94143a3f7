"""vLLM's Model Runner V2 with ngramkit's drafts, on a CPU (`make engines-vllm`).

    python -m benchmarks.servers.vllm_v2 ENVIRONMENT

`benchmarks.servers.install_vllm` makes ENVIRONMENT. The scheduler, the runner and the server are
vLLM's own; Triton's kernels run in its interpreter. Texts must equal those without drafts, chains
those of fresh drafters, the drafts of V2's trimmed mode those of V1. Races, hidden waits for the
device, graph capture and time cannot be seen on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.servers import cpu_runner
from benchmarks.servers.environment import ROOT
from benchmarks.servers.process import ServerProcess, prometheus_sums
from benchmarks.servers.smollm2 import MODEL, hub_folder
from benchmarks.servers.vllm import chat, texts
from benchmarks.servers.vllm_rows import GROUPS, NGRAM

PORT = 8377
SEEN = {"K by batch size": {"0", "2", "5"}}  # steps' K
QUESTIONS = (
    "Write a list of the numbers from one to thirty in words, one a line.",
    "Repeat the following three times: The quick brown fox jumps over the lazy dog.",
    "What is the capital of France? Explain in detail.",
)


def main() -> None:
    """Run every group and a server; exit with 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers.vllm_v2")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/servers"))
    parser.add_argument("--groups", nargs="+", choices=[*GROUPS, "server"])
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    environment, failures = given.environment.resolve(), 0
    runner = cpu_runner.install(environment / cpu_runner.PACKAGE)
    print("| engine | texts | steps | drafted | accepted | runner | seconds |")
    print("|---|---|---|---|---|---|---|")
    found: dict[str, dict[str, Any]] = {}
    for group in given.groups or [*GROUPS, "server"]:
        if group == "server":
            checked = try_server(environment, runner, given.work)
        else:
            variables = cpu_variables(environment, None if "V1" in group else runner)
            found[group] = run_group(group, environment, given.work, variables)
            checked = check(group, found)
        for failure in checked:
            print(f"FAILED: {group}: {failure}", flush=True)
            failures += 1
    raise SystemExit(failures > 0)


def cpu_variables(environment: Path, runner: Path | None) -> dict[str, str]:
    """Return the variables of a process of vLLM's; `runner`: the folder that V2 needs."""
    variables = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "LD_PRELOAD": str(environment / "lib" / "libiomp5.so"),
        "VLLM_USE_V2_MODEL_RUNNER": "0" if runner is None else "1",
    }
    if runner is not None:
        variables |= {"TRITON_INTERPRET": "1", "PYTHONPATH": str(runner)}
    return variables


def run_group(
    group: str, environment: Path, work: Path, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Run a group's engines in one process; return what it found of each."""
    name = group.replace(" ", "-").replace(",", "")
    result, log = (work / f"v2-{name}.json").resolve(), work / f"v2-{name}.log"
    result.unlink(missing_ok=True)
    extra = {"V2_ON_CPU_ADAPTIVE": "1"} if group == "adaptive" else {}
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
    model = (work / "tiny-llama").resolve()
    python = environment / "bin" / "python"
    command = [str(python), "-m", "benchmarks.servers.vllm_rows", group, str(model), str(result)]
    with log.open("w") as file:
        done = subprocess.run(
            command,
            env={**os.environ, **variables, **own, **extra},
            cwd=ROOT, stdout=file, stderr=file, check=False,
        )  # fmt: skip
    rows: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    if done.returncode:
        rows["failed"] = f"it ended with {done.returncode}, see {log}"
    return rows


def check(group: str, found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Print a line for each engine of a group; yield what is wrong."""
    rows = dict(found[group])
    if failed := rows.pop("failed", None):
        yield failed
    reference = found.get("V1", rows) if group == "V2" else rows
    plain = next((row for row in reference.values() if isinstance(row, dict)), None)
    for name, row in rows.items():
        wanted = plain["texts"] if plain is not None else {}
        same = sum(row["texts"].get(each) == text for each, text in wanted.items())
        print(
            f"| {group}: {name} | {same}/{len(wanted)} | {row['steps']} | {row['drafted']:.0f} | "
            f"{row['accepted']:.0f} | {row['runner']} | {row['answers']:.0f} |",
            flush=True,
        )
        if same != len(wanted) or not wanted:
            yield f"{name}: other texts"
        if (ours := row["ours"]) is not None:
            yield from check_ours(group, name, row, ours)
    if group == "V2":
        yield from compare_counts(found, ("V1", "V1 ngramkit"), (group, "V2 ngramkit, trimmed"))
    if group == "text":
        yield from check_texts(rows)
    if group == "tensor parallel":
        yield from compare_counts(
            found, ("V2", "V2 ngramkit, fixed"), (group, "ngramkit, two ranks")
        )


def check_ours(
    group: str, name: str, row: Mapping[str, Any], ours: Mapping[str, Any]
) -> Iterator[str]:
    if row["runner"] != "V2":
        yield f"{name}: it runs in {row['runner']}"
    learns = "learnt price" in name or group == "remembered"
    if ours["different"] or not (ours["chains"] or learns):
        yield f"{name}: {ours['different']} of {ours['chains']} chains differ from fresh ones"
    if ours["resynced"]:
        yield f"{name}: {ours['resynced']} rows were copied again"
    if ours["mirrored"] != ours["shown"] or not ours["shown"]:
        yield f"{name}: {ours['mirrored']} of {ours['shown']} mirrors hold what was answered"
    if missing := SEEN.get(group, set()) - set(ours["K"]):
        yield f"{name}: no step had K = {missing}"
    if group.startswith("preempted") and not row["preempted"]:
        yield f"{name}: nothing was preempted"
    if group == "switched off" and ours["requests"] != 4:
        yield f"{name}: {ours['requests']} requests were drafted for, not 4"


def check_texts(rows: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with requests that bring their answers, every second as a prediction."""
    without = rows["ngramkit, no text"]["steps"]
    for name in ("ngramkit, fixed", "ngramkit, trimmed"):
        ours, steps = rows[name]["ours"], rows[name]["steps"]
        if 2 * steps > without:
            yield f"{name}: {steps} steps, {without} without the text"
        counts = ours["predicted"]
        print(f"{name}: accepted and rejected tokens of predictions: {counts}", flush=True)
        if any((count is None) != (i % 2 == 0) for i, count in enumerate(counts)):
            yield f"{name}: not the predictions were counted"
        if not all(count[0] > count[1] for count in counts[1::2]):
            yield f"{name}: predictions were not accepted"


def compare_counts(
    found: Mapping[str, dict[str, Any]], one: tuple[str, str], other: tuple[str, str]
) -> Iterator[str]:
    """Yield a failure if two engines (group, name) were run and their drafts differ."""
    rows = [found.get(group, {}).get(name) for group, name in (one, other)]
    counts = [(row["drafted"], row["accepted"]) for row in rows if row is not None]
    if len(set(counts)) == 2:
        yield f"{one[1]} drafted and accepted {counts[0]} tokens, {other[1]} {counts[1]}"


# A server.


class Server(ServerProcess):
    """`vllm serve` on Model Runner V2."""

    def __init__(
        self, environment: Path, runner: Path, work: Path, speculative: Any, words: Sequence[str]
    ) -> None:
        model = hub_folder(work / MODEL)
        variables = cpu_variables(environment, runner)
        path = variables.pop("PYTHONPATH")
        command: list[str | Path] = [
            "env", f"PYTHONPATH={path}", *words,
            environment / "bin" / "vllm", "serve", model, "--served-model-name", MODEL,
            "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
            "--port", str(PORT), "--max-num-seqs", "4", "--async-scheduling",
        ]  # fmt: skip
        if speculative is not None:
            command += ["--speculative-config", json.dumps(speculative)]
        super().__init__(command, {**os.environ, **variables}, PORT, work / "v2-server.log")

    def answers(self) -> list[str]:
        """Return the answers to chats, one of them without drafts and one under a schema."""
        properties = {"name": {"type": "string"}}
        schema = {"type": "object", "properties": properties, "required": ["name"]}
        form = {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}
        bodies = [
            *(chat(question, max_tokens=32) for question in QUESTIONS),
            chat(QUESTIONS[1], max_tokens=24, vllm_xargs={"ngramkit": False}),
            chat("Describe a person as JSON.", max_tokens=24, response_format=form),
        ]
        return texts([self.post("v1/chat/completions", {"model": MODEL, **b}) for b in bodies])


def try_server(environment: Path, runner: Path, work: Path) -> Iterator[str]:
    """Compare a server's answers with and without drafts, and end one that V2 does not run."""
    written = []
    for speculative, words in ((None, []), (NGRAM, ["NGRAMKIT_DRAFT={}"])):
        with Server(environment, runner, work, speculative, words) as server:
            written.append(server.answers())
            counts = prometheus_sums(server.get("metrics"))
            steps = counts["vllm:iteration_tokens_total_count"]
            drafted = counts.get("vllm:spec_decode_num_draft_tokens_total", 0.0)
            print(f"server, {'ours' if words else 'no drafts'}: {steps:.0f} steps, {drafted:.0f} "
                  "drafted", flush=True)  # fmt: skip
            if words and "drafting in vLLM's Model Runner V2, fixed" not in server.log.read_text():
                yield "the log does not name the runner and the mode"
    if written[0] != written[1]:
        yield "a server answers otherwise with drafts"
    try:
        words = ["NGRAMKIT_DRAFT={}", "VLLM_USE_V2_MODEL_RUNNER=0"]
        with Server(environment, runner, work, NGRAM, words):
            yield "it serves on Model Runner V1 with vLLM's own drafter"
    except RuntimeError as error:
        last = str(error).strip().rpartition("\n")[2]
        print(f"on Model Runner V1: {last}", flush=True)
        if "custom_class" not in last:
            yield f"its last line is {last!r}"


if __name__ == "__main__":
    main()
