"""Help: panels, -h everywhere, and `python -m ngramkit`."""

from __future__ import annotations

import subprocess
import sys

import doc_pages
import pytest
from command_lines import run_here

from ngramkit_cli.main import COMMANDS, PANELS


def test_the_commands_are_listed_in_panels():
    shown = run_here(["-h"]).out
    assert shown == run_here(["--help"]).out
    for title, panel in PANELS.items():
        part = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines() if line[2:3] != " "] == list(panel)
    assert len(COMMANDS) == sum(map(len, PANELS.values()))


def test_the_options_of_decode_are_listed_in_panels():
    shown = run_here(["decode", "-h"]).out
    titles = [line for line in shown.splitlines() if line.endswith(":") and line[:1].isupper()]
    assert titles[0] == "Options:"
    assert titles[-1] == "Output:"
    assert "Sampling:" in titles
    sampling = shown.partition("\nSampling:\n")[2].partition("\n\n")[0]
    assert "--top-p" in sampling
    assert "--device" not in sampling
    output = shown.partition("\nOutput:\n")[2]
    assert "--json" in output
    assert "-h, --help" in output


@pytest.mark.parametrize("name", [name for name, _ in doc_pages.leaves()])
def test_every_command_has_the_short_flag(name):
    done = run_here([*name.split(), "-h"])
    assert done.code == 0, done.err
    assert done.out.startswith("Usage: ")


def test_python_runs_the_package_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "ngramkit", "--version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == run_here(["--version"]).out
    assert done.returncode == 0
