"""Sampling: the choice of the next token from the model's logits.

`Sampling` are the options. `Greedy` takes the likeliest token, `Sampled` draws one with one random
number per written token, which makes a seed give the same text with and without drafts; inside
transformers its logits processors decide (`Processed`). A choice may be asked for evidence too: the
likeliest tokens of every row of a pass, accepted or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.errors import UsageError, require_between
from ngramkit.basics.public import require_plain
from ngramkit.drafters.base import TOPS

if TYPE_CHECKING:
    import torch

    from ngramkit.decode.base import Choice, Choose, Tops

MOST_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 are off. Raises UsageError on nonsense."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_plain(self)
        require_between("temperature", self.temperature, 0, 1000, "0 is greedy, 1 the model's own")
        if not 0 < self.top_p <= 1:
            raise UsageError(
                f"top_p must be above 0 and at most 1, is {self.top_p}", option="top_p"
            )
        require_between("top_k", self.top_k, 0)
        require_between("seed", self.seed, 0, MOST_SEED)
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise UsageError(
                "top_k and top_p need sampling",
                "add temperature=1",
                option=("top_k", "top_p", "temperature"),
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def choice(self) -> Choice:
        """Return how one request's tokens are chosen; its random numbers are its own."""
        return Greedy() if self.greedy else Sampled(self.warpers(), self.seed)

    def warpers(self) -> list[Any]:
        """Return temperature, top-k and top-p as transformers' logits processors, in its order."""
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        warpers: list[Any] = [TemperatureLogitsWarper(self.temperature)]
        if self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            warpers.append(TopPLogitsWarper(self.top_p))
        return warpers


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

    Whole numbers and floats come to the host in one copy. Of equal logits, topk may put another
    first than argmax, which costs a pass over all of them and is asked only then.
    """
    import torch

    from ngramkit.decode.base import Tops

    count = min(count, logits.shape[-1])
    values, ids = logits.topk(count, -1)
    values = values.float()
    # softmax is half as dear as logsumexp, and the likeliest token's does not underflow.
    first = logits.softmax(-1, dtype=torch.float32).gather(-1, ids[:, :1]).log()
    log_probs = values - values[:, :1] + first
    packed = torch.cat([ids.to(torch.int32), log_probs.view(torch.int32)], -1).cpu().numpy()
    tops = Tops(packed[:, :count], packed[:, count:].view(np.float32))
    leads = tops.log_probs[:, :1] > tops.log_probs[:, 1:2]
    return (tops.ids[:, 0] if leads.all() else logits.argmax(-1)).tolist(), tops
