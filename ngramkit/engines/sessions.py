"""Find the running request of each row of token ids; rows come in any order.

Without ids, a row belongs to the session that it continues, or to the one that shares most of its
tokens; else it begins a session. Rows are compared token by token, a growing view of memory that
never changes only once. Equal rows have a session each. With ids nothing is compared, unless the
engine reports that a row was rewritten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np

from ngramkit.budget.pause import Pause
from ngramkit.drafters.base import DraftTree, TokenArray, common_beginning
from ngramkit.drafters.references import NO_REFERENCES, Given

MAX_SESSIONS = 512  # if the configuration gives no other number
HASHED_TOKENS = 16  # tokens that are hashed
MAX_STEP_TOKENS = 16  # usual maximum of tokens that a step appends
LARGEST_VOCABULARY = (1 << 31) - 1  # vocabulary of all ids
LONG_COPY_TOKENS = 1 << 14  # tokens: copies of fewer are compared in less time than arrays
HASHED_EVERY = 64  # a session is also found by the tokens before every multiple of this

Key = tuple[int, int]


@dataclass(eq=False, slots=True)
class Session:
    number: int  # of all sessions, from 0
    used: int  # last step in which it was asked for
    tenant: str  # only this tenant's rows find it
    name: str = ""  # the engine's id of its request; "": it is found by its tokens
    request: Any = None  # None until it is begun
    size: int = 0  # tokens that it is found by
    kept: int = 0  # tokens of these that its row begins with in this step; 0: it is new
    row: TokenArray | None = None  # in the last step, if its memory never changes
    keys: list[Key] = field(default_factory=list)  # of its end, then of marks; [] if forgotten
    marks: int = -1  # whole strides when those marks were taken; -1: none
    draft: DraftTree | None = None  # proposed last
    outcome: tuple[DraftTree, int] | None = None  # the draft before, its accepted tokens
    pause: Pause = field(default_factory=Pause)
    drafting: bool = False  # in this step; else it pauses
    begin: int = 0  # start of the model's output
    remembered: int = 0  # tokens that joined a history, or never will
    references: Given = NO_REFERENCES  # of its request


class Sessions:
    """At most `most` sessions, or as many as one step needs; the least recently used is evicted."""

    def __init__(
        self,
        most: int = MAX_SESSIONS,
        vocabulary: int = LARGEST_VOCABULARY,
        *,
        stride: int = HASHED_EVERY,
    ) -> None:
        self.most, self._vocabulary, self._stride = most, vocabulary, stride
        self._placed: list[Session] = []  # of the last step's rows
        self._before: list[Session] = []  # of the step's before it
        self._by_key: dict[Key, list[Session]] = {}
        # Sessions whose end has moved since they were indexed by it, the last settled last.
        self._moved: dict[Session, None] = {}
        self._order: OrderedDict[int, Session] = OrderedDict()  # by use, the oldest first
        self._by_name: dict[str, Session] = {}
        self._rewritten: set[str] = set()  # names of sessions whose rows are to be compared
        self._step = self._begun = 0

    def __len__(self) -> int:
        return len(self._order)

    def latest(self) -> list[Session]:
        return [session for session in self._order.values() if session.used == self._step]

    def find(
        self,
        rows: Sequence[TokenArray],
        tenants: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> list[Session]:
        """Return a session for each row, int32[n], no session twice, none of another tenant.

        `names`: the engine's ids of the rows' requests, by which their sessions are found.
        Otherwise continued sessions first, so that no row rewinds another row's session.
        """
        self._step += 1
        asked = list(zip(rows, tenants or [""] * len(rows), strict=True))
        if any(names):
            self._before = self._placed
            self._placed = [
                self._find_by_name_or_begin(name, *each)
                for name, each in zip(names, asked, strict=True)
            ]
            return self._placed
        placed = chain(self._placed, repeat(None))
        sessions = [
            session and self._same_place_if_continued(session, *each)
            for session, each in zip(placed, asked, strict=False)
        ]
        if None in sessions and self._by_key:
            self._reindex_moved()
            for search in self._find_continued, self._find_rewound:
                sessions = [
                    session or search(*each) for session, each in zip(sessions, asked, strict=True)
                ]
        self._before = self._placed
        self._placed = [
            session or self._evict_oldest_and_begin(tenant)
            for session, (_, tenant) in zip(sessions, asked, strict=True)
        ]
        for session in self._before:
            session.row = None
        for session, row in zip(self._placed, rows, strict=True):
            session.row = row if _is_read_only_view(row) else None
        return self._placed

    @property
    def ended(self) -> list[Session]:
        """The sessions of the step before the last whose rows are gone, oldest first."""
        gone = [session for session in self._before if session.used < self._step]
        return sorted(gone, key=lambda session: session.number)

    def rewrite(self, name: str) -> None:
        """Compare the next row of this name with its session, whose tokens it may not continue."""
        if name in self._by_name:
            self._rewritten.add(name)

    def end(self, name: str) -> None:
        """Forget the session of a request that has ended."""
        session = self._by_name.get(name)
        if session is not None:
            self._forget(session)

    def settle(self, session: Session, size: int) -> None:
        if session.name:
            session.size = size
            return
        stride = self._stride
        whole = size // stride
        self._moved.pop(session, None)
        if whole == session.marks and session.kept >= whole * stride:  # its marks are unchanged
            self._moved[session] = None
        else:
            self._drop(session, session.keys)
            ends = [size, *(m for m in (whole * stride, (whole - 1) * stride) if m > 0)]
            session.keys = [_key_of_end(session.request.tokens, end) for end in ends]
            for key in session.keys:
                self._by_key.setdefault(key, []).append(session)
            session.marks = whole
        session.size = size

    def _reindex_moved(self) -> None:
        for session in [each for each in self._moved if each.used < self._step]:
            del self._moved[session]
            self._drop(session, session.keys[:1])
            session.keys[0] = _key_of_end(session.request.tokens, session.size)
            self._by_key.setdefault(session.keys[0], []).append(session)

    def clear(self) -> None:
        for session in list(self._order.values()):
            self._forget(session)

    def _same_place_if_continued(
        self, session: Session, row: TokenArray, tenant: str
    ) -> Session | None:
        if not session.keys or session.tenant != tenant:
            return None
        size = session.size
        near = 0 <= len(row) - size <= MAX_STEP_TOKENS
        if not (near and self._starts_with_session_tokens(row, session)):
            return None
        return self._take(session, size)

    def _starts_with_session_tokens(self, row: TokenArray, session: Session) -> bool:
        known = session.row
        if known is not None and _is_extended(known, row) and session.size <= len(known):
            return True
        tokens, beginning = session.request.tokens[: session.size], row[: session.size]
        return equal_arrays(tokens, beginning) or equal_arrays(
            tokens, with_known_ids(beginning, self._vocabulary)
        )

    def _find_continued(self, row: TokenArray, tenant: str) -> Session | None:
        n, clear = len(row), with_known_ids(row, self._vocabulary)
        near = range(n, max(n - MAX_STEP_TOKENS, 0) - 1, -1)
        far = range((n - MAX_STEP_TOKENS) // self._stride * self._stride, 0, -self._stride)
        for length in chain(near, far):
            for session in self._by_key.get(_key_of_end(clear, length), ()):
                usable = session.used < self._step and session.size <= n
                usable = usable and session.tenant == tenant
                if usable and self._starts_with_session_tokens(row, session):
                    return self._take(session, session.size)
        return None

    def _find_rewound(self, row: TokenArray, tenant: str) -> Session | None:
        best, most = None, 0
        clear = with_known_ids(row, self._vocabulary)
        n, stride = len(row), self._stride
        for mark in range(n // stride * stride, max(n // stride - 2, 0) * stride, -stride):
            for session in self._by_key.get(_key_of_end(clear, mark), ()):
                if session.used < self._step and session.tenant == tenant:
                    shared = common_beginning(session.request.tokens, clear)
                    if shared > most and session.size - shared < 2 * stride:
                        best, most = session, shared
        return None if best is None else self._take(best, most)

    def _find_by_name_or_begin(self, name: str, row: TokenArray, tenant: str) -> Session:
        session = self._by_name.get(name)
        if session is None:
            return self._evict_oldest_and_begin(tenant, name)
        kept = session.size
        if name in self._rewritten or session.tenant != tenant:
            self._rewritten.discard(name)
            kept = common_beginning(session.request.tokens, with_known_ids(row, self._vocabulary))
            if kept == 0 or session.tenant != tenant:
                self._forget(session)
                return self._evict_oldest_and_begin(tenant, name)
        return self._take(session, kept)

    def _evict_oldest_and_begin(self, tenant: str, name: str = "") -> Session:
        if len(self._order) >= self.most:
            oldest = next(iter(self._order.values()))
            if oldest.used < self._step:
                self._forget(oldest)
        session = Session(self._begun, self._step, tenant, name)
        self._begun += 1
        if name:
            self._by_name[name] = session
        self._order[id(session)] = session
        return session

    def _take(self, session: Session, kept: int) -> Session:
        session.used, session.kept = self._step, kept
        self._order.move_to_end(id(session))
        return session

    def _forget(self, session: Session) -> None:
        self._drop(session, session.keys)
        session.keys = []
        self._moved.pop(session, None)
        self._order.pop(id(session), None)
        if session.name:
            del self._by_name[session.name]
            self._rewritten.discard(session.name)

    def _drop(self, session: Session, keys: list[Key]) -> None:
        for key in keys:
            sessions = self._by_key[key]
            sessions.remove(session)
            if not sessions:
                del self._by_key[key]


def _is_read_only_view(row: TokenArray) -> bool:
    """Return whether a row is a view of memory that is not written any more."""
    base = row.base
    return isinstance(base, np.ndarray) and not base.flags.writeable


def _is_extended(one: TokenArray, other: TokenArray) -> bool:
    """Return whether the rows are the same memory, of which `other` shows as much or more."""
    same = one.base is other.base and one.ctypes.data == other.ctypes.data
    return same and len(one) <= len(other)


def equal_arrays(one: TokenArray, other: TokenArray) -> bool:
    """Compare int32[n] and int32[n]."""
    if len(one) < LONG_COPY_TOKENS:
        return one.tobytes() == other.tobytes()
    return bool((one == other).all())


def with_known_ids(row: TokenArray, vocabulary: int) -> TokenArray:
    """Return int32[n] with unknown ids as the vocabulary's size."""
    clipped: TokenArray = np.minimum(row.view(np.uint32), np.uint32(vocabulary)).view(np.int32)
    return clipped


def _key_of_end(row: TokenArray, length: int) -> Key:
    return length, hash(row[max(length - HASHED_TOKENS, 0) : length].tobytes())
