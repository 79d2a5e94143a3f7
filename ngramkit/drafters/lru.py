"""Room for Cacheback's dynamic table: two pools that double as they fill, up to their capacity."""

from __future__ import annotations

import numpy as np

from ngramkit.kernels.lru import NONE, SIZE, USED, Pool, replace_all

SMALLEST = 256  # entries
ENTRIES = ("rows", "owners", "previous", "following")  # one value per entry
LISTS = ("newest", "oldest", "lengths")  # one value per owner


class Table:
    """`leader_pool` has one list of leaders, `follower_pool` a list per leader."""

    def __init__(self, leader_len: int, follower_len: int, leaders: int, followers: int) -> None:
        self._leaders, self._followers = leaders, followers
        self.leader_pool = _new_pool(leader_len, min(SMALLEST, leaders), 1)
        room = len(self.leader_pool.rows)
        self.follower_pool = _new_pool(follower_len, min(SMALLEST, room * followers), room)

    def make_room(self, windows: int) -> None:
        """Afterwards `windows` more entries fit into each pool, or all that may ever be."""
        self.leader_pool = _grown(self.leader_pool, windows, self._leaders, 1)
        owners = len(self.leader_pool.rows)
        most = self._leaders * self._followers
        self.follower_pool = _grown(self.follower_pool, windows, most, owners)


def _new_pool(length: int, room: int, owners: int) -> Pool:
    size = 1 << max(2 * room - 1, 1).bit_length()
    return Pool(
        rows=np.zeros((room, length), np.int32),
        owners=np.zeros(room, np.int32),
        previous=np.full(room, NONE, np.int32),
        following=np.full(room, NONE, np.int32),
        newest=np.full(owners, NONE, np.int32),
        oldest=np.full(owners, NONE, np.int32),
        lengths=np.zeros(owners, np.int32),
        table=np.full(size, NONE, np.int32),
        state=np.array([0, NONE, 0], np.int64),
    )


def _grown(pool: Pool, more: int, most: int, owners: int) -> Pool:
    """The pool itself while it has room, else a copy with at least twice as much."""
    needed = min(int(pool.state[SIZE]) + more, most)
    room = len(pool.rows)
    if needed <= room and owners == len(pool.newest):
        return pool
    if needed > room:
        room = min(max(2 * room, needed), most)
    grown = _new_pool(pool.rows.shape[1], room, owners)
    used = int(pool.state[USED])
    for name in ENTRIES:
        getattr(grown, name)[:used] = getattr(pool, name)[:used]
    for name in LISTS:
        getattr(grown, name)[: len(pool.newest)] = getattr(pool, name)
    grown.state[:] = pool.state
    replace_all(grown)
    return grown
