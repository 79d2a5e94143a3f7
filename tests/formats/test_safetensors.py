"""The array file: exact bytes, the official reader's view of them, and every kind of damage."""

from __future__ import annotations

import errno
import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.safetensors import DTYPES, open_arrays, sha256_of, write_arrays

arrays = st.sampled_from(sorted(DTYPES.values())).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0))
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), arrays, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, named):
    path = tmp_path_factory.mktemp("container") / "file.safetensors"
    record = write_arrays(path, named)
    found = open_arrays(path)
    assert set(found) == set(named)
    for name, array in named.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert record.bytes == path.stat().st_size
    assert record.sha256 == sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_official_library_reads_it(tmp_path):
    named = {
        "b": np.arange(5, dtype=np.uint16),
        "a": np.arange(6, dtype=np.int32).reshape(2, 3),
        "empty": np.empty((0, 4), np.uint64),
    }
    write_arrays(tmp_path / "x.safetensors", named)
    found = load_file(tmp_path / "x.safetensors")
    for name, array in named.items():
        np.testing.assert_array_equal(found[name], array)


def test_golden_bytes(tmp_path):
    path = tmp_path / "golden.safetensors"
    write_arrays(path, {"t": np.array([1, 515], np.uint16), "o": np.array([7], np.uint64)})
    header = (
        b'{"o":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},'
        b'"t":{"dtype":"U16","shape":[2],"data_offsets":[8,12]}}'
    )
    header += b" " * (-len(header) % 8)
    data = bytes([7, 0, 0, 0, 0, 0, 0, 0]) + bytes([1, 0, 3, 2])
    assert path.read_bytes() == len(header).to_bytes(8, "little") + header + data


def test_arrays_are_read_only_and_aligned(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.ones(3, np.uint8), "b": np.ones(3, np.int64)})
    found = open_arrays(path)
    assert not found["b"].flags.writeable
    assert found["b"].flags.aligned


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.arange(100, dtype=np.int32)})
    return path


@pytest.mark.parametrize("keep", [0, 4, 8, 20, 200, -1])
def test_a_truncated_file_is_refused(whole, keep):
    whole.write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(ArtifactError, match=r"x\.safetensors is damaged"):
        open_arrays(whole)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode(),
        json.dumps({"a": {"dtype": "I32", "shape": [100], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"a": {"dtype": "I32", "shape": [-1, -2], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"a": {"dtype": "I32", "shape": [2], "data_offsets": [-8, 0]}}).encode(),
        json.dumps({"a": 3}).encode(),
    ],
)
def test_a_header_without_sense_is_refused(whole, header):
    header += b" " * (-len(header) % 8)
    whole.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ArtifactError, match=r"damaged: (its header|the entry|the size)"):
        open_arrays(whole)


def test_nothing_times_more_than_there_can_be_is_refused(whole):
    header = json.dumps({"a": {"dtype": "U64", "shape": [0, 1 << 62], "data_offsets": [0, 0]}})
    header += " " * (-len(header) % 8)
    whole.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(ArtifactError, match="its shapes"):
        open_arrays(whole)


def test_a_header_of_absurd_length_is_refused(whole):
    whole.write_bytes((1 << 62).to_bytes(8, "little") + whole.read_bytes()[8:])
    with pytest.raises(ArtifactError, match="header is cut short"):
        open_arrays(whole)


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(ArtifactError, match="is missing") as caught:
        open_arrays(tmp_path / "none.safetensors")
    assert "Build or pull" in caught.value.hint


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    write_arrays(tmp_path / "x.safetensors", {"x": np.arange(3, dtype=np.uint32)})

    def full(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", full)
    with pytest.raises(MemoryError):
        open_arrays(tmp_path / "x.safetensors")
