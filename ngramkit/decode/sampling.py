"""How the next token is chosen from logits: the most likely one, or drawn.

A token is chosen by the same rule whether or not a draft guessed it, so drafts cannot change what
is written. Random numbers are used up one per written token, which makes a seed give the same text
with and without drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ngramkit.decode.base import Choice, Choose, Tops
from ngramkit.decode.tops import best_and_tops
from ngramkit.errors import UsageError, require_between


class Greedy:
    """The most likely token, at every row in one reduction."""

    def read(self, logits: torch.Tensor) -> Choose:
        best: list[int] = logits.argmax(-1).tolist()
        return best.__getitem__

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        best, tops = best_and_tops(logits)
        return best.__getitem__, tops


class Sampled:
    """A draw after temperature, top-k and top-p, in that order, as transformers applies them."""

    def __init__(self, options: Sampling) -> None:
        self._warpers = options.warpers()
        self._random = np.random.default_rng(options.seed)

    def read(self, logits: torch.Tensor) -> Choose:
        return lambda row: self._draw(logits[row : row + 1])

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]

    def _draw(self, logits: torch.Tensor) -> int:
        scores = logits.float()
        for warper in self._warpers:
            scores = warper(None, scores)
        cumulative = scores[0].softmax(-1).double().cumsum(-1)
        point = self._random.random() * cumulative[-1:]
        # Right of an equal entry: a token of probability 0 is never drawn.
        return int(torch.searchsorted(cumulative, point, right=True).clamp_max(len(cumulative) - 1))


MOST_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 are off. Raises UsageError on nonsense."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
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
        return Greedy() if self.greedy else Sampled(self)

    def warpers(self) -> list[Any]:
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        warpers: list[Any] = [TemperatureLogitsWarper(self.temperature)]
        if self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            warpers.append(TopPLogitsWarper(self.top_p))
        return warpers


GREEDY = Sampling()


# Tokens chosen through transformers' logits processors, one row of a pass at a time.
#
# A processor may depend on all tokens before it and may keep state, so it is called exactly as
# without drafts: once per written token, in order.

Pick = Callable[[torch.Tensor], torch.Tensor]


def likeliest(scores: torch.Tensor) -> torch.Tensor:
    return scores.argmax(-1, keepdim=True)


def drawn(scores: torch.Tensor) -> torch.Tensor:
    """As transformers draws: torch's generator, so that torch.manual_seed gives the same text."""
    return torch.multinomial(scores.softmax(-1), 1)


GREEDY_OR_SAMPLED: dict[bool, Pick] = {False: likeliest, True: drawn}


@dataclass(frozen=True)
class Processed:
    """`processors` is a LogitsProcessorList, `ids` what it is shown as the prompt, int64[n]."""

    processors: Any
    ids: torch.Tensor
    pick: Pick

    def choice(self) -> Choice:
        return ProcessedChoice(self)


class ProcessedChoice:
    def __init__(self, rule: Processed) -> None:
        self._rule = rule
        self._ids = rule.ids[None]  # with what was written so far

    def read(self, logits: torch.Tensor) -> Choose:
        def choose(row: int) -> int:
            ids = self._ids
            scores = logits[row : row + 1].to(ids.device, torch.float32, copy=True)
            token = self._rule.pick(self._rule.processors(ids, scores))
            self._ids = torch.cat([ids, token], -1)
            return int(token)

        return choose

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]
