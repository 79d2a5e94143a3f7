"""A few values in order. numba's own sorts take longer to compile than all that calls them."""

from __future__ import annotations

from ngramkit.kernels.jit import part


@part
def best_first(values, order):
    """Their places into `order`, the highest value first, of equal ones the first place. As fast
    as values are few, or nearly in order as they come."""
    for place in range(len(values)):
        at = place
        while at > 0 and values[order[at - 1]] < values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place
