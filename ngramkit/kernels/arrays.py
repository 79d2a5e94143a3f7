"""Arrays for type checkers, the id that is no token, and sources by number. Imports no numba."""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # comments and docstrings say which dtype and shape

NO_TOKEN = -1
LARGE = 1 << 20  # bytes


def empty(size: int, dtype: npt.DTypeLike) -> Array:
    """Return an array [size] of any content, whose memory the system has back when it is gone.

    Of arrays up to 32 MB malloc may keep it, which would double that of arrays that are replaced by
    longer ones again and again.
    """
    count = size * np.dtype(dtype).itemsize
    if count < LARGE:
        return np.empty(size, dtype)
    pages = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


# The sources of draft nodes, which `drafters.base.Source` names.

DATASTORE, FROZEN, DYNAMIC, CONTEXT, MODEL, HISTORY, REFERENCE = range(7)
