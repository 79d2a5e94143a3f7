"""The result of decoding: tokens and times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ngramkit.drafters.base import TokenArray

if TYPE_CHECKING:
    from ngramkit.decode.specache.prefetching_cache import CacheFacts


@dataclass(frozen=True)
class Decoded:
    """One request's output. Times are wall-clock seconds.

    Pass i wrote `accepted_per_pass[i]` draft tokens and one of the model's own. The last pass
    counts only tokens before the end.
    """

    prompt_tokens: int
    token_ids: TokenArray  # int32[n], the new tokens with a final EOS
    accepted_per_pass: list[int]  # draft tokens written
    ended_by: str  # "eos", "stop", "length", "context" or "interrupt"
    seconds: float
    prefill_seconds: float
    draft_seconds: float
    verify_seconds: float
    nodes_per_pass: list[int] = field(default_factory=list)  # verified draft nodes
    declined_passes: int = 0  # passes whose drafts were not worth their time
    cache: CacheFacts | None = None  # of a SpeCache, if one was used

    @property
    def lossless(self) -> bool:
        """False with a SpeCache, which changes the text."""
        return self.cache is None

    @property
    def passes(self) -> int:
        """Verification passes, without the prefill."""
        return len(self.accepted_per_pass)

    @property
    def drafted_passes(self) -> int:
        return sum(nodes > 0 for nodes in self.nodes_per_pass)

    @property
    def nodes_per_draft(self) -> float:
        return sum(self.nodes_per_pass) / self.drafted_passes if self.drafted_passes else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens per pass, without the prefill's token."""
        return (len(self.token_ids) - 1) / self.passes if self.passes else 1.0

    @property
    def tokens_per_second(self) -> float:
        return len(self.token_ids) / self.seconds if self.seconds else 0.0

    @property
    def other_seconds(self) -> float:
        return self.seconds - self.prefill_seconds - self.draft_seconds - self.verify_seconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "token_ids": self.token_ids.tolist(),
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": len(self.token_ids),
            "passes": self.passes,
            "tokens_per_step": round(self.tokens_per_step, 4),
            "tokens_per_second": round(self.tokens_per_second, 3),
            "draft_seconds": round(self.draft_seconds, 6),
            "verify_seconds": round(self.verify_seconds, 6),
            "accepted_per_pass": self.accepted_per_pass,
            "nodes_per_pass": self.nodes_per_pass,
            "declined_passes": self.declined_passes,
            "ended_by": self.ended_by,
        }

    def same_tokens(self, other: Decoded) -> bool:
        return np.array_equal(self.token_ids, other.token_ids)


class Clock:
    """A timer of named laps, in wall-clock seconds and seconds of `work`."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.laps: dict[str, float] = {}  # wall-clock seconds by name
        self.work = time.perf_counter
        self._now = now
        self.resume()

    def lap(self, name: str) -> float:
        """End a lap and return its seconds of work."""
        last, worked = self._last, self._worked
        self.resume()
        self.laps[name] = self.laps.get(name, 0.0) + self._last - last
        return self._worked - worked

    def resume(self) -> None:
        self._last, self._worked = self._now(), self.work()

    @property
    def seconds(self) -> float:
        return sum(self.laps.values())


def work_clock(device: str) -> Callable[[], float]:
    """Return a clock for comparing passes.

    With one CPU thread it is processor time, which excludes other programs.
    """
    alone = device == "cpu" and torch.get_num_threads() == 1
    return time.thread_time if alone else time.perf_counter
