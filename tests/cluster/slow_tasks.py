"""What the tests run on nodes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import ray

from ngramkit.basics.errors import InputError


def begun(folder, name):
    """Says on which node a task was begun; returns that."""
    here = ray.get_runtime_context().get_node_id()
    with (Path(folder) / f"{name}.begun").open("a") as file:
        file.write(f"{here}\n")
    return here


def write(folder, name, seconds=0.0):
    """Sleeps, and writes its file."""
    begun(folder, name)
    time.sleep(seconds)
    (Path(folder) / name).write_text(name)
    return name


def stay(folder, name, node, seconds=120.0):
    """Stays on `node`, which is to be lost, till then; elsewhere waits till a task stays there."""
    folder, here = Path(folder), begun(folder, name)
    if here == node:
        (folder / "stays").touch()
    until = time.monotonic() + seconds
    while (here == node or not (folder / "stays").exists()) and time.monotonic() < until:
        time.sleep(0.05)
    (folder / name).write_text(name)
    return name


def die_once(folder, name):
    """Its worker is killed the first time."""
    mark = Path(folder) / f"{name}.begun"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def refuse():
    raise InputError("this cannot be read", "Fetch it again.", option="corpus")


def err():
    raise KeyError("a bug")
