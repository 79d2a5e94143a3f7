"""A drafter as a candidate generator of transformers' assisted generation.

Assisted generation verifies one line of tokens, not a tree: of a draft, the path is taken whose
accepted tokens are the most to be expected.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from transformers.generation.candidate_generator import CandidateGenerator

from ngramkit.drafters.base import Drafter, TokenArray
from ngramkit.drafters.references import Given as References, reference_texts, start
from ngramkit.kernels.tree import best_path


class NgramkitCandidates(CandidateGenerator):
    """The candidates of a drafter: at most `budget` tokens, ended before any of `eos` and one short
    of `max_length`.

    `references`, token ids, are what the text is likely to repeat. The drafter follows one text;
    input ids that do not continue it begin a new request.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        budget: int = 10,
        max_length: int | None = None,
        eos: Collection[int] = (),
        references: References = (),
    ) -> None:
        self._drafter = drafter
        self._budget = budget
        self._max_length = max_length
        self._eos = list(eos)
        self._references = reference_texts(references)
        self._seen = np.empty(0, np.int32)  # what the drafter was given

    def get_candidates(  # type: ignore[override]
        self, input_ids: torch.Tensor, **kwargs: object
    ) -> tuple[torch.Tensor, None]:
        """Draft behind input ids, int64[1, n] -> int64[1, n + m]. Returns no draft logits."""
        self._pass_on(input_ids[0].cpu().numpy().astype(np.int32))
        budget = self._budget
        if self._max_length is not None:
            budget = min(budget, self._max_length - input_ids.shape[-1] - 1)
        if budget < 1:
            return input_ids, None
        tree = self._drafter.draft(budget)
        path = tree.token_ids[best_path(tree.parents, tree.scores, budget, 0.0)]
        ends = np.flatnonzero(np.isin(path, self._eos))
        path = path[: ends[0]] if len(ends) else path
        return torch.cat([input_ids, torch.from_numpy(path).to(input_ids)[None]], -1), None

    def update_candidate_strategy(
        self, input_ids: torch.Tensor, scores: torch.Tensor, num_matches: int
    ) -> None:
        """Do nothing: what was accepted is in the next call's input ids."""

    def finish(self) -> None:
        """End the request; drafters that learn do it here."""
        if len(self._seen):
            self._drafter.finish()
            self._seen = self._seen[:0]

    def _pass_on(self, ids: TokenArray) -> None:
        seen = len(self._seen)
        if not seen or seen > len(ids) or not np.array_equal(ids[:seen], self._seen):
            self.finish()
            start(self._drafter, ids, self._references)
        elif len(ids) > seen:
            self._drafter.accept(ids[seen:])
        self._seen = ids
