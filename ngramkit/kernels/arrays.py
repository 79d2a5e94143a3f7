"""What arrays are to type checkers, and the id that is no token. Imports no numba."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]  # comments and docstrings say which dtype and shape

NO_TOKEN = -1


# Where a node of a draft came from, by number: `drafters.base.Source` gives them their names.

DATASTORE, FROZEN, DYNAMIC, CONTEXT, MODEL, HISTORY, REFERENCE = range(7)
