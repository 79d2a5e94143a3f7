"""Leakage: answers that a datastore's corpus contains verbatim inflate its figures.

An answer's n-grams of WINDOW_TOKENS tokens are searched; independent prose shares almost none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.basics.progress import Reporter
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


def _is_leaked(record: Record, shards: Sequence[Array]) -> bool:
    return any(leaked_share(turn.answer, shards) > LEAKED_SHARE for turn in record.turns)


@dataclass(frozen=True)
class Leakage:
    records: int  # replayed
    leaked: int
    dropped: bool


def without_leaks(
    records: list[Record], choices: list[DrafterChoice], drop: bool, reporter: Reporter
) -> tuple[list[Record], Leakage]:
    """Report leaked records, and remove them if `drop`."""
    from ngramkit.kernels.suffix.search import shard_table

    datastores = {a.path: a for c in choices for a in c.artifacts.get("datastores", [])}
    shards = [row for _, each in sorted(datastores.items()) for row in shard_table(each.shards)]
    flags = [_is_leaked(record, shards) for record in records]
    count = sum(flags)
    if count:
        done = "left out" if drop else "they flatter the figures; drop_leaked leaves them out"
        reporter.note(
            f"warning: {count} of {len(records)} answers occur verbatim in a datastore's corpus "
            f"({count / len(records):.1%}): {done}"
        )
    if drop:
        records = [record for record, flag in zip(records, flags, strict=True) if not flag]
        if not records:
            raise InputError(
                "cannot replay: a datastore contains every answer",
                "Use other answers or another datastore.",
            )
    return records, Leakage(len(records), count, drop)
