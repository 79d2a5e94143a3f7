"""Arrays for type checkers, the id that is no token, and sources by number. Imports no numba."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]  # comments and docstrings say which dtype and shape

NO_TOKEN = -1


# The sources of draft nodes, which `drafters.base.Source` names.

DATASTORE, FROZEN, DYNAMIC, CONTEXT, MODEL, HISTORY, REFERENCE = range(7)
