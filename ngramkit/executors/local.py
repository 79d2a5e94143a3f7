"""Tasks on threads of this process: kernels let the GIL go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

from ngramkit.executors.base import Result, Task


class Local:
    """`workers` tasks at a time, each of which holds its memory until its file is written."""

    name = "local"
    local = True
    retries = 0

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, tasks: Iterable[Task[Result]]) -> Iterator[tuple[Task[Result], Result]]:
        with ThreadPoolExecutor(self._workers) as pool:
            running = {pool.submit(task.work, *task.given): task for task in tasks}
            try:
                for future in as_completed(running):
                    yield running[future], future.result()
            finally:
                for future in running:
                    future.cancel()
