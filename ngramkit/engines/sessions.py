"""Requests found by what they say: engines hand over rows of token ids, in any order.

A row is the session whose tokens it begins with (it was continued), or most of whose tokens it
begins with (the engine took some back); else it is a new one. It is found by a hash of a few tokens
and where they stand, and then compared, token by token: a session never goes on with what is not
its own. Of two rows that say the same, each has its session. The least recently used is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ngramkit.drafters.base import DraftTree, TokenArray, common_beginning

TAIL = 16  # tokens that are hashed
NEAR = 16  # tokens that one step of an engine appends, mostly at most
STRIDE = 64  # a session is also found by what stands before every so many tokens

Key = tuple[int, int]


class Session:
    """A request and what is known of its drafts. `request` is None until it is begun."""

    __slots__ = (
        "draft", "gate", "judged", "keys", "marks", "number", "opened", "request", "size", "used",
        "was",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number  # of all sessions, from 0
        self.request: Any = None
        self.size = 0  # of the tokens that it is found by
        self.keys: list[Key] = []  # of its end, first, and of marks in it
        self.marks = -1  # how many strides there were when those were taken; -1: none
        self.draft: DraftTree | None = None  # what was proposed last
        self.gate: Any = None
        self.judged: int | None = None  # tokens of `was` that came true, where told
        self.was: DraftTree | None = None  # the draft before
        self.opened = False  # whether it was drafted for, or pauses
        self.used = 0  # the step in which it was last asked for


class Found:
    """A row's session, and what to do before it is drafted for."""

    __slots__ = ("kept", "session")

    def __init__(self, session: Session, kept: int) -> None:
        self.session = session
        self.kept = kept  # of the session's tokens, those that the row begins with; 0: it is new


class Sessions:
    """At most `most` of them, and always as many as one step asks for."""

    def __init__(self, most: int = 512, *, stride: int = STRIDE) -> None:
        self.most, self._stride = most, stride
        self._by_key: dict[Key, list[Session]] = {}
        self._order: OrderedDict[int, Session] = OrderedDict()  # by use, the oldest first
        self._step = self._begun = 0

    def __len__(self) -> int:
        return len(self._order)

    def latest(self) -> list[Session]:
        """Those that were drafted for in the last step."""
        return [session for session in self._order.values() if session.used == self._step]

    def find(self, rows: Sequence[TokenArray]) -> list[Found]:
        """A session for each row, int32[n] with ids in 0..vocabulary, no two the same.

        Continued ones are looked for first: no row takes back what is another's.
        """
        self._step += 1
        found = [self._continued(row) for row in rows]
        for i, row in enumerate(rows):
            if found[i] is None:
                found[i] = self._rewound(row) or self._new()
        return [each for each in found if each is not None]

    def settle(self, session: Session, row: TokenArray, kept: int = 0) -> None:
        """The session's tokens are `row` now: it is found by them from now on. The first `kept` of
        them were its tokens before."""
        n, stride = len(row), self._stride
        whole = n // stride
        if whole == session.marks and kept >= whole * stride:  # its marks are what they were
            self._drop(session, session.keys[:1])
            end = _key(row, n)
            session.keys[0] = end
            self._by_key.setdefault(end, []).append(session)
        else:
            self._drop(session, session.keys)
            marks = [m for m in (whole * stride, (whole - 1) * stride) if m > 0]
            session.keys = [_key(row, n), *(_key(row, mark) for mark in marks)]
            for key in session.keys:
                self._by_key.setdefault(key, []).append(session)
            session.marks = whole
        session.size = n

    def _drop(self, session: Session, keys: list[Key]) -> None:
        for key in keys:
            held = self._by_key[key]
            held.remove(session)
            if not held:
                del self._by_key[key]

    def forget(self, session: Session) -> None:
        """It is not found any more."""
        self._lose(session)
        self._order.pop(id(session), None)

    def clear(self) -> None:
        """All of them are forgotten."""
        for session in list(self._order.values()):
            self.forget(session)

    def _continued(self, row: TokenArray) -> Found | None:
        n = len(row)
        near = range(n, max(n - NEAR, 0) - 1, -1)
        far = range((n - NEAR) // self._stride * self._stride, 0, -self._stride)
        for length in chain(near, far):
            for session in self._by_key.get(_key(row, length), ()):
                if session.used < self._step and session.size <= n:
                    size = session.size
                    if np.array_equal(session.request.tokens[:size], row[:size]):
                        return self._take(session, size)
        return None

    def _rewound(self, row: TokenArray) -> Found | None:
        """The session that shares most with the row, but for its last tokens."""
        best, most = None, 0
        n, stride = len(row), self._stride
        for mark in range(n // stride * stride, max(n // stride - 2, 0) * stride, -stride):
            for session in self._by_key.get(_key(row, mark), ()):
                if session.used < self._step:
                    shared = common_beginning(session.request.tokens, row)
                    if shared > most and session.size - shared < 2 * stride:
                        best, most = session, shared
        return None if best is None else self._take(best, most)

    def _lose(self, session: Session) -> None:
        """Its keys lead to it no more."""
        self._drop(session, session.keys)
        session.keys = []

    def _take(self, session: Session, kept: int) -> Found:
        session.used = self._step
        self._order.move_to_end(id(session))
        return Found(session, kept)

    def _new(self) -> Found:
        if len(self._order) >= self.most:
            oldest = next(iter(self._order.values()))
            if oldest.used < self._step:
                self.forget(oldest)
        session = Session(self._begun)
        self._begun += 1
        self._order[id(session)] = session
        return self._take(session, 0)


def _key(row: TokenArray, length: int) -> Key:
    """Of the last tokens of row[:length], and where they stand."""
    return length, hash(row[max(length - TAIL, 0) : length].tobytes())
