"""Compiled code is kept, found again, never stale, and never needed."""

import subprocess
import sys

import numba
import numpy as np
import pytest

from ngramkit.kernels import machine_code
from ngramkit.kernels.compile import entry, part


@part
def doubled(value):
    return 2 * value


def kernel(values):
    return doubled(values[0]) + 1


@pytest.fixture
def kept_in(tmp_path, monkeypatch):
    """kept_in(folder): where code is kept from now on."""

    def choose(folder):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
        machine_code.folder.cache_clear()
        machine_code.source_digest.cache_clear()
        return folder

    yield choose
    monkeypatch.undo()
    machine_code.folder.cache_clear()
    machine_code.source_digest.cache_clear()


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_one_process_compiled_another_finds(kept_in, tmp_path):
    folder = kept_in(tmp_path / "code")
    assert entry(kernel)(np.array([3])) == 7
    (written,) = files(folder)
    again = entry(kernel)
    assert again(np.array([3])) == 7
    assert sum(again.stats.cache_hits.values()) == 1
    assert entry(kernel)(np.array([1.5])) == 4.0  # other types: a file of its own, no index
    assert written in files(folder)
    assert len(files(folder)) == 2


def test_a_damaged_file_is_written_again(kept_in, tmp_path):
    folder = kept_in(tmp_path / "code")
    entry(kernel)(np.array([3]))
    (written,) = files(folder)
    whole = written.read_bytes()
    for damaged in (b"", whole[:100], b"no pickle"):
        written.write_bytes(damaged)
        assert entry(kernel)(np.array([3])) == 7
        assert len(written.read_bytes()) > 1000


def test_another_source_of_any_kernel_is_another_folder(kept_in, tmp_path, monkeypatch):
    folder = kept_in(tmp_path / "code")
    sources = tmp_path / "sources" / "deeper"
    sources.mkdir(parents=True)
    (sources / "one.py").write_text("x = 1")
    monkeypatch.setattr(machine_code, "KERNELS", tmp_path / "sources")
    kept_in(folder)
    first = machine_code.folder()
    (sources / "one.py").write_text("x = 2")
    kept_in(folder)
    assert machine_code.folder() != first


def test_where_nothing_can_be_kept_kernels_run(kept_in, tmp_path):
    (tmp_path / "file").write_text("")
    kept_in(tmp_path / "file" / "below")
    assert machine_code.folder() is None
    assert entry(kernel)(np.array([3])) == 7


def test_a_part_that_python_calls_raises_instead_of_crashing():
    entry(kernel)(np.array([3]))
    with pytest.raises(TypeError):
        doubled(3)


PREPARED = """
import sys
from ngramkit.budget.auto import prepare
prepare()
print(*sorted({"numba.np.arraymath", "scipy.linalg", "torch"} & set(sys.modules)))
"""


def test_what_is_kept_runs_without_what_compiling_needs():
    """Allocating kernels too; nor is torch imported to size drafts."""
    command = [sys.executable, "-c", PREPARED]
    subprocess.run(command, check=True, capture_output=True)  # compiles what is not kept yet
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert again.stdout.split() == []
