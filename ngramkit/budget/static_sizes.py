"""The sizes in which the static engine runs passes.

Knows no torch: what compiles budgets' kernels before a model is loaded asks here.
"""

from __future__ import annotations

SIZES = (0, 8, 16, 32, 64, 96)  # draft nodes
STEP = 32  # above


def padded(nodes: int) -> int:
    """Return the size in which a draft of so many nodes is verified."""
    if nodes > SIZES[-1]:
        return -(-nodes // STEP) * STEP
    return next(size for size in SIZES if size >= nodes)
