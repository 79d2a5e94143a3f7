"""Tokens chosen through transformers' logits processors, one row of a pass at a time.

A processor may depend on all tokens before it and may keep state, so it is called exactly as
without drafts: once per written token, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ngramkit.decode.base import Choice, Choose, Tops
from ngramkit.decode.tops import best_and_tops

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
