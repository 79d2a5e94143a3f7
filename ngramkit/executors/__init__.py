"""Where the tasks of a build run: `local`, threads of this process, or `ray`, a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ngramkit.errors import UsageError, meant
from ngramkit.executors.base import Executor
from ngramkit.executors.local import Local
from ngramkit.machine import threads
from ngramkit.progress import SILENT, Reporter

EXECUTORS = ("local", "ray")


def validate(executor: str, ray_address: str | None) -> None:
    """Raises UsageError where there is no such executor, or it has no address."""
    if executor not in EXECUTORS:
        raise UsageError(
            f"there is no executor {executor!r}", meant(executor, EXECUTORS), option="executor"
        )
    if executor != "ray" and ray_address is not None:
        raise UsageError(
            f"ray_address means nothing with executor={executor}",
            "leave it out, or give executor=ray",
            option=("ray_address", "executor"),
        )


@contextmanager
def executing(
    executor: str = "local",
    ray_address: str | None = None,
    workers: int | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[Executor]:
    """The executor of that name, connected, until the block ends.

    `workers` bounds the tasks that run at a time: by default one a core of this machine, or what
    keeps every core of the cluster busy. `ray_address` is `auto` (the cluster that this machine is
    a node of; RAY_ADDRESS, where that is set) or HOST:PORT. Raises UsageError where there is no
    such executor or its package is missing, NetworkError where there is no cluster.
    """
    validate(executor, ray_address)
    if executor == "local":
        yield Local(threads(workers))
        return
    from ngramkit.executors.cluster import connected

    with connected(ray_address, None if workers is None else threads(workers), reporter) as cluster:
        yield cluster
