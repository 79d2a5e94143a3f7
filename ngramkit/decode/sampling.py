"""Sampling: temperature, top-k, top-p and seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngramkit.errors import UsageError, require_between

if TYPE_CHECKING:
    from ngramkit.decode.base import Choice

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
        """Return how one request's tokens are chosen; its random numbers are its own."""
        from ngramkit.decode.accept import Greedy, Sampled

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


GREEDY = Sampling()
