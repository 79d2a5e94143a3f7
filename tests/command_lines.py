"""Run several ngramkit command lines in one process of their own.

It is forked from one that has imported what takes seconds, so imports are paid once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object in the last line of stdout."""
        return json.loads(self.out.splitlines()[-1])


# What takes seconds to import. Tests of the Hub choose its address, which its client reads when it
# is imported; they get the rest.
TABLES = (
    "pandas", "pyarrow.parquet", "scipy.io", "multiprocess", "fsspec", "numba", "typer",
    "matplotlib.pyplot", "gigatoken", "awkward", "scipy.optimize", "torch", "torch._dynamo",
    "torch.distributed.tensor", "torch.export",
)  # fmt: skip
MODELS = (
    "transformers.models.llama.modeling_llama",
    "transformers.generation",
    "datasets",
    "ngramkit.decode.answer",
    "ngramkit.decode.generate",
    "ngramkit.evaluate.forecast",
    "ngramkit.builders.datastore",
    "ngramkit.builders.frozen",
)
BEFORE_IMPORTS = ("HF_", "TRANSFORMERS_", "XDG_CACHE_HOME")
BEFORE_PYTHON = ("OMP_", "NUMBA_", "PYTHON", "TORCH_", "MKL_", "LD_")
SWITCH = "TRANSFORMERS_SDPA_FORCE_GQA"  # of decode.load
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != SWITCH}


def run_all(
    lines: Sequence[Sequence[object]], folder: Path, env: Mapping[str, str]
) -> list[Result]:
    """`lines` are the arguments behind `ngramkit`; each gives a Result."""
    env = {**os.environ, **env}
    env.pop(SWITCH, None)  # this process has loaded a model
    asked = {"lines": [[str(word) for word in line] for line in lines], "env": env}
    changed = [name for name in {*env, *ENVIRONMENT} if env.get(name) != ENVIRONMENT.get(name)]
    with tempfile.TemporaryDirectory() as place:
        asked |= {"folder": str(folder), "place": place}
        if any(name.startswith(BEFORE_PYTHON) for name in changed):
            with start(env=env) as starter:
                starter.communicate(json.dumps(asked) + "\n")
        else:
            is_light = any(name.startswith(BEFORE_IMPORTS) for name in changed)
            starter = started(TABLES if is_light else TABLES + MODELS)
            assert starter.stdin is not None
            assert starter.stdout is not None
            starter.stdin.write(json.dumps(asked) + "\n")
            starter.stdin.flush()
            starter.stdout.readline()
        results = Path(place, "results")
        assert results.exists(), Path(place, "output").read_text()
        return [Result(**result) for result in json.loads(results.read_text())]


def start(*modules: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a process that imports modules, then forks for every line of its input."""
    return subprocess.Popen(
        [sys.executable, __file__, "serve", *modules],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True,
    )  # fmt: skip


@cache
def started(modules: tuple[str, ...]) -> subprocess.Popen[str]:
    """Return the one of this process, which ends with its input."""
    starter = start(*modules, env=ENVIRONMENT)
    atexit.register(starter.communicate)
    return starter


def serve() -> None:
    """Do what is asked, each in a fork that ends as a command does."""
    for module in sys.argv[2:]:
        importlib.import_module(module)
    if MODELS[0] in sys.argv:
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            run_here(["decode", "--prompt", "x", "--max-new-tokens", "2", "--drafter", "context"])
    del sys.argv[1:]
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # as in conftest
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            work(**json.loads(line))
            return
        os.waitpid(child, 0)
        print("done", flush=True)


def work(lines: list[list[str]], folder: str, place: str, env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    with Path(os.devnull).open() as nothing, Path(place, "output").open("w") as output:
        for descriptor, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), descriptor)
    text = json.dumps([asdict(run_here(line)) for line in lines])
    Path(place, "results").write_text(text)


def run_here(line: Sequence[str]) -> Result:
    """One command line in this process."""
    from ngramkit_cli.main import app

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(list(line))
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Result(code, out.getvalue(), err.getvalue())


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        print(json.dumps([asdict(run_here(line)) for line in json.load(sys.stdin)]))
