"""Processes to be killed, forked from a server that has imported what takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

PRELOADED = ["killed_build", "attacks.commands"]


def forks() -> ForkServerContext:
    """The server runs. Python 3.11 starts it without the path of this process and passes over what
    it then cannot import, so the path goes with the environment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
    return context


def require_preloaded() -> None:
    """In a fork: nothing has to be imported again. Raises AssertionError."""
    assert set(PRELOADED) <= set(sys.modules)
