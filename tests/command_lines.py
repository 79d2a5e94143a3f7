"""Run several ngramkit command lines in one process of their own.

It is forked from one that has imported what takes seconds, so imports are paid once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
            command = [sys.executable, __file__, "work"]
            subprocess.run(command, input=json.dumps(asked), env=env, text=True, check=False)
        else:
            import command_servers  # a process of its own may not find it: PYTHONSAFEPATH

            is_light = any(name.startswith(BEFORE_IMPORTS) for name in changed)
            command_servers.ask(asked, ENVIRONMENT, has_models=not is_light)
        results = Path(place, "results")
        assert results.exists(), Path(place, "output").read_text()
        return [Result(**result) for result in json.loads(results.read_text())]


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
    if sys.argv[1:] == ["work"]:
        work(**json.load(sys.stdin))
    else:
        print(json.dumps([asdict(run_here(line)) for line in json.load(sys.stdin)]))
