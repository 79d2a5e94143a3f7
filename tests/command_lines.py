"""Runs several ngramkit command lines in one process of its own: imports are paid once.

The environment counts from the process's start, so the real Hub clients can be pointed elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
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


def run_all(
    lines: Sequence[Sequence[object]], folder: Path, env: Mapping[str, str]
) -> list[Result]:
    """`lines` are the arguments behind `ngramkit`; each gives a Result."""
    asked = json.dumps([[str(word) for word in line] for line in lines])
    done = subprocess.run(
        [sys.executable, __file__],
        input=asked,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Result(**result) for result in json.loads(done.stdout)]


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
    print(json.dumps([asdict(run_here(line)) for line in json.load(sys.stdin)]))
