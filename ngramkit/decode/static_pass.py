"""A pass whose shape is fixed: everything that differs from pass to pass is in one tensor.

`packed` int64[1 + 2 * rows] on the device: the tokens in the cache, then every row's token, then
every row's parent (a row). The root and the rows that only fill up are their own parents, so they
see the accepted tokens and themselves. Positions, ancestors, masks and cache columns are computed
from it on the device. Nothing here may wait for the device, or depend on a number that another
pass would have different: that is what makes a pass recordable.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ngramkit.budget.static_sizes import padded
from ngramkit.decode.masks import FULL, SLIDING, attention_kinds
from ngramkit.drafters.base import DraftTree


class Columns(Protocol):
    """A cache that is told where a pass writes, int64[rows], and how many columns it reads."""

    at: torch.Tensor
    reach: int


def packed(length: int, root: int, tree: DraftTree) -> npt.NDArray[np.int64]:
    """What a pass is told of, see above."""
    rows, end = padded(len(tree)) + 1, len(tree) + 1
    whole = np.empty(1 + 2 * rows, np.int64)
    whole[0] = length
    tokens, parents = whole[1 : 1 + rows], whole[1 + rows :]
    tokens[0], tokens[1:end], tokens[end:] = root, tree.token_ids, root
    parents[:] = np.arange(rows)
    parents[1:end] = tree.parents + 1
    return whole


class StaticPass:
    """The passes of one model; raises InputError where its layers admit no mask."""

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self._model = model
        self._window: int | None = getattr(config, "sliding_window", None)
        self._kinds = attention_kinds(config, self._window)
        self._dtype = model.dtype

    def run(self, cache: Columns, packed: torch.Tensor, reach: int) -> torch.Tensor:
        """Logits [rows, V]. Reads the cache's first `reach` columns, length + rows at least."""
        rows = (len(packed) - 1) // 2
        length, tokens, parents = torch.split(packed, [1, rows, rows])
        seen = ancestors(parents)
        positions = length + seen.sum(-1) - 1
        cache.at = length + torch.arange(rows, device=packed.device)
        cache.reach = reach
        output = self._model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=self._masks(length, seen, positions, reach),
            past_key_values=cache,
            use_cache=True,
        )
        logits: torch.Tensor = output.logits[0]
        return logits

    def _masks(
        self, length: torch.Tensor, seen: torch.Tensor, positions: torch.Tensor, reach: int
    ) -> Any:
        """[1, 1, rows, reach]; a model that mixes layer types gets one for each."""
        columns = torch.arange(reach, device=seen.device)
        row = (columns - length).clamp(0, len(seen) - 1)  # of the pass, that lies in the column
        accepted = columns < length
        own = (columns >= length) & (columns < length + len(seen))
        full = accepted | (seen.index_select(1, row) & own)
        masks = {FULL: self._additive(full)}
        if SLIDING in self._kinds:
            masks[SLIDING] = masks[FULL]
            if self._window is not None and reach > self._window:
                at = torch.where(accepted, columns, positions.index_select(0, row))
                near = at > positions[:, None] - self._window
                masks[SLIDING] = self._additive(full & near)
        return masks if len(self._kinds) > 1 else masks[self._kinds[0]]

    def _additive(self, seen: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(self._dtype).min)[None, None]


def ancestors(parents: torch.Tensor) -> torch.Tensor:
    """int64[rows] -> bool[rows, rows]: is the column's row the row itself or an ancestor of it?

    After k rounds every row knows its ancestors less than 2^k steps up.
    [0, 0, 1, 3] -> row 2 sees 0, 1 and 2, row 3 itself.
    """
    seen = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
    for _ in range((len(parents) - 1).bit_length()):
        seen = seen | seen.index_select(0, parents)
        parents = parents.index_select(0, parents)
    return seen
