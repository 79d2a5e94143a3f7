"""Shapes of draft trees: how deep every node lies, and which rows of a pass it may see.

Arrays in, arrays out. A pass has one row per node and one for the root: row 0 is the root (the
last accepted token), row i + 1 is node i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit


@njit(cache=True, nogil=True)
def layout(
    parents: npt.NDArray[np.int32], blocked: np.float32
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Depth of every row and the additive ancestor mask.

    parents int32[n] (-1 is the root) -> depths int64[n + 1], mask float32[n + 1, n + 1] with 0
    where the column's row is the row itself or an ancestor, else `blocked`.

    [-1, 0, -1] -> depths [0, 1, 2, 1]; row 2 (node 1) sees columns 0, 1 and 2, row 3 sees 0 and 3.
    """
    rows = len(parents) + 1
    depths = np.zeros(rows, np.int64)
    mask = np.full((rows, rows), blocked, np.float32)
    mask[0, 0] = 0.0
    for row in range(1, rows):
        parent = parents[row - 1] + 1
        depths[row] = depths[parent] + 1
        for column in range(parent + 1):
            mask[row, column] = mask[parent, column]
        mask[row, row] = 0.0
    return depths, mask
