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
import shutil
import subprocess
import tempfile
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import ngramkit
from benchmarks._figures import write_figures
from benchmarks.servers import cpu_runner
from benchmarks.servers.cpu_runner import cpu_variables
from benchmarks.servers.environment import ROOT
from benchmarks.servers.process import ServerProcess, prometheus_sums
from benchmarks.servers.smollm2 import MODEL, hub_folder
from benchmarks.servers.vllm import chat, texts
from benchmarks.servers.vllm_rows import (
    ADAPTERS,
    GROUPS,
    HISTORY,
    NGRAM,
    SEEN,
    SHARED,
    TENANTS,
)
from ngramkit.budget.pass_times import pass_times
from ngramkit.engines.growing_history import tenant_folder
from ngramkit.formats.history import History

PORT = 8377
CHATS = "v1/chat/completions"
COSTS = "pass costs"  # the group of `try_pass_costs`
# Groups whose module writes a table, and its figures.
TABLES = {"table": ("vllm_table", "vllm_v2"), "times": ("vllm_times", "vllm_v2_times")}
# The rows of the record of steps: group, engine, and what docs call it.
COUNTED = (
    ("V2", "V2 none", "no drafts"),
    ("V2", "V2 ngram", "vLLM's `ngram`"),
    ("V2", "V2 ngramkit, fixed", "ngramkit, fixed"),
    ("V2", "V2 ngramkit, trimmed", "ngramkit, trimmed, `min_probability` 0.1"),
    ("V2", "V2 ngramkit, trimmed, learnt price", "ngramkit, trimmed"),
    ("text", "ngramkit, fixed", "ngramkit, fixed, each request brings its answer as text"),
)
STEPS = {"K by batch size": {"0", "2", "5"}}  # steps' K
PLAIN = {"V2": "V1", "history, asked again": "history on disk"}  # groups whose texts are compared
UNSHOWN = ("beam search", "streaming inputs")  # groups where a name is not an answer's
KEPT: dict[str, Any] = {
    "history on disk": 5,
    "tenants": {"acme": 2, "globex": 1, "": 2},
    "LoRA": {"a": 2, "b": 1, "": 3},
    "data parallel": 3,  # those of the first engine
    "pictures": 1,  # the request without one
}  # requests on disk
FOLDERS = {
    "history on disk": HISTORY, "tenants": TENANTS, "LoRA": ADAPTERS, "data parallel": SHARED,
    "pictures": SEEN,
}  # fmt: skip
IN_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # for functions that are sent to workers
}
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
    parser.add_argument("--groups", nargs="+", choices=[*GROUPS, "server", COSTS, *TABLES])
    parser.add_argument("--questions", type=Path, help="MT-Bench's question file, for tables")
    parser.add_argument("--datastore", type=Path, help="of SmolLM2's tokenizer, for tables")
    given = parser.parse_args()
    groups = given.groups or [*GROUPS, "server", COSTS, *(TABLES if given.questions else [])]
    if given.questions is None and not TABLES.keys().isdisjoint(groups):
        parser.error("tables need --questions")
    given.work.mkdir(parents=True, exist_ok=True)
    environment, failures = given.environment.resolve(), 0
    runner = cpu_runner.install(environment / cpu_runner.PACKAGE)
    print("| engine | texts | steps | drafted | accepted | runner | seconds |")
    print("|---|---|---|---|---|---|---|")
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        if group == "server":
            checked = try_server(environment, runner, given.work)
        elif group == COSTS:
            checked = try_pass_costs(environment, given.work)
        elif group in TABLES:
            checked = run_table(group, environment, runner, given)
        else:
            variables = cpu_variables(environment, None if "V1" in group else runner)
            found[group] = run_group(group, environment, given.work, variables)
            checked = chain(check(group, found), check_disk(group, given.work))
        for failure in checked:
            print(f"FAILED: {group}: {failure}", flush=True)
            failures += 1
    if found.keys() >= {group for group, _, _ in COUNTED}:
        rows = [
            [shown, *(f"{found[group][name][key]:.0f}" for key in ("steps", "drafted", "accepted"))]
            for group, name, shown in COUNTED
        ]
        head = ["6 prompts, K = 5", "steps", "drafted", "accepted"]
        write_figures("vllm_v2_steps", "make engines-vllm", {"head": head, "rows": rows})
    raise SystemExit(failures > 0)


def run_group(
    group: str,
    environment: Path,
    work: Path,
    variables: Mapping[str, str],
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a group's engines in one process; return what it found of each.

    `options` of engines replace those of `vllm_rows.OPTIONS`.
    """
    name = group.replace(" ", "-").replace(",", "")
    result, log = (work / f"v2-{name}.json").resolve(), work / f"v2-{name}.log"
    result.unlink(missing_ok=True)
    if group in FOLDERS:
        shutil.rmtree(work / FOLDERS[group], ignore_errors=True)
    extra = {"V2_ON_CPU_ADAPTIVE": "1"} if group == "adaptive" else {}
    model = (work / "tiny-llama").resolve()
    python = environment / "bin" / "python"
    command = [str(python), "-m", "benchmarks.servers.vllm_rows", group, str(model), str(result)]
    command += [json.dumps(options)] if options else []
    with log.open("w") as file:
        done = subprocess.run(
            command,
            env={**variables, **IN_PROCESS, **extra},
            cwd=ROOT, stdout=file, stderr=file, check=False,
        )  # fmt: skip
    rows: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    if done.returncode:
        rows["failed"] = f"it ended with {done.returncode}, see {log}"
    return rows


def check(group: str, found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Print a line for each engine of a group; yield what is wrong."""
    rows = dict(found[group])
    failed = rows.pop("failed", None)
    if failed:
        yield failed
    reference = found.get(PLAIN.get(group, group), rows)
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
        if row["ours"]:
            yield from check_ours(group, name, row)
    if group == "V2":
        yield from compare_counts(found, ("V1", "V1 ngramkit"), (group, "V2 ngramkit, trimmed"))
    if group == "text" and not failed:
        yield from check_texts(rows)
    if group == "LoRA" and plain is not None:
        texts = plain["texts"]  # two of each prompt
        yield from (
            f"{group}: {name} is answered alike" for name in ("r0", "r2")
            if texts[name] == texts[f"r{int(name[1:]) + 1}"]
        )  # fmt: skip
    if group == "pictures" and plain is not None and plain["texts"]["r0"] == plain["texts"]["r1"]:
        yield f"{group}: two pictures are answered alike"
    if group == "tensor parallel":
        yield from compare_counts(
            found, ("V2", "V2 ngramkit, fixed"), (group, "ngramkit, two ranks")
        )
    if group == "history, asked again":
        first = found.get("history on disk", {}).get("ngramkit")
        for name, row in rows.items():
            if first is not None and row["steps"] >= first["steps"]:
                yield f"{name}: {row['steps']} steps, {first['steps']} in the first process"


def check_ours(group: str, name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the drafts of a row's ranks."""
    ranks = row["ours"]
    if row["runner"] != "V2":
        yield f"{name}: it runs in {row['runner']}"
    if group in ("tensor parallel", "data parallel") and len(ranks) != 2:
        yield f"{name}: {len(ranks)} ranks draft, not 2"
    if group == "data parallel":  # each engine has its own requests
        for i, ours in enumerate(ranks):
            yield from check_rank(group, f"{name}, engine {i}", row["draft"], ours)
        return
    if any(rank != ranks[0] for rank in ranks):
        yield f"{name}: ranks differ: {ranks}"
    yield from check_rank(group, name, row["draft"], ranks[0])
    if group.startswith("preempted") and not row["preempted"]:
        yield f"{name}: nothing was preempted"


def check_rank(
    group: str, name: str, draft: Mapping[str, Any], ours: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is wrong with the drafts of one rank, whose configuration is `draft`."""
    grows = "history" in draft and draft.get("store", True)
    learns = grows or "min_probability" not in draft
    drafts = group != "beam search"  # each token is a request
    if ours["different"] or (drafts and not learns and not ours["chains"]):
        yield f"{name}: {ours['different']} of {ours['chains']} chains differ from fresh ones"
    if bool(ours["drafted"]) != drafts:
        yield f"{name}: {ours['drafted']} tokens were drafted"
    if ours["resynced"]:
        yield f"{name}: {ours['resynced']} rows were copied again"
    if ours["mirrored"] != ours["shown"] or bool(ours["shown"]) == (group in UNSHOWN):
        yield f"{name}: {ours['mirrored']} of {ours['shown']} mirrors hold what was answered"
    if missing := STEPS.get(group, set()) - set(ours["K"]):
        yield f"{name}: no step had K = {missing}"
    if group == "switched off" and ours["requests"] != 4:
        yield f"{name}: {ours['requests']} requests were drafted for, not 4"
    if group in ("beam search", "prompt embeddings") and ours["remembered"]:
        yield f"{name}: {ours['remembered']} requests were remembered"
    if group == "data parallel" and grows and not ours["remembered"]:
        yield f"{name}: nothing was remembered"


def check_disk(group: str, work: Path) -> Iterator[str]:
    """Yield a failure unless all requests of an ended process are on disk that may be there."""
    if isinstance(KEPT.get(group), int):
        kept: Any = remembered(work / FOLDERS[group])
    elif isinstance(KEPT.get(group), dict):
        folder = work / FOLDERS[group]
        kept = {key: remembered(folder / tenant_folder(key)) for key in KEPT[group]}
    else:
        return
    print(f"{group}: remembered {kept}", flush=True)
    if kept != KEPT[group]:
        yield f"remembered {kept}, not {KEPT[group]}"


def remembered(folder: Path) -> int:
    return len(History.open(folder).news()[0]) if folder.exists() else 0


def check_texts(rows: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with requests that bring their answers, every second as a prediction."""
    without = rows["ngramkit, no text"]["steps"]
    for name in ("ngramkit, fixed", "ngramkit, trimmed"):
        ours, steps = rows[name]["ours"][0], rows[name]["steps"]
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


def run_table(group: str, environment: Path, runner: Path, given: Any) -> Iterator[str]:
    """Print a table of TABLES, and keep it in benchmarks/figures; yield other texts."""
    module, figures = TABLES[group]
    result, log = (given.work / f"v2-{group}.json").resolve(), given.work / f"v2-{group}.log"
    result.unlink(missing_ok=True)
    command: list[str | Path] = [
        environment / "bin" / "python", "-m", f"benchmarks.servers.{module}",
        hub_folder(given.work / MODEL).resolve(), given.questions.resolve(), result,
    ]  # fmt: skip
    if given.datastore is not None:
        command += ["--datastore", given.datastore.resolve()]
    with log.open("w") as file:
        done = subprocess.run(
            command,
            env={**cpu_variables(environment, runner), **IN_PROCESS},
            cwd=ROOT, stderr=file, check=False,
        )  # fmt: skip
    if done.returncode:
        yield f"it ended with {done.returncode}, see {log}"
        return
    table = json.loads(result.read_text())
    yield from table["failures"]
    if given.datastore is not None:
        rows = [row for row in table["rows"] if row[0] != "none"]
        write_figures(figures, "make engines-vllm", {"head": table["head"], "rows": rows})


# A server.


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OF_SCHEMA = chat(
    "Describe a person as JSON.",
    max_tokens=24,
    response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}},
)


class Server(ServerProcess):
    """`vllm serve` on Model Runner V2, or on V1 without `runner`."""

    def __init__(
        self,
        environment: Path,
        runner: Path | None,
        work: Path,
        speculative: Any,
        words: Sequence[str],
    ) -> None:
        model = hub_folder(work / MODEL)
        variables = cpu_variables(environment, runner)
        path = variables.pop("PYTHONPATH", "")
        command: list[str | Path] = [
            "env", f"PYTHONPATH={path}", *words,
            environment / "bin" / "vllm", "serve", model, "--served-model-name", MODEL,
            "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
            "--port", str(PORT), "--max-num-seqs", "4",
        ]  # fmt: skip
        if (
            runner is not None and "VLLM_USE_V2_MODEL_RUNNER=0" not in words
        ):  # vLLM's V1 refuses this with ngram
            command.append("--async-scheduling")
        if speculative is not None:
            command += ["--speculative-config", json.dumps(speculative)]
        super().__init__(command, variables, PORT, work / "v2-server.log")

    def answers(self) -> dict[str, str]:
        """Return the answers to requests of every kind, by name."""
        bodies = {
            **{question: chat(question, max_tokens=32) for question in QUESTIONS},
            "without drafts": chat(QUESTIONS[1], max_tokens=24, vllm_xargs={"ngramkit": False}),
            "a schema": OF_SCHEMA,
            # vLLM refuses n = 2 at temperature 0.
            "n = 2": chat(QUESTIONS[1], max_tokens=24, temperature=1, top_k=1, n=2, seed=1),
            "beams": chat(QUESTIONS[2], max_tokens=8, use_beam_search=True, n=2),
        }
        found = {
            name: texts([self.post(CHATS, {"model": MODEL, **body})])[0]
            for name, body in bodies.items()
        }
        found["a stream"] = "".join(
            choice["delta"].get("content") or ""
            for event in self.events(CHATS, {"model": MODEL, **chat(QUESTIONS[0], max_tokens=32)})
            for choice in event["choices"]
        )
        return found

    def check_texts(self, answers: Mapping[str, str]) -> Iterator[str]:
        """Ask again with predictions: the answer itself, and a text that only a schema helps.

        Yield what is wrong.
        """
        answer, body = answers[QUESTIONS[2]], {"model": MODEL, **chat(QUESTIONS[2], max_tokens=32)}
        written = json.loads(answer)[0][0]
        prediction = {"type": "content", "content": [{"type": "text", "text": written}]}
        whole = self.post(CHATS, {**body, "prediction": prediction})
        if texts([whole])[0] != answer:
            yield "a server answers otherwise with a prediction"
        said = {**body, "prediction": prediction, "stream_options": {"include_usage": True}}
        usage = [whole["usage"], list(self.events(CHATS, said))[-1]["usage"]]
        counts = [each["completion_tokens_details"] or {} for each in usage]
        print(f"usage with a prediction: {counts}", flush=True)
        if not all(each.get("accepted_prediction_tokens", 0) > 12 for each in counts):
            yield "usage does not report accepted tokens of a prediction"
        plain = self.post(CHATS, body)["usage"].get("completion_tokens_details") or {}
        if "accepted_prediction_tokens" in plain:
            yield "usage reports a prediction that was not given"
        own = json.loads(answers["a schema"])[0][0]
        for content in (own, "Some other text."):
            said = {"model": MODEL, **OF_SCHEMA, "prediction": {**prediction, "content": content}}
            whole = self.post(CHATS, said)
            details = whole["usage"]["completion_tokens_details"] or {}
            print(f"usage with a prediction and a schema: {details}", flush=True)
            if texts([whole])[0] != answers["a schema"]:
                yield "a server answers otherwise with a prediction and a schema"
            if (details.get("accepted_prediction_tokens", -1) > 0) != (content == own):
                yield "usage counts tokens of a schema's template as predicted"
        for wrong in ({"prediction": 5}, {"vllm_xargs": {"ngramkit_reference": [1.5]}}):
            try:
                self.post(CHATS, {**body, **wrong})
                yield f"a server answers {wrong}"
            except urllib.error.HTTPError as error:
                if error.code != 400 or "must be" not in error.read().decode():
                    yield f"{wrong}: status {error.code}"


def try_server(environment: Path, runner: Path, work: Path) -> Iterator[str]:
    """Compare a server's answers with and without drafts, and end one that V2 does not run."""
    written = []
    for speculative, words in ((None, []), (NGRAM, ["NGRAMKIT_DRAFT={}"])):
        with tempfile.TemporaryDirectory() as shared:
            words = [*words, f"PROMETHEUS_MULTIPROC_DIR={shared}"]
            with Server(environment, runner, work, speculative, words) as server:
                written.append(server.answers())
                if speculative is not None:
                    yield from server.check_texts(written[0])
                counts, log = prometheus_sums(server.get("metrics")), server.log.read_text()
        steps = counts["vllm:iteration_tokens_total_count"]
        drafted = counts.get("vllm:spec_decode_num_draft_tokens_total", 0.0)
        print(f"server, {'ours' if speculative else 'no drafts'}: {steps:.0f} steps, "
              f"{drafted:.0f} verified", flush=True)  # fmt: skip
        if speculative is None:
            continue
        if "drafting in vLLM's Model Runner V2, fixed" not in log:
            yield "the log does not name the runner and the mode"
        names = ("ngramkit_draft_tokens_total", "ngramkit_requests_total")
        print("/metrics: " + ", ".join(f"{name} {counts.get(name)}" for name in names), flush=True)
        if not all(counts.get(name) for name in names):
            yield "/metrics lacks our counters"
    for name, text in written[0].items():
        if written[1][name] != text:
            yield f"{name}: a server answers otherwise with drafts"
    try:
        words = ["NGRAMKIT_DRAFT={}", "VLLM_USE_V2_MODEL_RUNNER=0"]
        with Server(environment, runner, work, NGRAM, words):
            yield "it serves on Model Runner V1 with vLLM's own drafter"
    except RuntimeError as error:
        last = str(error).strip().rpartition("\n")[2]
        print(f"on Model Runner V1: {last}", flush=True)
        if "custom_class" not in last:
            yield f"its last line is {last!r}"


def try_pass_costs(environment: Path, work: Path) -> Iterator[str]:
    """Measure passes as docs/logs.md describes, on V1: V2's passes run in an interpreter."""
    runs, profile = work / "runs", work / "server.json"
    shutil.rmtree(runs, ignore_errors=True)
    model, variables = hub_folder(work / MODEL), cpu_variables(environment, None)
    with Server(environment, None, work, None, []):
        for requests in (1, 2, 4):
            command: list[Any] = [
                environment / "bin" / "vllm", "bench", "serve", "--model", MODEL,
                "--tokenizer", model, "--port", PORT, "--dataset-name", "random", "--ignore-eos",
                "--random-input-len", 32, "--random-output-len", 32,
                "--max-concurrency", requests, "--num-prompts", 4 * requests,
                "--save-result", "--result-dir", runs,
            ]  # fmt: skip
            subprocess.run(
                list(map(str, command)), env=variables, check=True, stdout=subprocess.DEVNULL
            )
    found = ngramkit.pass_cost(sorted(runs.iterdir()), profile, force=True)
    print(f"pass costs: {found.rows()}", flush=True)
    times = pass_times(profile).times(np.array([1.0, 2.0, 4.0]))
    if [run.requests for run in sorted(found.runs, key=lambda run: run.requests)] != [1, 2, 4]:
        yield "a run of vLLM's benchmark is missing"
    if not 0 < times[0] <= times[1] <= times[2]:
        yield f"the profile holds {times}"


if __name__ == "__main__":
    main()
