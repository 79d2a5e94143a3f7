"""Python processes that ngramkit starts: with the packages of this one, and no file of the working
folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def start_python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Python that runs `code`, with `arguments` in its sys.argv; `options` as of Popen.

    `python -c` would look for modules in the working folder first, and a folder may be anybody's:
    -P, and PYTHONSAFEPATH for what the child starts itself, keep it from that.
    """
    root = str(Path(__file__).parents[1])  # of ngramkit, wherever this process has it from
    path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), root]))
    environment = {**os.environ, **options.pop("env", {})}
    environment |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, text=True, **options)
