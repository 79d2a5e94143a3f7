"""The static engine against the eager one, pass by pass: what it proves before it is believed.

Both read the same prompt and verify the same drafts. Every size of pass comes twice with other
tokens, so that what was recorded is replayed on inputs that it has not seen. Compared are logits,
the keys and values of what was accepted, and seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ngramkit.decode.load import device_facts, software_facts
from ngramkit.decode.probe import path_of, spread_tokens, tolerance_of, tree_of
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.results import Tabular

PROMPT = 24  # tokens
# Siblings, nodes in a chain under the last of them, and how many nodes of that path are kept.
DRAFTS = ((0, 0, 0), (2, 6, 4), (8, 16, 3), (0, 0, 0), (3, 4, 2), (12, 10, 5))
TIMED = 3  # times that each pass is run for its seconds
SLOWER = 1.1  # so many times the eager engine's seconds are no gain


@dataclass(frozen=True)
class Compared:
    """A pass: the largest differences of a logits row and of a kept token's keys and values, as
    shares of their own size, and the best seconds of each engine."""

    nodes: int
    context: int
    logits: float
    kept: float
    eager_seconds: float
    static_seconds: float


@dataclass(frozen=True, repr=False)
class SelfCheck(Tabular):
    """What came of it; `error` is what stopped it, empty where nothing did."""

    model: str
    device: str
    dtype: str
    software: dict[str, str]
    tolerance: float
    passes: list[Compared]
    error: str = ""

    @property
    def fault(self) -> str:
        """Why the static engine is not to be used, empty where it is right."""
        if self.error:
            return f"fails in passes of fixed shape ({self.error})"
        worst = max(self.passes, key=lambda each: max(each.logits, each.kept))
        if max(worst.logits, worst.kept) <= self.tolerance:
            return ""
        what = "logits" if worst.logits > self.tolerance else "keys and values"
        return (
            "writes something else in passes of fixed shape "
            f"({what} of {worst.nodes} nodes are off by {max(worst.logits, worst.kept):.2g})"
        )

    @property
    def gain(self) -> float:
        """The eager engine's seconds for all passes over the static one's."""
        static = sum(each.static_seconds for each in self.passes)
        return sum(each.eager_seconds for each in self.passes) / static if static else 0.0

    @property
    def pays(self) -> bool:
        return self.gain * SLOWER >= 1

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(each) for each in self.passes]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `ngramkit bench --self-check --json` prints them."""
        return {**asdict(self), "fault": self.fault, "gain": self.gain}

    def __repr__(self) -> str:
        found = self.fault or f"right, {self.gain:.2f} times the eager engine's speed"
        return f"<SelfCheck of {self.model}: {found}>"


def check_static(model: Any, name: str = "") -> SelfCheck:
    """Of a transformers model. Running out of memory is raised; any other error of a pass
    is part of what was found."""
    found: list[Compared] = []
    error = ""
    try:
        with torch.inference_mode():
            found.extend(_compared(model))
    except torch.OutOfMemoryError:
        raise
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}".partition("\n")[0][:200]
    facts = device_facts(model)
    name = name or model.config.model_type
    return SelfCheck(
        name, facts["device"], facts["dtype"], software_facts(), tolerance_of(model), found, error
    )


def _compared(model: Any) -> Iterator[Compared]:
    tokens = spread_tokens(model)
    prompt = np.array([next(tokens) for _ in range(PROMPT)], np.int32)
    room = PROMPT + sum(sum(draft) + 1 for draft in DRAFTS)
    eager, static = TreeVerifier(model, room=room), StaticVerifier(model, room=room)
    for each in (eager, static):
        each.prefill(prompt)
    for siblings, chain, kept in DRAFTS:
        root, tree = next(tokens), tree_of(tokens, siblings, chain)
        before = eager.length
        right, eager_seconds = _timed(eager, root, tree)
        found, static_seconds = _timed(static, root, tree)
        logits = _difference(found, right)
        path = path_of(siblings, chain)[:kept]
        for each in (eager, static):
            each.keep(path)
        accepted = max(map(_difference, static.held(before), eager.held(before)))
        yield Compared(len(tree), before, logits, accepted, eager_seconds, static_seconds)


def _timed(verifier: Any, root: int, tree: Any) -> tuple[torch.Tensor, float]:
    """Logits of the last of some runs, and the seconds of the best; nothing is kept of them."""
    best = float("inf")
    for _ in range(TIMED):
        started = time.perf_counter()
        logits = verifier.verify(root, tree)
        logits.argmax(-1).tolist()  # until the tokens are on the host
        best = min(best, time.perf_counter() - started)
    return logits.clone(), best


def _difference(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest of any row, as a share of how far that row's own numbers lie apart."""
    right, found = right.float().flatten(1), found.float().flatten(1)
    spread = (right - right.mean(-1, keepdim=True)).norm(dim=-1)
    off = (found - right).norm(dim=-1) / spread.clamp_min(torch.finfo(torch.float32).tiny)
    return float(off.nan_to_num(float("inf")).max())
