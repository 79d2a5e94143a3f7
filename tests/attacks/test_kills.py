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
from .commands import commands
from .killing import Outcome, kill_everywhere
from .made import prepare_driver

NAMES = list(commands(""))
every_command = cache(commands)


def drive(name: str, endpoint: str, scratch: Path) -> Outcome:
    require_preloaded()
    return kill_everywhere(every_command(endpoint)[name], scratch)


@pytest.fixture(scope="module")
def driver():
    """One process forks all that are killed: what a command imports and compiles is there."""
    with ProcessPoolExecutor(1, forks(), initializer=prepare_driver) as pool:
        yield pool


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_event(tmp_path, hub, driver, name):
    outcome = driver.submit(drive, name, hub.endpoint, tmp_path).result()
    for left, kills in outcome.kills.items():
        tally(f"kill -9 at every event: {name}", left, kills)
    assert not outcome.failures, "\n".join(outcome.failures[:5])
    assert sum(outcome.kills.values()) >= 4
