"""Every command that a page prints is run here, small, or stands in NEEDS with what it needs.

What is printed is made small and local by SMALL; nothing else of a line is changed. All run in one
process of their own, in the order of the pages.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import doc_pages
import hub_writing  # noqa: F401 (its endpoints)
import numpy as np
import pytest
import zstandard
from command_lines import run_all
from engine_results import result
from gguf_files import demo_metadata, demo_tensors, write_gguf
from hub_standin import TOKEN, HubStandIn
from test_docs import SHELL

import ngramkit
from ngramkit.basics.models import resolve_model
from ngramkit.formats.history import History

ROOT = doc_pages.ROOT
PAGES = [*doc_pages.PAGES, ROOT / "CONTRIBUTING.md"]
SESSIONS = ROOT / "tests/logs/samples/sessions"
GGUFS = "tests/ggufs/test_gguf_models.py"
# The beginning of a line that is not run here: what it needs, and who runs it where anybody does.
NEEDS = {
    "pip install": ("the package index", "Makefile"),
    "make ": ("the whole environment", ".ci/run"),
    "pre-commit ": ("pre-commit", ""),
    "export NGRAMKIT_DRAFT": ("an engine", "tests/engines/test_check.py"),
    "vllm serve": ("vLLM", "benchmarks/servers/vllm.py"),
    "for n in ": ("vLLM", "benchmarks/servers/vllm_v2.py"),
    "docker ": ("docker and a GPU", ""),
    "python -m sglang": ("SGLang and a GPU", "benchmarks/servers/sglang.py"),
    "llama-": ("llama.cpp's programs", ""),
    "ray start": ("a cluster", "tests/cluster/test_ray.py"),
    "ray job submit": ("slime on a Ray cluster", ""),
    "python -m verl": ("verl and a GPU", ""),
    "python -m benchmarks.needle": ("minutes", "tests/test_needle.py"),
    "ngramkit decode --chat --model vicuna-7b": ("a terminal", "tests/cli/test_chat_cmd.py"),
    "ngramkit replay --answers answers.jsonl --drafter blend --drafter python:": (
        "a package",
        "tests/cli/test_python_drafters.py",
    ),
    "ngramkit build demo openwebtext": ("OpenWebText", "tests/test_recipes.py"),
    "ngramkit build openwebtext": ("OpenWebText", "tests/test_recipes.py"),
}
if find_spec("gguf") is None or find_spec("accelerate") is None:
    NEEDS |= {
        "ngramkit decode --model ./llama.Q4_K_M.gguf": ("the extra gguf", GGUFS),
        "ngramkit decode --model hf:me/llama-gguf": ("the extra gguf", GGUFS),
    }
SMALL = (
    ("--model vicuna-7b --chat", "--model ./my-model --template vicuna --chat"),
    ("vicuna-7b@main", "demo"),
    ("vicuna-7b", "demo"),
    ("smollm2-135m", "demo"),
    ("qwen3-8b", "demo"),
    ("--model MODEL", "--model demo"),
    ("/models/my-model-exl3", "./my-model"),
    ("--corpus notes/", "--corpus notes.txt"),
    ("/data/past", "data/past"),
    ("~/.claude/projects", "sessions"),
    ("artifacts/projects-*-tokens-*", ""),  # the shell's work
    ("datastore --corpus python-stdlib", "datastore --corpus python-stdlib --limit 5 --out first"),
    ("--corpus ultrachat --limit 100000", "--corpus python-stdlib --limit 20 --out phrases"),
    ("--corpus openwebtext --sample 0.01", "--corpus python-stdlib --sample 0.01"),
    ("runs/*.json", "runs/all.jsonl"),
    ("--executor ray", ""),
    ("s3://", "s3/"),
    ("/shared/", "shared/"),
    ("ngramkit pull me/my-datastore@v1", "ngramkit pull me/my-datastore@v1 --out artifacts/pulled"),
    ("--bytes 2G", "--bytes 40k"),
    ("--max-new-tokens 100", "--max-new-tokens 16"),
    ("ngramkit bench", "ngramkit bench --max-new-tokens 8"),
    ("ngramkit record", "ngramkit record --max-new-tokens 8"),
    ("ngramkit self-corpus", "ngramkit self-corpus --max-new-tokens 8"),
    ("--datastore hf://me/my-datastore@v1", "--datastore hf://me/my-datastore@v1 --prompt hi"),
    ("me/", "acme/"),
)
QUESTION = "def main():\n    "
ANSWER = "print(sys.argv)\n    return 0\n\n\ndef read(path):\n    return path\n"


def printed():
    """(page, line) of everything that stands in a block of shell commands."""
    for page in PAGES:
        text = "".join(SHELL.findall(page.read_text(encoding="utf-8")))
        for line in re.sub(r" *\\\n *", " ", text).splitlines():
            if line.strip():
                yield page.relative_to(ROOT).as_posix(), line


def needs(line):
    return [begin for begin in NEEDS if line.startswith(begin)]


LINES = list(dict.fromkeys(printed()))
OURS = [(page, line) for page, line in LINES if not needs(line)]


def words(line):
    for written, small in SMALL:
        line = re.sub(rf"(?<!\w){re.escape(written)}", small, line)
    found = shlex.split(line, comments=True)[1:]
    if found[0] == "decode" and "--max-new-tokens" not in found:
        found += ["--max-new-tokens", "4"]
    return found


def furnish(folder):
    """Put into a folder what the pages take to be there."""
    ngramkit.build_datastore(
        "python-stdlib", folder / "artifacts/my-datastore", model="demo", limit=5
    )
    for copy in ("artifacts/chat", "artifacts/python-stdlib-demo-datastore", "chat"):
        shutil.copytree(folder / "artifacts/my-datastore", folder / copy)
    ngramkit.build_datastore(
        "python-stdlib", folder / "artifacts/code", model="demo", limit=5, split="held-out"
    )
    shutil.copytree(folder / "artifacts/code", folder / "code")
    shutil.copytree(resolve_model("demo"), folder / "my-model")
    (folder / "artifacts/demo.toml").write_text(
        'kind = "datastore"\nmodel.id = "demo"\ncorpus.name = "python-stdlib"\ncorpus.limit = 5\n'
    )
    (folder / "examples").mkdir()
    shutil.copy(ROOT / "examples/edits.jsonl", folder / "examples")
    text = json.dumps({"output": ANSWER * 3}) + "\n"
    for place in ("answers", "s3/texts/answers"):
        (folder / place).mkdir(parents=True)
        packed = zstandard.compress(text.encode())
        (folder / place / "a.jsonl.zst").write_bytes(packed)
    request = json.dumps({"prompt": QUESTION, "output": ANSWER}) + "\n"
    for place in ("ROLLOUTS", "rollouts", "logs/exp_001", "outputs/run/rollouts"):
        (folder / place).mkdir(parents=True)
        (folder / place / "a.jsonl").write_text(request)
    (folder / "server.log").write_text(request)
    speculative = "speculative-config: {method: ngram, num_speculative_tokens: 5}\n"
    (folder / "options.yaml").write_text(f"model: demo\n{speculative}")
    (folder / "runs").mkdir()
    runs = [json.dumps(result(requests, 9.0 + requests)) for requests in (1, 8)]
    (folder / "runs/all.jsonl").write_text("\n".join(runs))
    for pod in ("pod-1", "pod-2"):
        history = History.at(folder / pod, ngramkit.load_tokenizer("demo").record)
        history.append(np.array([5, 6, 7], np.int32), 1)
    (folder / "shared/texts").mkdir(parents=True)
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"text": [ANSWER]}), folder / "shared/texts/a.parquet")
    shutil.copytree(SESSIONS / "claude-code", folder / "sessions")
    write_gguf(folder / "llama.Q4_K_M.gguf", demo_metadata(), demo_tensors())
    for name in ("notes.txt", "old.py", "rewrite.txt", "long.txt"):
        (folder / name).write_text(QUESTION + ANSWER)
    question = {"question_id": 1, "category": "code", "turns": [QUESTION]}
    (folder / "question.jsonl").write_text(json.dumps(question) + "\n")
    answer = {"question_id": 1, "model_id": "m", "choices": [{"index": 0, "turns": [ANSWER]}]}
    (folder / "model_answer.jsonl").write_text(json.dumps(answer) + "\n")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{line: its result} of all that are run."""
    folder = tmp_path_factory.mktemp("printed")
    furnish(folder)
    lines = list(dict.fromkeys(line for _, line in OURS))
    with HubStandIn() as hub:
        env = {**hub.environment(folder / "home"), "HF_TOKEN": TOKEN}
        env |= {"XDG_CONFIG_HOME": str(folder / "settings")}
        gguf = folder / "llama.Q4_K_M.gguf"
        traces = {path.name: path.read_bytes() for path in SESSIONS.rglob("rollout*.jsonl")}
        hub.add("dataset", "acme/traces", traces, card={"tags": ["format:agent-traces"]})
        hub.add("model", "acme/llama-gguf", {gguf.name: gguf.read_bytes()})
        push = ["push", "artifacts/my-datastore", "acme/chat", "--tag", "v1"]
        found = run_all([push, *(words(line) for line in lines)], folder, env)
    assert found[0].code == 0, found[0].err
    return dict(zip(lines, found[1:], strict=True))


@pytest.mark.parametrize(("page", "line"), OURS)
def test_a_printed_command_does_what_it_says(page, line, results):
    assert results[line].code == 0, (words(line), results[line].err[-2000:])


def test_what_is_not_run_says_what_it_needs():
    assert all(len(needs(line)) == 1 for _, line in LINES if not line.startswith("ngramkit "))
    for begin, (what, where) in NEEDS.items():
        assert any(line.startswith(begin) for _, line in LINES), f"nothing prints {begin!r}"
        assert what
        assert Path(ROOT / where).exists(), where
