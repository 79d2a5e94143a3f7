"""A kernel's code for what may be absent: there where it is given, left out where it is not."""

from typing import Any, NamedTuple

import numpy as np

from ngramkit.kernels.jit import entry, optional_part
from ngramkit.kernels.packed import Absent, Packed


class Sums(NamedTuple):
    total: Any  # int64[1]


class Parts(NamedTuple):
    values: Any  # int64[n]
    sums: Any  # Sums or Absent


@optional_part
def add(sums, value):
    sums.total[0] += value


@entry
def last(parts):
    for value in parts.values:
        add(parts.sums, value)
    return parts.values[-1]


def test_a_part_is_left_out_where_its_argument_is_absent():
    values, sums = np.array([3, 4, 5]), Sums(np.zeros(1, np.int64))
    assert last(Packed(Parts(values, Absent()))) == 5
    assert last(Packed(Parts(values, sums))) == 5
    assert sums.total[0] == 12
    assert last(Packed(Parts(values, Absent()))) == 5
    assert sums.total[0] == 12
    assert len(last.signatures) == 2
