"""The choice of the next token from logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngramkit.basics.arguments import check_fields
from ngramkit.basics.errors import InputError, UsageError, require_between
from ngramkit.drafters.base import MAX_EVIDENCE_TOKENS

if TYPE_CHECKING:
    import torch

    from ngramkit.decode.base import Choose, Tops

    Draw = Callable[[torch.Tensor], torch.Tensor]

MAX_SEED = (1 << 64) - 1
MIN_TEMPERATURE = 1e-5  # logits overflow when divided by less; greedy below
SOFTMAX_ERROR = 5e-7  # of a cumulative probability in float32


@dataclass(frozen=True)
class Sampling:
    """Sampling settings: temperature 0 is greedy; top_k 0 and top_p 1 are off.

    Raises UsageError for invalid values. Temperatures below 1e-5 are greedy, too.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        require_between("temperature", self.temperature, 0, 1000, "0 is greedy, 1 the model's own")
        if not 0 < self.top_p <= 1:
            raise UsageError(
                f"top_p must be above 0 and at most 1, got {self.top_p}", option="top_p"
            )
        require_between("top_k", self.top_k, 0)
        require_between("seed", self.seed, 0, MAX_SEED)
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise UsageError(
                "cannot use top_k or top_p without sampling",
                "Add temperature=1.",
                option=("top_k", "top_p", "temperature"),
            )

    @property
    def greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE


class GreedyChoice:
    def read(self, logits: torch.Tensor) -> Choose:
        best = logits.argmax(-1, keepdim=True)
        tokens: list[int] = best[:, 0].tolist()
        scores: list[float] = logits.gather(-1, best).flatten().tolist()
        if not math.isnan(sum(scores)):
            return tokens.__getitem__

        def choose(row: int) -> int:  # unused rows may be NaN
            if math.isnan(scores[row]):
                raise _not_numbers()
            return tokens[row]

        return choose

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return best_and_tops(logits)


class ProcessedChoice:
    """A choice by transformers' logits processors, as in `generate`.

    `ids`: the prompt, int64[1, n]; `draw`: float32[1, V] -> token. Processors may keep state, so
    they are called once per written token, in order.
    """

    def __init__(self, processors: Any, ids: torch.Tensor, draw: Draw) -> None:
        self._processors, self._draw = processors, draw
        self._ids = ids  # the prompt and all new tokens

    def read(self, logits: torch.Tensor) -> Choose:
        import torch

        def choose(row: int) -> int:
            ids = self._ids
            scores = logits[row : row + 1].to(ids.device, torch.float32, copy=True)
            token = self._draw(self._processors(ids, scores))
            self._ids = torch.cat([ids, token[:, None]], -1)
            return int(token)

        return choose

    def read_with_tops(self, logits: torch.Tensor) -> tuple[Choose, Tops]:
        return self.read(logits), best_and_tops(logits)[1]


# Draws: scores float32[rows, V] -> tokens int64[rows].


def likeliest_tokens(scores: torch.Tensor) -> torch.Tensor:
    tokens = scores.argmax(-1)
    _require_numbers(scores.gather(-1, tokens[:, None]))
    return tokens


def draw_as_generate(scores: torch.Tensor) -> torch.Tensor:
    """Draw with torch's global generator, as `generate` does."""
    import torch

    shares = scores.softmax(-1)
    _require_numbers(shares)
    return torch.multinomial(shares, 1)[:, 0]


class SeededDraw:
    """One random number per token: a seed gives the same text with and without drafts."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def draw(self, scores: torch.Tensor) -> torch.Tensor:
        import torch

        cumulative = scores.softmax(-1).double().cumsum(-1)
        _require_numbers(cumulative[:, -1])
        point = self._random.random() * cumulative[:, -1:]
        # right=True: a token of probability 0 is never drawn.
        tokens = torch.searchsorted(cumulative, point, right=True)
        return tokens[:, 0].clamp_max(cumulative.shape[-1] - 1)


def distances_to_draw(scores: torch.Tensor, seed: int, index: int) -> torch.Tensor:
    """Return by how much all scores must change until each token is token `index`, float64[V].

    `scores`: float32[V]. 0: SeededDraw draws it, or another softmax in float32 could. Tokens are
    drawn by their cumulative probability; scores that all rise or fall by d change its log-odds by
    2 d at most.
    """
    ends = scores.softmax(-1).double().cumsum(-1)
    ends /= ends[-1].clone()
    starts = ends.roll(1)
    starts[0] = 0.0
    point = ends.new_tensor(np.random.default_rng(seed).random(index + 1)[-1])
    gap = (starts - point).maximum(point - ends)
    odds = (starts.logit() - point.logit()).maximum(point.logit() - ends.logit())
    return odds.where(gap > SOFTMAX_ERROR, 0.0) / 2


def _require_numbers(scores: torch.Tensor) -> None:
    if scores.isnan().any():
        raise _not_numbers()


def _not_numbers() -> InputError:
    return InputError(
        "cannot choose a token: the model's scores are NaN",
        "Load the model with dtype float32, or check its weights.",
        option="dtype",
    )


def best_and_tops(logits: torch.Tensor, count: int = MAX_EVIDENCE_TOKENS) -> tuple[Choose, Tops]:
    """Return the argmax of logits [rows, V] and each row's `count` likeliest tokens.

    topk may order ties differently; argmax costs a pass and runs only for ties and NaN.
    """
    import torch

    from ngramkit.decode.base import Tops

    count = min(count, logits.shape[-1])
    values, ids = logits.topk(count, -1)
    values = values.float()
    # softmax costs half of logsumexp, and the likeliest token's does not underflow.
    first = logits.softmax(-1, dtype=torch.float32).gather(-1, ids[:, :1]).log()
    log_probs = values - values[:, :1] + first
    packed = torch.cat([ids.to(torch.int32), log_probs.view(torch.int32)], -1).cpu().numpy()
    tops = Tops(packed[:, :count], packed[:, count:].view(np.float32))
    leads = tops.log_probs[:, :1] > tops.log_probs[:, 1:2]
    if not leads.all():
        return GreedyChoice().read(logits), tops
    best: list[int] = tops.ids[:, 0].tolist()
    return best.__getitem__, tops
