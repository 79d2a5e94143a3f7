"""Every place of the product that could run somebody else's code, and its guard.

A call of these kinds that is not listed here fails the test: whoever adds one says here what guards
it. Names are followed through `import ... as`.
"""

from __future__ import annotations

import ast
import fnmatch
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from . import tally

ROOT = Path(__file__).parents[2]
PLACES = (ROOT / "ngramkit", ROOT / "cli")

# Calls, and what is called of them; * stands for any rest of a name.
PROCESSES = ("subprocess", "os.system", "os.popen", "os.exec*", "os.spawn*", "os.posix_spawn*",
             "os.fork*", "pty", "multiprocessing", "asyncio.create_subprocess*")  # fmt: skip
PICKLES = ("pickle.load*", "pickle.Unpickler", "marshal", "shelve", "dill", "cloudpickle",
           "joblib", "torch.load", "pandas.read_pickle", "numpy.load",
           "yaml.load*", "yaml.full_load*", "yaml.unsafe_load*")  # fmt: skip
RUNNING = ("eval", "exec", "compile", "__import__", "runpy", "importlib.import_module",
           "importlib.util.spec_from*", "importlib.util.module_from*", "pkgutil.resolve_name",
           "ctypes.CDLL")  # fmt: skip
TEMPLATES = ("jinja2.Environment", "jinja2.Template", "jinja2.sandbox")
ASKING = ("input", "sys.stdin")
LOADING = ("from_pretrained", "from_config", "load_dataset", "load_dataset_builder", "pipeline",
           "load_custom_generate")  # methods, of whatever object  # fmt: skip

# Of each kind, by file: the calls, and what guards them.
KNOWN = {
    "processes": {
        # -P; see test_a_python_is_started_safely
        "ngramkit/basics/machine.py": ["subprocess.Popen"],
        # None: what is called as a process ends, in children of an engine's too
        "ngramkit/engines/growing_history.py": ["multiprocessing.util.Finalize"] * 2,
        "ngramkit/engines/llama_cpp.py": ["multiprocessing.util.Finalize"],  # the same
        "ngramkit/engines/vllm_requests.py": ["multiprocessing.util.Finalize"],  # the same
    },
    "pickles": {
        "ngramkit/logs/rollouts.py": ["torch.load"],  # weights_only: see tests/logs
        "ngramkit/kernels/compiler.py": ["pickle.loads"],  # of a private folder
    },
    "running": {
        "ngramkit/__init__.py": ["importlib.import_module"],  # names of its own table
        "ngramkit/drafters/create.py": ["pkgutil.resolve_name"],  # the same
        "ngramkit/basics/callable_package.py": ["pkgutil.resolve_name"],  # names in its callers
        # named on the command line, never in the working folder: test_strangers_code
        "cli/ngramkit_cli/python_drafters.py": ["importlib.import_module"],
        "cli/ngramkit_cli/main.py": ["importlib.import_module"],  # the same
        "ngramkit/engines/source.py": ["importlib.import_module"],  # "transformers"
        "ngramkit/engines/metrics.py": ["importlib.import_module"],  # "prometheus_client"
        "ngramkit/engines/llama_cpp.py": ["importlib.import_module"],  # "llama_cpp"
        "ngramkit/engines/sglang.py": ["importlib.import_module"],  # a module of sglang
        "ngramkit/engines/sglang_hooks.py": ["importlib.import_module"],  # the engine that runs it
        "ngramkit/engines/tensorrt_llm.py": ["importlib.import_module"],  # the same
        "ngramkit/engines/vllm_hooks.py": ["importlib.import_module"],  # the same
        "ngramkit/engines/vllm_plugin.py": ["importlib.import_module"],  # the same
        # None: the C library that is loaded
        "ngramkit/decode/packed_weights.py": ["ctypes.CDLL", "ctypes.CDLL"],
        "ngramkit/formats/replacing.py": ["ctypes.CDLL"],  # the same
    },
    "templates": {
        "ngramkit/formats/card.py": ["jinja2.Environment"],  # our own template; values are escaped
        "ngramkit/corpus/chat.py": ["jinja2.sandbox.ImmutableSandboxedEnvironment"],
        "ngramkit/evaluate/bench_report.py": ["jinja2.Environment"],  # the package's own template
    },
    "asking": {  # prompts, and whether to delete; never for consent to run code
        "cli/ngramkit_cli/output.py": ["sys.stdin.isatty"],  # asks by streams.py, as does decode
        "cli/ngramkit_cli/decode_cmd.py": ["sys.stdin.buffer.readline", "sys.stdin.isatty"],
        "cli/ngramkit_cli/streams.py": ["input"],
        "cli/ngramkit_cli/prompt.py": ["sys.stdin.buffer.read", "sys.stdin.isatty"],
    },
    "loading": {  # all but the last say trust_remote_code
        "ngramkit/corpus/tokenizer.py": ["from_pretrained"],
        "ngramkit/decode/gguf_weights.py": [
            "from_config", "from_config", "from_pretrained", "from_pretrained"
        ],
        "ngramkit/decode/load.py": ["from_pretrained", "from_pretrained"],
        "ngramkit/engines/source.py": ["from_pretrained"],
        "ngramkit/gguf/tokenizer.py": ["from_pretrained"],
        "ngramkit/corpus/hub.py": ["load_dataset_builder"],  # datasets 4 runs no scripts
    },
}  # fmt: skip
STARTS = {
    "processes": PROCESSES, "pickles": PICKLES, "running": RUNNING, "templates": TEMPLATES,
    "asking": ASKING,
}  # fmt: skip


def sources():
    for place in PLACES:
        yield from sorted(place.rglob("*.py"))


def dotted(node):
    """Return a.b.c for such an expression, "" for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def imported(tree):
    """Return what each imported name of the module stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.split(".")[0]] = (
                    each.name if each.asname else each.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}.{each.name}"
    return found


def calls(path):
    """Yield (dotted name, node) of every call, by the names in the modules of origin."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = dotted(node.func).partition(".")
            yield names.get(first, first) + dot + rest, node


@cache
def kind_of(name):
    for kind, patterns in STARTS.items():
        for pattern in patterns:
            if name == pattern or fnmatch.fnmatchcase(name, f"{pattern.removesuffix('*')}.*"):
                return kind
            if pattern.endswith("*") and fnmatch.fnmatchcase(name, pattern):
                return kind
    return "loading" if name.rpartition(".")[2] in LOADING else None


@cache
def listed():
    found = {kind: defaultdict(list) for kind in KNOWN}
    for path in sources():
        for name, _ in calls(path):
            kind = kind_of(name)
            if kind is not None:
                called = name.rpartition(".")[2] if kind == "loading" else name
                found[kind][path.relative_to(ROOT).as_posix()].append(called)
    return {kind: {f: sorted(each) for f, each in files.items()} for kind, files in found.items()}


@pytest.mark.parametrize("kind", KNOWN)
def test_every_place_is_listed_with_its_guard(kind):
    assert listed()[kind] == KNOWN[kind]
    tally("places that could run somebody's code", "listed, with a guard", sum(
        map(len, KNOWN[kind].values())
    ))  # fmt: skip


def test_every_load_says_whether_code_is_trusted():
    """Left out, transformers asks on stdout, and takes a pipe's "y" for consent."""
    for path in sources():
        for name, node in calls(path):
            method = name.rpartition(".")[2]
            if method in LOADING and method != "load_dataset_builder":
                given = {keyword.arg for keyword in node.keywords}
                assert "trust_remote_code" in given, f"{path}:{node.lineno}"


def test_a_new_place_is_found(tmp_path):
    """Under whatever name it was imported."""
    file = tmp_path / "new.py"
    for code, kind in {
        "from subprocess import run as go\ngo(['x'])": "processes",
        "import pickle as p\np.loads(b'')": "pickles",
        "import torch\ntorch.load('x')": "pickles",
        "import numpy as np\nnp.load('x')": "pickles",
        "import yaml\nyaml.load('x', yaml.UnsafeLoader)": "pickles",
        "eval('1')": "running",
        "from importlib import import_module\nimport_module('x')": "running",
        "import jinja2\njinja2.Template('x')": "templates",
        "input()": "asking",
        "import sys\nsys.stdin.read()": "asking",
        "from transformers import AutoModel\nAutoModel.from_pretrained('x')": "loading",
    }.items():
        file.write_text(code)
        assert [kind_of(name) for name, _ in calls(file)] == [kind], code
