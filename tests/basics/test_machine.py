"""Free memory: the machine's, and what a container or a job is allowed."""

from __future__ import annotations

import pytest

from ngramkit.basics import machine

GB = 1 << 30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """groups({folder: (limit, used, cached)}): a machine with 64 GB of which a job has less."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {1 << 27} kB\nMemAvailable: {1 << 26} kB\n")
    (tmp_path / "cgroup").write_text("4:memory:/v1\n0::/slurm/job_1\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")

    def write(limits):
        for name, (limit, used, cached) in limits.items():
            folder = tmp_path / "groups" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "memory.max").write_text(f"{limit}\n")
            (folder / "memory.current").write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nfile 7\n")

    return write


@pytest.mark.parametrize(
    ("limits", "free"),
    [
        ({}, 64 * GB),
        ({"slurm/job_1": ("max", GB, 0)}, 64 * GB),
        ({"slurm/job_1": (8 * GB, 3 * GB, GB)}, 6 * GB),
        ({"slurm/job_1": ("max", GB, 0), "slurm": (4 * GB, GB, 0)}, 3 * GB),
        ({"": (4 * GB, GB, 0)}, 3 * GB),  # in a container, its own group is the root
        ({"slurm/job_1": (GB, 2 * GB, 0)}, 0),
        ({"slurm/job_2": (GB, 0, 0)}, 64 * GB),
        ({"": (1 << 50, GB, 0)}, 64 * GB),
    ],
)
def test_a_group_s_limit_counts_as_the_machine_s(groups, limits, free):
    groups(limits)
    assert machine.free_memory() == free


def test_a_machine_without_groups_is_known_by_its_own_memory(groups, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "missing")
    assert machine.free_memory() == 64 * GB
