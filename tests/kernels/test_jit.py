"""Compiled code is kept, found again, never stale, and never needed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from ngramkit.kernels import code_folder
from ngramkit.kernels.jit import entry, is_tested, part


@part
def doubled(value):
    return 2 * value


def kernel(values):
    return doubled(values[0]) + 1


@pytest.fixture
def kept_in(tmp_path, monkeypatch):
    """kept_in(folder): where code is kept from now on."""

    def choose(folder):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
        code_folder.machine_code_folder.cache_clear()
        code_folder.source_digest.cache_clear()
        return folder

    yield choose
    monkeypatch.undo()
    code_folder.machine_code_folder.cache_clear()
    code_folder.source_digest.cache_clear()


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


def test_another_source_of_any_kernel_is_another_file(kept_in, tmp_path, monkeypatch):
    folder = kept_in(tmp_path / "code")
    sources = tmp_path / "sources" / "deeper"
    sources.mkdir(parents=True)
    (sources / "one.py").write_text("x = 1")
    monkeypatch.setattr(code_folder, "KERNELS", tmp_path / "sources")
    kept_in(folder)
    first = code_folder.file_ending()
    (sources / "one.py").write_text("x = 2")
    kept_in(folder)
    assert code_folder.file_ending() != first


def test_where_nothing_can_be_kept_kernels_run(kept_in, tmp_path, monkeypatch):
    kept_in(tmp_path)
    monkeypatch.setattr(code_folder, "is_usable", lambda place: False)
    assert code_folder.machine_code_folder() is None
    assert entry(kernel)(np.array([3])) == 7


def test_a_process_whose_folder_was_deleted_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(code_folder, "machine_code_folder", lambda: tmp_path / "gone")
    assert entry(kernel)(np.array([3])) == 7


def test_a_part_that_python_calls_raises_instead_of_crashing():
    entry(kernel)(np.array([3]))
    with pytest.raises(TypeError):
        doubled(3)


PREPARED = """
import sys
from ngramkit.budget.auto import compile_kernels
compile_kernels()
print(*sorted({"numba.np.arraymath", "scipy.linalg", "torch"} & set(sys.modules)))
"""


def test_kept_code_runs_without_the_imports_of_compiling():
    """Allocating kernels too; nor is torch imported to size drafts."""
    command = [sys.executable, "-c", PREPARED]
    subprocess.run(command, check=True, capture_output=True)  # compiles what is not kept yet
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert again.stdout.split() == []


UNKNOWN = """
import logging, sys
import numba
import numba.core.event
import numpy as np
numba.__version__ = "0.99.0"
del numba.core.event  # nothing else of its insides is where it was
sys.modules["numba.core.event"] = None
logging.basicConfig(level=0, format="%(message)s", stream=sys.stdout)
logging.getLogger("numba").setLevel(logging.WARNING)
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.packed_arguments import Packed

@part
def doubled(value):
    return 2 * value

@part
def add(from_, into):
    into[0] += from_.values[0]

@entry
def kernel(given, into):
    add(given, into)
    return doubled(into[0])

from typing import NamedTuple
class Given(NamedTuple):
    values: object

print(*(kernel(Packed(Given(np.array([given]))), np.array([4])) for given in (3, 0)))
"""


def test_an_untested_numba_compiles_in_its_own_way(tmp_path):
    """With the same results, but slower; a notice says so once."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "code")}
    (tmp_path / "unknown.py").write_text(UNKNOWN)
    command = [sys.executable, str(tmp_path / "unknown.py")]
    for _ in range(2):  # compiled, then kept
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        notices = [line for line in done.stdout.splitlines() if "not tested" in line]
        assert len(notices) == 1
        assert "0.99.0" in notices[0]
        assert done.stdout.splitlines()[-1] == "14 8"
    assert list((tmp_path / "code").rglob("*.nbi"))


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.62.1", True), ("0.68.0rc1", True), ("0.61.2", False), ("0.69.0", False), ("1.0", False)],
)
def test_tested_versions(version, known):
    assert is_tested(version) is known
