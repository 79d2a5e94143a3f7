"""Array types, large allocations and the numbers of draft sources. Imports no numba."""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # docstrings give dtype and shape

NO_TOKEN = -1


def empty(size: int, dtype: npt.DTypeLike) -> Array:
    """Return an uninitialised array [size], memory-mapped from 1 MiB on.

    malloc may keep up to 32 MB of deleted arrays.
    """
    count = size * np.dtype(dtype).itemsize
    if count < 1 << 20:
        return np.empty(size, dtype)
    pages = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # not supported by every Linux
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to.

    A kernel is compiled once for such arrays and once for others. Those of files are read-only.
    """
    view = array.view()
    view.flags.writeable = False
    return view


# The sources of draft nodes, named by `drafters.base.Source`.

DATASTORE, FROZEN, DYNAMIC, CONTEXT, MODEL, HISTORY, REFERENCE = range(7)
