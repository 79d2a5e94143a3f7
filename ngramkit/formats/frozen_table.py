"""Kind `frozen-table`: a corpus's most frequent leaders, each with its most frequent followers.

Cacheback (Ma, Gim and Zhong, 2025, arXiv:2511.21699) drafts from n-grams: a leader of LL tokens
and the follower of FL tokens after it. What is counted is windows: every LL + FL tokens in a row
inside one document are one occurrence of the leader and one of the follower after it. A leader so
near the end of its document that no whole follower fits is not counted. Hence the counts of all
followers of a leader add up to the leader's, and those that were kept to at most that.

One file, `table.safetensors`:

    leaders           u16 or u32 [L, LL]   sorted by token ids, each once
    leader_counts     u32 or u64 [L]       windows that begin with the leader
    follower_offsets  u64 [L + 1]          leader i has followers [offsets[i], offsets[i + 1])
    followers         u16 or u32 [F, FL]   per leader: count descending, then token ids ascending
    follower_counts   u32 or u64 [F]       windows that hold leader and follower

Ids are u16 up to 65,535 tokens in the vocabulary; counts u32 unless one reaches 2^32.
LL=1, FL=2 over the document [1 2 3 1 2 3 1 2 4] has the windows 1|23 twice, 1|24 once, and:

    leaders [1] [2] [3]   leader_counts 3 2 2   follower_offsets 0 2 3 4
    followers [2 3] [2 4] [3 1] [1 2]           follower_counts 2 1 2 2

`parameters`: leader_len, leaders (the most that were kept), follower_len, followers (the most per
leader). `counts`: documents and tokens of the corpus, leaders, followers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.artifact import Artifact, Layout, require, token_dtype
from ngramkit.formats.container import Array

TABLE = "table.safetensors"
LAYOUT: Layout = {
    "leaders": (("uint16", "uint32"), 2),
    "leader_counts": (("uint32", "uint64"), 1),
    "follower_offsets": (("uint64",), 1),
    "followers": (("uint16", "uint32"), 2),
    "follower_counts": (("uint32", "uint64"), 1),
}
BLOCK = 1 << 16  # rows checked at a time


class FrozenTable(Artifact):
    kind = "frozen-table"

    @cached_property
    def table(self) -> dict[str, Array]:
        """The five arrays. Raises ArtifactError where they do not fit each other or LL and FL."""
        arrays = self.arrays(TABLE, LAYOUT)
        path = self.path / TABLE
        leaders, followers = arrays["leaders"], arrays["followers"]
        lengths = (leaders.shape[1], followers.shape[1])
        require(lengths == (self.leader_len, self.follower_len), path, "wrong n-gram lengths")
        dtypes = {leaders.dtype, followers.dtype}
        require(dtypes == {token_dtype(self.tokenizer.vocabulary)}, path, "wrong token width")
        require(len(arrays["leader_counts"]) == len(leaders), path, "wrong number of leader counts")
        require(len(arrays["follower_offsets"]) == len(leaders) + 1, path, "offsets miss leaders")
        same = len(arrays["follower_counts"]) == len(followers)
        require(same, path, "wrong number of follower counts")
        return arrays

    @property
    def leader_len(self) -> int:
        return self._length("leader_len")

    @property
    def follower_len(self) -> int:
        return self._length("follower_len")

    @property
    def leaders(self) -> Array:
        """uint16 | uint32 [L, leader_len], sorted."""
        return self.table["leaders"]

    @property
    def leader_counts(self) -> Array:
        """uint32 | uint64 [L]."""
        return self.table["leader_counts"]

    @property
    def follower_offsets(self) -> Array:
        """uint64 [L + 1], in followers."""
        return self.table["follower_offsets"]

    @property
    def followers(self) -> Array:
        """uint16 | uint32 [F, follower_len]."""
        return self.table["followers"]

    @property
    def follower_counts(self) -> Array:
        """uint32 | uint64 [F]."""
        return self.table["follower_counts"]

    def find(self, leader: Sequence[int] | Array) -> int:
        """The row of a leader of `leader_len` tokens, -1 where it was not kept."""
        wanted, rows = tuple(int(token) for token in leader), self.leaders
        row = bisect_left(range(len(rows)), wanted, key=lambda i: tuple(rows[i].tolist()))
        return row if row < len(rows) and tuple(rows[row].tolist()) == wanted else -1

    def lookup(self, leader: Sequence[int] | Array) -> slice:
        """Where the leader's followers are in `followers`, most frequent first; maybe empty."""
        row = self.find(leader)
        if row < 0:
            return slice(0, 0)
        return slice(int(self.follower_offsets[row]), int(self.follower_offsets[row + 1]))

    def check(self) -> Iterator[str]:
        path = self.path / TABLE
        yield from self._check_rows()
        for name in ("leaders", "followers"):
            highest = int(self.table[name].max(initial=0))
            inside = highest < self.tokenizer.vocabulary
            require(inside, path, f"id {highest} is outside the vocabulary")
        yield "ids inside the vocabulary"
        for begin in range(0, len(self.leaders), BLOCK):
            self._check_leaders(begin, min(begin + BLOCK, len(self.leaders)))
        yield "leaders sorted, each once; counts add up"
        yield "followers by count, then by ids, each once"
        counts = {"leaders": len(self.leaders), "followers": len(self.followers)}
        listed = {name: self.manifest.counts.get(name) for name in counts}
        require(counts == listed, self.path, f"it holds {counts}, not {listed} as listed")
        yield "counts"

    def _check_rows(self) -> Iterator[str]:
        path, offsets = self.path / TABLE, self.follower_offsets
        require(offsets[0] == 0, path, "followers do not begin at 0")
        require(np.all(offsets[:-1] < offsets[1:]), path, "follower offsets do not rise")
        require(offsets[-1] == len(self.followers), path, "followers do not end at the end")
        most = int((offsets[1:] - offsets[:-1]).max(initial=0))
        allowed = self.manifest.parameters.get("followers", most)
        require(most <= allowed, path, f"a leader has {most} followers, more than {allowed}")
        yield "follower offsets"

    def _check_leaders(self, begin: int, end: int) -> None:
        """Everything about leaders [begin, end) and their followers."""
        path = self.path / TABLE
        rows = self.leaders[max(begin - 1, 0) : end]
        require(np.all(rises(rows)), path, "leaders are not sorted")
        offsets = self.follower_offsets[begin : end + 1].astype(np.int64)
        followers = self.followers[offsets[0] : offsets[-1]]
        counts = self.follower_counts[offsets[0] : offsets[-1]].astype(np.int64)
        require(np.all(counts > 0), path, "a follower has no count")
        sums = np.add.reduceat(counts, offsets[:-1] - offsets[0])
        require(np.all(sums <= self.leader_counts[begin:end]), path, "followers outnumber leaders")

        owner = np.repeat(np.arange(end - begin), np.diff(offsets))
        same = owner[1:] == owner[:-1]
        falls = (counts[1:] < counts[:-1]) | ((counts[1:] == counts[:-1]) & rises(followers))
        require(np.all(falls[same]), path, "followers are not in order")
        order = np.lexsort((*followers.T[::-1], owner))
        again = np.all(followers[order][1:] == followers[order][:-1], axis=1)
        again &= owner[order][1:] == owner[order][:-1]
        require(not again.any(), path, "a follower stands twice under one leader")

    def _length(self, name: str) -> int:
        length = self.manifest.parameters.get(name)
        if not isinstance(length, int) or length < 1:
            raise ArtifactError(f"{self.path} has no valid {name}", "build or pull it again")
        return length


def rises(rows: Array) -> Array:
    """bool[n - 1]: whether row i + 1 of [n, k] is lexicographically above row i."""
    above = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for column in range(rows.shape[1] - 1, -1, -1):
        left, right = rows[:-1, column], rows[1:, column]
        above = (left < right) | ((left == right) & above)
    return above
