"""Documents of random ids, the same every time."""

from __future__ import annotations

import numpy as np


def random_documents(*, vocabulary, documents, longest, seed=0):
    draw = np.random.default_rng(seed)
    return [
        draw.integers(0, vocabulary, draw.integers(0, longest + 1)).tolist()
        for _ in range(documents)
    ]
