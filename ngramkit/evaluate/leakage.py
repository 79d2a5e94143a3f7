"""Leakage: answers that a datastore or the history contains verbatim inflate the figures.

An answer's n-grams of WINDOW_TOKENS tokens are searched; independent prose shares almost none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.choose import DrafterChoice
from ngramkit.drafters.base import TokenArray
from ngramkit.evaluate.records import Record
from ngramkit.formats.safetensors import Array

WINDOW_TOKENS = 32  # tokens
WINDOW_STRIDE = 8  # tokens
LEAKED_SHARE = 0.5  # leaked: a larger share of an answer's windows


def leaked_share(answer: TokenArray, shards: Sequence[Array]) -> float:
    begins = range(0, len(answer) - WINDOW_TOKENS + 1, WINDOW_STRIDE)
    if not len(begins):
        return 0.0
    from ngramkit.kernels.suffix.search import find_from_python

    held = 0
    for begin in begins:
        window = answer[begin : begin + WINDOW_TOKENS].astype(np.int32)
        held += any(
            low < high for low, high in (find_from_python(shard, window) for shard in shards)
        )
    return held / len(begins)


@dataclass(frozen=True)
class Leakage:
    """`leaked` of `of` records are in `places`, the sources of drafts."""

    of: int
    leaked: int
    dropped: bool
    places: str  # "a datastore's corpus", "the history" or both

    @property
    def records(self) -> int:
        """The records that are replayed."""
        return self.of - self.leaked * self.dropped

    @property
    def note(self) -> str | None:
        """How many answers leaked, or None."""
        if not self.leaked:
            return None
        return (
            f"{self.leaked:,} of {counted(self.of, 'answer')} ({self.leaked / self.of:.1%}) "
            f"occur verbatim in {self.places}"
        )


def without_leaks(
    records: list[Record], choices: Sequence[DrafterChoice], drop: bool, reporter: Reporter
) -> tuple[list[Record], Leakage]:
    """Report leaked records, and remove them if `drop`."""
    from ngramkit.kernels.suffix.search import shard_table

    datastores = {a.path: a for c in choices for a in c.artifacts.get("datastores", [])}
    held = [shard for _, each in sorted(datastores.items()) for shard in each.shards]
    pasts = (choice.recorded_past for choice in choices)  # all share one history
    requests = next((past.shards.at_start for past in pasts if past is not None), ())
    held += requests
    places = ["a datastore's corpus"] * bool(datastores) + ["the history"] * bool(requests)
    shards = list(shard_table(held))
    flags = [
        any(leaked_share(turn.answer, shards) > LEAKED_SHARE for turn in record.turns)
        for record in records
    ]
    leakage = Leakage(len(records), sum(flags), drop, " or ".join(places))
    if leakage.note:
        done = "left out" if drop else "they flatter the figures; drop_leaked leaves them out"
        reporter.note(f"warning: {leakage.note}: {done}")
    if drop:
        records = [record for record, flag in zip(records, flags, strict=True) if not flag]
        if not records:
            raise InputError(
                f"cannot replay: every answer occurs in {leakage.places}",
                "Use other answers, or draft from other texts.",
            )
    return records, leakage
