"""Eviction: which past requests a history drops, and how its log is rewritten without them.

The log holds no times, so ages.json records how long the log was at certain times: its `generation`
and `ends`, a list of [seconds since the epoch, bytes]. Older files hold `requests` instead, a list
of [seconds since the epoch, number of requests].
"""

from __future__ import annotations

import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ngramkit.basics.errors import ArtifactError, require_between
from ngramkit.basics.untrusted import owner_only, read_json, whole_number
from ngramkit.formats.history import AGES, DAMAGED, INDEX, INDEXING, LOCK, STRAYS, History
from ngramkit.formats.replacing import hold_lock, replace_text
from ngramkit.formats.request_log import PastRequest, Reading


class Dropped(NamedTuple):
    requests: int
    damaged: int  # bytes that held no request


def drop_matching(history: History, wanted: Callable[[PastRequest], bool]) -> Dropped:
    """Drop the requests that are `wanted`, damaged bytes, and leftovers of killed processes."""
    with _locked_for_rewriting(history) as reading:
        aside = history.path / DAMAGED
        damaged = reading.damaged + (aside.stat().st_size if aside.exists() else 0)
        aside.unlink(missing_ok=True)
        stays = [not wanted(request) for request in reading.requests]
        return Dropped(_drop_requests(history, reading, stays), damaged)


def keep_newest_requests(history: History, tokens: int) -> Dropped:
    """Keep the newest whole requests of at most `tokens`; move damage to requests.damaged."""
    require_between("tokens", tokens, 0)
    with _locked_for_rewriting(history) as reading:
        first, room = len(reading.requests), tokens
        while first and len(reading.requests[first - 1].tokens) <= room:
            first -= 1
            room -= len(reading.requests[first].tokens)
        _append_damage(history.path / DAMAGED, reading.damage)
        stays = [i >= first for i in range(len(reading.requests))]
        return Dropped(_drop_requests(history, reading, stays), reading.damaged)


def keep_newest_half_if_larger(history: History, most: int) -> Dropped | None:
    """Trim a log of more than `most` bytes to half of that; None if it is smaller."""
    if history.bytes <= most:
        return None
    return keep_newest_requests(history, most // 2 // history.log.width.itemsize)


def drop_older_than(history: History, age: float, now: float) -> Dropped:
    """Drop the requests that were in the log `age` seconds before `now`, and note its end.

    A noted time after `now` (a clock was put back) counts as now.
    """
    with _locked_for_rewriting(history) as reading:
        noted = _noted_ages(history, reading)
        ages = [(min(at, now), end) for at, end in noted]
        if reading.ends and (not ages or ages[-1][1] < reading.ends[-1]):
            ages.append((now, reading.ends[-1]))
        if ages != noted:
            _write_ages(history, reading.mark.generation, ages)
        old = max((end for at, end in ages if at <= now - age), default=0)
        if not reading.ends or reading.ends[0] > old:
            return Dropped(0, 0)
        _append_damage(history.path / DAMAGED, reading.damage)
        stays = [end > old for end in reading.ends]
        return Dropped(_drop_requests(history, reading, stays), reading.damaged)


@contextmanager
def _locked_for_rewriting(history: History) -> Iterator[Reading]:
    with hold_lock(history.path / INDEXING), hold_lock(history.path / LOCK):
        for name in itertools.chain(*STRAYS.values()):
            (history.path / name).unlink(missing_ok=True)
        yield history.log.read()


def _drop_requests(history: History, reading: Reading, stays: Sequence[bool]) -> int:
    """Drop the requests that do not stay; return their number."""
    generation = reading.mark.generation
    left = list(itertools.compress(reading.requests, stays))
    kept = [
        (at, sum(stays[: bisect_right(reading.ends, end)]))
        for at, end in _noted_ages(history, reading)
    ]
    (history.path / INDEX).unlink(missing_ok=True)  # before the log, whose index it is
    history.log.create(left, generation + 1)
    if any(count for _, count in kept):
        ends = history.log.read().ends
        ages = [(at, ends[count - 1]) for at, count in kept if count]
        _write_ages(history, generation + 1, ages)
    return len(reading.requests) - len(left)


def _noted_ages(history: History, reading: Reading) -> list[tuple[float, int]]:
    """Return the noted (seconds since the epoch, end in bytes) of the log's generation."""
    try:
        body = read_json(history.path / AGES, strict=True)
        if body["generation"] != reading.mark.generation:
            return []
        if "ends" in body:
            return [(float(at), end) for at, end in body["ends"] if whole_number(end)]
        ends = [0, *reading.ends]
        counts = [(float(at), count) for at, count in body["requests"] if whole_number(count)]
        return [(at, ends[min(count, len(ends) - 1)]) for at, count in counts]
    except (OSError, ValueError, TypeError, KeyError, OverflowError, ArtifactError):
        return []  # requests are kept longer


def _write_ages(history: History, generation: int, ages: Sequence[tuple[float, int]]) -> None:
    body = {"generation": generation, "ends": ages}
    replace_text(history.path / AGES, json.dumps(body), owner_only)


def _append_damage(path: Path, damage: Sequence[bytes]) -> None:
    if any(damage):
        with open(path, "ab", opener=owner_only) as file:
            file.writelines(damage)
            file.flush()
            os.fsync(file.fileno())
