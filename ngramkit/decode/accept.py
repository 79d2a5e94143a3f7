"""Acceptance: which tokens of a draft the model would have written itself.

One rule for greedy and sampled text: beginning at the root, the next token is chosen from the
model's logits as it would be without a draft, and a child of the draft tree is accepted where it
holds that token. So drafts cannot change what is written. Greedy text takes the likeliest token
(`Greedy`), sampled text draws one (`Sampled`) with one random number per written token, which makes
a seed give the same text with and without drafts; inside transformers its logits processors decide
(`Processed`).

A choice may be asked for evidence too: the likeliest tokens of every row of a pass, accepted or
not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.drafters.base import TOPS, DraftTree

if TYPE_CHECKING:
    import torch

    from ngramkit.decode.base import Choose, Tops


def accept(tree: DraftTree, choose: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return the accepted nodes, a path from the root, and the tokens written: theirs and one more.

    `choose` is called along that path: choose(0) gives the token after the root, choose(i + 1) the
    one after node i.

    [7, 8, 9] with parents [-1, 0, -1], and 7, 8, 5 are chosen -> [0, 1], [7, 8, 5].
    """
    pairs = zip(tree.parents.tolist(), tree.token_ids.tolist(), strict=True)
    children = {pair: node for node, pair in enumerate(pairs)}
    nodes: list[int] = []
    tokens: list[int] = []
    node = -1
    while True:
        token = choose(node + 1)
        tokens.append(token)
        child = children.get((node, token))
        if child is None:
            return nodes, tokens
        nodes.append(child)
        node = child


class Greedy:
    """The likeliest token, of every row of a pass in one reduction."""

    def read(self, logits: torch.Tensor) -> Choose:
        best: list[int] = logits.argmax(-1).tolist()
        return best.__getitem__

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        best, tops = best_and_tops(logits)
        return best.__getitem__, tops


class Sampled:
    """A draw from the distribution that `warpers`, transformers' logits processors, leave."""

    def __init__(self, warpers: Sequence[Any], seed: int) -> None:
        self._warpers = warpers
        self._random = np.random.default_rng(seed)

    def read(self, logits: torch.Tensor) -> Choose:
        return lambda row: self._draw(logits[row : row + 1])

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]

    def _draw(self, logits: torch.Tensor) -> int:
        import torch

        scores = logits.float()
        for warper in self._warpers:
            scores = warper(None, scores)
        cumulative = scores[0].softmax(-1).double().cumsum(-1)
        point = self._random.random() * cumulative[-1:]
        # Right of an equal entry: a token of probability 0 is never drawn.
        return int(torch.searchsorted(cumulative, point, right=True).clamp_max(len(cumulative) - 1))


class Processed:
    """A choice through transformers' logits processors: the likeliest token or, where it `draws`,
    one by torch's own generator, so that torch.manual_seed gives the same text.

    `processors` is a LogitsProcessorList, `ids` what it is shown as the prompt, int64[n]. It may
    depend on all tokens so far and may keep state, so it is called as without drafts: once per
    written token, in order.
    """

    def __init__(self, processors: Any, ids: torch.Tensor, *, draws: bool) -> None:
        self._processors, self._draws = processors, draws
        self._ids = ids[None]  # with what was written so far

    def read(self, logits: torch.Tensor) -> Choose:
        import torch

        def choose(row: int) -> int:
            ids = self._ids
            scores = logits[row : row + 1].to(ids.device, torch.float32, copy=True)
            scores = self._processors(ids, scores)
            if self._draws:
                token = torch.multinomial(scores.softmax(-1), 1)
            else:
                token = scores.argmax(-1, keepdim=True)
            self._ids = torch.cat([ids, token], -1)
            return int(token)

        return choose

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]


def best_and_tops(logits: torch.Tensor, count: int = TOPS) -> tuple[list[int], Tops]:
    """Return the argmax of every row of logits [rows, V], and its `count` likeliest tokens.

    Whole numbers and floats come to the host in one copy. The argmax is taken by itself: of equal
    logits, topk may put another first.
    """
    import torch

    from ngramkit.decode.base import Tops

    count = min(count, logits.shape[-1])
    values, ids = logits.topk(count, -1)
    log_probs = values.float() - logits.float().logsumexp(-1, keepdim=True)
    whole = torch.cat([logits.argmax(-1, keepdim=True), ids], -1).to(torch.int32)
    packed = torch.cat([whole, log_probs.view(torch.int32)], -1).cpu().numpy()
    tops = Tops(packed[:, 1 : count + 1], packed[:, count + 1 :].view(np.float32))
    return packed[:, 0].tolist(), tops
