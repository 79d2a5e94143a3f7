"""A drafter whose drafts are known, for made-up engines."""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft


class Zeros(NoDraft):
    """A drafter of zeros with a probability of 0.8 each."""

    def draft(self, budget):
        parents = np.arange(-1, budget - 1, dtype=np.int32)
        scores = (0.8 ** np.arange(1, budget + 1)).astype(np.float32)
        return DraftTree(np.zeros(budget, np.int32), parents, scores, np.zeros(budget, np.uint8))
