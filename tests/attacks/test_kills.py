"""kill -9 at every file-system event of every command that writes: old or new, and a rerun mends.

A rerun of the same command ends with the bytes of an undisturbed run, and nothing else is left.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import hub_writing  # noqa: F401 (its endpoints)
import pytest
from forks import forks, require_preloaded

from . import tally
from .killing import Command, Outcome, kill_everywhere

NAMES = [
    "tokenize", "tokenize --force", "build-datastore --force", "build-frozen",
    "build-frozen --force", "build RECIPE", "merge --force", "decode --history",
    "history import", "history trim", "history merge", "bench", "bench --force", "replay --force",
    "export --to jsonl --force", "export --to rest-idx --force",
    "export --to llama.cpp --force", "export --to ik_llama.cpp --force",
    "export --to exllamav3 --force", "export --to exllamav3", "export --to parquet --force",
    "export --to transformers --force", "export --to jsonl",
    "export --to rest-idx", "export --to llama.cpp", "export --to ik_llama.cpp",
    "export --to parquet", "export --to transformers",
    "import --from llama.cpp --force", "import --from rest-idx --force", "pull", "pull --force",
    "pull, a history", "push", "model-bigram --force", "model-unigram --force",
]  # fmt: skip


@cache
def every_command(endpoint: str) -> dict[str, Command]:
    from .commands import commands

    return commands(endpoint)


def drive(name: str, endpoint: str, scratch: Path) -> Outcome:
    require_preloaded()
    return kill_everywhere(every_command(endpoint)[name], scratch)


@pytest.fixture(scope="module")
def driver():
    """One process forks all that are killed: what a command imports and compiles is there."""
    with ProcessPoolExecutor(1, forks()) as pool:
        yield pool


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_event(tmp_path, hub, driver, name):
    outcome = driver.submit(drive, name, hub.endpoint, tmp_path).result()
    for left, kills in outcome.kills.items():
        tally(f"kill -9 at every event: {name}", left, kills)
    assert not outcome.failures, "\n".join(outcome.failures[:5])
    assert sum(outcome.kills.values()) >= 4
