"""Processes that have imported what takes seconds, and fork for each list of command lines.

One has the modules of TABLES; the other, forked from it, those of MODELS too, once somebody asks.
All processes of a run of tests share them, and they end with the last of these.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

# Tests of the Hub choose its address, which its client reads when it is imported: they get these.
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
PAUSE = 1.0  # seconds after which a server looks whether anybody is left


def ask(asked: Mapping[str, Any], environment: Mapping[str, str], *, has_models: bool) -> None:
    """Have `command_lines.work(**asked)` done. A server starts with the first `environment`."""
    server = connected(tuple(environment.items()), "models" if has_models else "tables")
    server.write(json.dumps(asked) + "\n")
    server.flush()
    server.readline()


@cache
def connected(environment: tuple[tuple[str, str], ...], name: str = "tables") -> TextIO:
    """Connect to a server; start both if there is none. They last while one is connected."""
    folder = Path(os.environ["NGRAMKIT_TEST_CACHE"])
    if name == "models":
        connected(environment)
        return connect(folder / "models.socket")
    with (folder / "servers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return connect(folder / "tables.socket")
        except OSError:  # there are none, or no longer
            start([folder / "tables.socket", folder / "models.socket"], dict(environment))
        return connect(folder / "tables.socket")


def connect(place: Path) -> TextIO:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place))
        return connection.makefile("rw")


def start(places: Sequence[Path], environment: dict[str, str]) -> None:
    """Start the servers: one can connect at once, and is answered when they have imported."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in places]
        for each, place in zip(sockets, places, strict=True):
            place.unlink(missing_ok=True)
            each.bind(str(place))
            each.listen()
        numbers = [each.fileno() for each in sockets]
        subprocess.Popen(
            [sys.executable, __file__, *map(str, numbers)], pass_fds=numbers, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def main() -> None:
    """Become both servers; the arguments are the numbers of their sockets."""
    tables, models = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    del sys.argv[1:]
    for name in TABLES:
        importlib.import_module(name)
    parent = os.getpid()
    if os.fork():
        models.close()
        serve(tables, lambda: True)
        return
    tables.close()

    def is_over() -> bool:
        return os.getppid() != parent

    while not select.select([models], [], [], PAUSE)[0]:
        if is_over():
            return
    for name in MODELS:
        importlib.import_module(name)
    from command_lines import run_here

    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        run_here(["decode", "--prompt", "x", "--max-new-tokens", "2", "--drafter", "context"])
    serve(models, is_over)


def serve(listener: socket.socket, is_over: Callable[[], bool]) -> None:
    """Fork for each that connects. Return when none is connected and it is over."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # as in conftest
    children = set[int]()
    while True:
        if select.select([listener], [], [], PAUSE)[0]:
            connection, _ = listener.accept()
            child = os.fork()
            if child == 0:
                listener.close()
                answer(connection)
                return
            connection.close()
            children.add(child)
        children -= {each for each in children if os.waitpid(each, os.WNOHANG)[0]}
        if not children and is_over():
            return


def answer(connection: socket.socket) -> None:
    """Do what is asked, each in a fork that ends as a command does."""
    with connection, connection.makefile("rw") as lines:
        while line := lines.readline():
            child = os.fork()
            if child == 0:
                from command_lines import work

                work(**json.loads(line))
                return
            os.waitpid(child, 0)
            lines.write("done\n")
            lines.flush()


if __name__ == "__main__":
    main()
