"""Loops, items and new arrays of kernels, against Python's and numpy's."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.runtime import _nrt_python, rtsys

from ngramkit.kernels import lowering
from ngramkit.kernels.allocate import empty, minus_ones, zeros
from ngramkit.kernels.compile import allocating_entry, allocating_part, entry
from ngramkit.kernels.packed import Packed

BOUNDS = st.integers(-6, 6)


@entry
def read(numbers, table, cube, i, j, k):
    """An item by each way that kernels have."""
    row, face = table[j], cube[i]
    return (
        numbers[i], numbers[-1], table[j, k], row[k], len(row), len(table), cube[i, j, k],
        face[j, k], cube[i, j][k], len(face[j]), face.size, row.shape[0], face.strides[0],
    )  # fmt: skip


@given(data=st.data(), shape=st.tuples(*[st.integers(1, 4)] * 3))
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.float32])
def test_an_item_is_numpys(dtype, data, shape):
    cube = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    i, j, k = (data.draw(st.integers(-size, size - 1)) for size in shape)
    numbers, table = np.ascontiguousarray(cube[:, 0, 0]), np.ascontiguousarray(cube[0])
    assert read(numbers, table, cube, i, j, k) == read.py_func(numbers, table, cube, i, j, k)
    i, j, k = (np.uint64(each % size) for each, size in zip((i, j, k), shape, strict=True))
    assert read(numbers, table, cube, i, j, k) == read.py_func(numbers, table, cube, i, j, k)


@entry
def write(table, i, j, value):
    table[i, j] = value
    table[i, -1] += 1
    row = table[i]
    row[j] = row[j] * 2
    table[0, 0] = True


@given(i=st.integers(-3, 2), j=st.integers(-4, 3), value=st.integers(0, 9))
def test_an_item_is_written_where_numpy_writes_it(i, j, value):
    found = np.arange(12, dtype=np.int32).reshape(3, 4)
    expected = found.copy()
    write(found, i, j, value)
    write.py_func(expected, i, j, value)
    assert (found == expected).all()


@entry
def slices(numbers, low, high, strided):
    """What numba lowers: a part of an array, and one that is not contiguous."""
    inner = numbers[low:high]
    for i in range(len(inner)):
        inner[i] += 1
    return len(inner), inner.sum(), strided[1], len(strided)


@given(low=BOUNDS, high=BOUNDS)
def test_slices_are_left_to_numba(low, high):
    found, expected = np.arange(6), np.arange(6)
    mine, strided = slices(found, low, high, np.arange(8)[::2]), np.arange(8)[::2]
    assert mine == slices.py_func(expected, low, high, strided)
    assert (found == expected).all()


@entry
def loops(start, stop, step, seen):
    """What every kind of range says, one after another; how many there are."""
    size, last = 0, -99
    for i in range(stop):
        seen[size] = i
        size += 1
    for i in range(start, stop):
        seen[size] = i
        size += 1
        if i == 3:
            continue
        last = i
    for i in range(stop, start, -1):
        if i == -2:
            break
        seen[size] = i
        size += 1
    for i in range(start, stop, 2):
        seen[size] = i
        size += 1
    for i in range(start, stop, step):
        seen[size] = i
        size += 1
    stop = start
    for i in range(np.int32(0), np.int32(2)):
        for _ in range(i):
            seen[size] = last
            size += 1
    return size


@given(start=BOUNDS, stop=BOUNDS, step=st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_a_loop_is_pythons(start, stop, step):
    found, expected = np.zeros(99, np.int64), np.zeros(99, np.int64)
    size = loops(start, stop, step, found)
    assert size == loops.py_func(start, stop, step, expected)
    assert (found == expected).all()


def test_a_range_of_no_step_is_refused():
    with pytest.raises(ValueError, match="must not be zero"):
        loops(0, 3, 0, np.zeros(99, np.int64))


@allocating_part
def _inner(size):
    kept = zeros((size, 3), np.float32)
    kept[size - 1, 2] = 7
    return kept[size - 1]


@allocating_entry
def made(size):
    numbers = empty(size, np.int32)
    for i in range(size):
        numbers[i] = i
    pairs = minus_ones((size, 2), np.int64)
    pairs[0, 1] = 5
    return numbers, pairs, zeros(size, np.bool_), _inner(size), numbers[1:].copy()


@given(size=st.integers(1, 9))
def test_new_arrays_are_numpys(size):
    numbers, pairs, nothing, row, rest = made(size)
    assert [each.dtype for each in (numbers, pairs, nothing)] == [np.int32, np.int64, np.bool_]
    assert numbers.tolist() == list(range(size))
    assert pairs.tolist() == [[-1, 5], *[[-1, -1]] * (size - 1)]
    assert nothing.tolist() == [False] * size
    assert row.tolist() == [0, 0, 7]  # lives on where the array that it is a row of is gone
    assert rest.tolist() == list(range(1, size))
    numbers[0] = 3  # they are the caller's own


def test_new_arrays_are_given_back():
    _nrt_python.memsys_enable_stats()
    made(3)
    gc.collect()
    before = rtsys.get_allocation_stats()
    for _ in range(10):
        made(3)
    gc.collect()
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


def test_what_cannot_be_allocated_is_a_memory_error():
    with pytest.raises(MemoryError):
        made(1 << 58)


def test_arrays_in_blocks_are_whole_arrays():
    """numba's own code may read what our lowering does not: sizes, strides."""
    from typing import Any, NamedTuple

    class Parts(NamedTuple):
        cube: Any

    @entry
    def asked(parts):
        cube = parts.cube
        return cube.size, cube.shape, cube.strides, cube.itemsize, cube.sum()

    cube = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert asked(Packed(Parts(cube))) == (24, (2, 3, 4), (48, 16, 4), 4, cube.sum())


def test_a_numba_that_puts_arrays_together_in_another_way_is_refused(monkeypatch):
    for kind, fields in lowering.FIELDS.items():
        monkeypatch.setattr(lowering, "FIELDS", {kind: fields[::-1]})
        with pytest.raises(ImportError, match=r"install numba 0\.68"):
            lowering.require_fields.__wrapped__()
