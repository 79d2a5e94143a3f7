"""Recorded answers that stand verbatim in a corpus would flatter every drafter built from it.

An answer's n-grams of WINDOW tokens are looked up in the datastore's suffix arrays; prose that
nobody copied shares almost none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngramkit.choose import DrafterChoice
from ngramkit.drafters.base import TokenArray
from ngramkit.errors import InputError
from ngramkit.evaluate.records import Record
from ngramkit.formats.container import Array
from ngramkit.formats.datastore import Datastore, search_table
from ngramkit.kernels.suffix.search import look_up
from ngramkit.progress import Reporter

WINDOW = 32  # tokens
STRIDE = 8
LEAKED = 0.5  # of an answer's windows


def leaked_share(answer: TokenArray, datastores: Sequence[Datastore]) -> float:
    """Share of the answer's windows that some datastore holds; 0 where it is shorter than one."""
    begins = range(0, len(answer) - WINDOW + 1, STRIDE)
    if not len(begins):
        return 0.0
    tables = [search_table(datastore.shards) for datastore in datastores]
    found = sum(_held(answer[begin : begin + WINDOW], tables) for begin in begins)
    return found / len(begins)


def leaked(records: Sequence[Record], datastores: Sequence[Datastore]) -> list[bool]:
    """Per record: does more than half of one of its answers stand in a datastore?"""
    return [
        any(leaked_share(turn.answer, datastores) > LEAKED for turn in record.turns)
        for record in records
    ]


def _held(window: TokenArray, tables: Sequence[Array]) -> bool:
    pattern = window.astype(np.int32)
    for table in tables:
        for shard in table:
            low, high = look_up(shard, pattern)
            if low < high:
                return True
    return False


@dataclass(frozen=True)
class Leakage:
    """How many records stand verbatim in a datastore's corpus, and whether they were left out."""

    records: int  # replayed
    leaked: int
    dropped: bool


def without_leaks(
    records: list[Record], choices: list[DrafterChoice], drop: bool, reporter: Reporter
) -> tuple[list[Record], Leakage]:
    """The records to replay; says what of them stands in a datastore."""
    datastores = {a.path: a for c in choices for a in c.artifacts.get("datastores", [])}
    flags = leaked(records, [datastores[path] for path in sorted(datastores)])
    found = sum(flags)
    if found:
        done = "left out" if drop else "they flatter the figures; drop_leaked=True leaves them out"
        reporter.note(
            f"warning: {found} of {len(records)} answers stand verbatim in a datastore's corpus "
            f"({found / len(records):.1%}): {done}"
        )
    if drop:
        records = [record for record, flag in zip(records, flags, strict=True) if not flag]
        if not records:
            raise InputError("every answer stands in a datastore", "nothing is left to replay")
    return records, Leakage(len(records), found, drop)
