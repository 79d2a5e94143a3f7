"""Compiling by shorter ways gives what Python computes, and leaves numba as it was."""

import numpy as np
from hypothesis import given, settings, strategies as st
from numba.core.base import BaseContext
from numba.core.compiler import run_frontend
from numba.np import arrayobj

from ngramkit.kernels.jit import entry
from ngramkit.kernels.numba_shortcuts import shortcuts

bounds = st.integers(-5, 5)


def loops(first, last, step, seen):
    """Write what loops give: up, down, nested, left early, over arrays and their ends."""
    at = 0
    for value in range(last):
        seen[at] = value
        at += 1
    for value in range(first, last):
        for inner in range(value):
            if inner == 3:
                break
            seen[at] = 10 * value + inner
            at += 1
    for value in range(first, last, step):
        seen[at] = value
        at += 1
    for value in range(last, first, -1):
        seen[at] = value
        at += 1
    seen[at] = len(range(first, last))
    return at + 1


@settings(max_examples=60)
@given(bounds, bounds, bounds.filter(bool))
def test_loops(first, last, step):
    expected, found = np.zeros((2, 200), np.int64)
    assert compiled_loops(first, last, step, found) == loops(first, last, step, expected)
    assert found.tolist() == expected.tolist()


def reads(flat, table, row, column):
    """Read and write single items, rows and slices, from both ends."""
    table[row, column] += flat[-1]
    line = table[row]
    line[column] += len(table) + table.shape[1] + line.size
    total = 0
    for at, value in enumerate(table[:, column]):
        total += at * value
    for value in flat[1:-1]:
        total += value
    flat[0] = line[1:][-1]
    flat[2:4] = 7
    return total


@settings(max_examples=60)
@given(
    st.lists(st.integers(-9, 9), min_size=17, max_size=17), st.integers(-3, 2), st.integers(-4, 3)
)
def test_arrays(values, row, column):
    expected = np.array(values[:5]), np.array(values[5:]).reshape(3, 4)
    found = tuple(array.copy() for array in expected)
    assert compiled_reads(*found, row, column) == reads(*expected, row, column)
    assert all(map(np.array_equal, found, expected))


def test_the_variables_of_instructions_are_numbas():
    blocks = run_frontend(reads).blocks.values()
    instructions = [each for block in blocks for each in block.body]
    expected = [each.list_vars() for each in instructions]
    with shortcuts():
        assert [each.list_vars() for each in instructions] == expected
    assert max(map(len, expected)) > 2


def test_numba_is_left_as_it_was():
    before = BaseContext.get_function, arrayobj.make_array
    entry(reads)(np.zeros(5), np.zeros((3, 4)), 0, 0)
    assert (BaseContext.get_function, arrayobj.make_array) == before


compiled_loops, compiled_reads = entry(loops), entry(reads)
