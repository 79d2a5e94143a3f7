"""Kind `frozen-table`: a corpus's most frequent leaders, each with its most frequent followers.

A leader is an n-gram of LL tokens, a follower one of FL tokens after it (Cacheback, Ma, Gim and
Zhong, 2025, arXiv:2511.21699). Every LL + FL consecutive tokens inside a document are one
occurrence of both. So the counts of a leader's followers add up to at most the leader's.

One file, `table.safetensors`:

    leaders           u16 or u32 [L, LL]   sorted by token ids, each once
    leader_counts     u32 or u64 [L]       occurrences of the leader
    follower_offsets  u64 [L + 1]          leader i has followers [offsets[i], offsets[i + 1])
    followers         u16 or u32 [F, FL]   per leader: count descending, then token ids ascending
    follower_counts   u32 or u64 [F]       occurrences of leader and follower

Ids are u16 up to 65,535 tokens in the vocabulary; counts u32 unless one reaches 2^32.
LL=1, FL=2 over the document [1 2 3 1 2 3 1 2 4]:

    leaders [1] [2] [3]   leader_counts 3 2 2   follower_offsets 0 2 3 4
    followers [2 3] [2 4] [3 1] [1 2]           follower_counts 2 1 2 2

`parameters`: leader_len, leaders (the most that were kept), follower_len, followers (the most per
leader), eos (false if documents were tokenised without one). `counts`: documents and tokens of the
corpus, leaders, followers.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from ngramkit.basics.limits import LIMITS
from ngramkit.formats.artifact import (
    IDS,
    TABLE as TABLE,
    Layout,
    TableArtifact,
    ValueCheck,
    require,
)
from ngramkit.formats.safetensors import Array

CHECKED_LEADERS = 1 << 16  # leaders per block of a check
# Faults by the number that kernels.frozen_checks returns.
ROW_BREACHES = (
    "", "an id is outside the vocabulary", "leaders are not sorted", "a follower has no count",
    "followers outnumber it", "followers are not in order", "a follower occurs twice",
)  # fmt: skip
CHECKED_PROPERTIES = [
    "follower offsets",
    "ids inside the vocabulary",
    "leaders sorted, each once; counts add up",
    "followers by count, then by ids, each once",
]


class FrozenTable(TableArtifact):
    kind = "frozen-table"
    layout: ClassVar[Layout] = {
        "leaders": (IDS, 2),
        "leader_counts": (("uint32", "uint64"), 1),
        "follower_offsets": (("uint64",), 1),
        "followers": (IDS, 2),
        "follower_counts": (("uint32", "uint64"), 1),
    }
    leaders: Array  # uint16 | uint32 [L, leader_len], sorted
    leader_counts: Array  # uint32 | uint64 [L]
    follower_offsets: Array  # uint64 [L + 1], in followers
    followers: Array  # uint16 | uint32 [F, follower_len]
    follower_counts: Array  # uint32 | uint64 [F]

    def require_lengths(self, arrays: Mapping[str, Array]) -> None:
        path, leaders, followers = self.path / TABLE, arrays["leaders"], arrays["followers"]
        lengths = (leaders.shape[1], followers.shape[1])
        require(lengths == (self.leader_len, self.follower_len), path, "wrong n-gram lengths")
        for name, length in (
            ("leader_counts", len(leaders)),
            ("follower_offsets", len(leaders) + 1),
            ("follower_counts", len(followers)),
        ):
            require(len(arrays[name]) == length, path, f"wrong number of {name}")

    @property
    def leader_len(self) -> int:
        return self.parameter("leader_len")

    @property
    def follower_len(self) -> int:
        return self.parameter("follower_len")

    def find(self, leader: Sequence[int] | Array) -> int:
        """Return the leader's row, or -1."""
        wanted, rows = tuple(int(token) for token in leader), self.leaders
        row = bisect_left(range(len(rows)), wanted, key=lambda i: tuple(rows[i].tolist()))
        return row if row < len(rows) and tuple(rows[row].tolist()) == wanted else -1

    def lookup(self, leader: Sequence[int] | Array) -> slice:
        """Return the rows of the leader's followers, most frequent first."""
        row = self.find(leader)
        if row < 0:
            return slice(0, 0)
        return slice(int(self.follower_offsets[row]), int(self.follower_offsets[row + 1]))

    def value_checks(self) -> list[ValueCheck]:
        ranges = range(0, max(len(self.leaders), 1), CHECKED_LEADERS)
        self._check_offsets()
        return [
            lambda: CHECKED_PROPERTIES,
            *(partial(self._check_leaders, begin, begin + CHECKED_LEADERS) for begin in ranges),
            self._check_counts,
        ]

    def _check_offsets(self) -> None:
        path, offsets = self.path / TABLE, self.follower_offsets
        require(offsets[0] == 0, path, "follower offsets must begin at 0")
        require(np.all(offsets[:-1] < offsets[1:]), path, "follower offsets must rise")
        count = len(self.followers)
        require(offsets[-1] == count, path, f"follower offsets must end at {count:,}")
        most, allowed = int(np.diff(offsets).max(initial=0)), self.parameter("followers")
        require(most <= allowed, path, f"a leader has {most} followers, more than {allowed}")
        for name in ("leader_counts", "follower_counts"):
            highest = int(self.table[name].max(initial=0))
            require(highest <= LIMITS.windows, path, f"{name} go up to {highest:,}")
        total = float(self.leader_counts.sum(dtype=np.float64))
        require(total <= LIMITS.windows, path, f"its leaders were counted {total:,.0f} times")

    def _check_leaders(self, begin: int, end: int) -> list[str]:
        from ngramkit.kernels.frozen_checks import first_bad_leader

        row, bad = first_bad_leader(
            begin,
            min(end, len(self.leaders)),
            self.tokenizer.vocabulary,
            self.leaders,
            self.leader_counts,
            self.follower_offsets.view(np.int64),
            self.followers,
            self.follower_counts,
            secrets.randbits(62) | 1,
        )
        require(row < 0, self.path / TABLE, f"leader {row:,}: {ROW_BREACHES[bad]}")
        return []

    def _check_counts(self) -> list[str]:
        counts = {"leaders": len(self.leaders), "followers": len(self.followers)}
        listed = {name: self.manifest.counts.get(name) for name in counts}
        require(counts == listed, self.path, f"it holds {counts}, not {listed} as listed")
        return ["counts"]
