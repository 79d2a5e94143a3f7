"""The sessions of running requests, by their names in the engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngramkit.budget.pause import Pause
from ngramkit.drafters.base import DraftTree, TokenArray, common_beginning
from ngramkit.drafters.references import NO_REFERENCES, Given

MAX_SESSIONS = 512  # if the configuration gives no other number


@dataclass(eq=False, slots=True)
class Session:
    name: Hashable  # of its request
    number: int  # of all sessions, from 0
    used: int  # last step in which it was asked for
    tenant: str
    holder: Any  # of its row, see `Sessions.find`; None: not known
    request: Any = None  # None until it is begun
    size: int = 0  # tokens of its row in its last step; 0: that step failed
    draft: DraftTree | None = None  # proposed last
    pause: Pause = field(default_factory=Pause)
    references: Given = NO_REFERENCES  # of its request
    # In this step:
    kept: int = 0  # tokens of these that its row begins with; 0: it is new
    prompt: int = 0  # tokens that the model did not write
    begins: bool = False  # a request begins
    drafting: bool = False  # else it pauses
    outcome: tuple[DraftTree, int] | None = None  # the draft before, its accepted tokens


class Sessions:
    """At most `most` sessions, or as many as one step needs; the least recently used is evicted."""

    def __init__(self, most: int, vocabulary: int) -> None:
        self.most, self._vocabulary = most, vocabulary
        self.latest: list[Session] = []  # of the last step's rows
        self.absent: list[Session] = []  # of the step's before it, without a row in the last one
        self._by_name: OrderedDict[Hashable, Session] = OrderedDict()  # by use, the oldest first
        self._step = self._begun = 0

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> list[Hashable]:
        return list(self._by_name)

    def find(
        self,
        rows: Sequence[TokenArray],
        names: Sequence[Hashable],
        tenants: Sequence[str],
        holders: Sequence[Any],
    ) -> list[Session]:
        """Return a session for each row, int32[n]: that of its name, or a new one.

        A row's session keeps the tokens that they share. The rows of one holder only grow, so they
        are not compared; with another holder, the last draft does not count. Another tenant's
        request begins a new session.
        """
        self._step += 1
        asked = list(zip(names, tenants, holders, strict=True))
        found = [self._find_one(row, *each) for row, each in zip(rows, asked, strict=True)]
        before = self.latest
        self.latest = [
            session or self._begin(*each) for session, each in zip(found, asked, strict=True)
        ]
        self.absent = [session for session in before if session.used < self._step]
        return self.latest

    def end(self, name: Hashable) -> None:
        """Forget the session of a request that has ended."""
        self._by_name.pop(name, None)

    def clear(self) -> None:
        self._by_name.clear()

    def _find_one(
        self, row: TokenArray, name: Hashable, tenant: str, holder: Any
    ) -> Session | None:
        session = self._by_name.get(name)
        if session is None or session.size == 0 or session.tenant != tenant:
            return None
        moved = session.holder is not holder
        if moved or holder is None:
            session.kept = self._shared_tokens(session, row)
        else:
            session.kept = session.size
        if moved:
            session.holder, session.draft = holder, None  # the engine has dropped that draft
        if session.kept == 0:
            return None
        session.used = self._step
        self._by_name.move_to_end(name)
        return session

    def _shared_tokens(self, session: Session, row: TokenArray) -> int:
        tokens = session.request.tokens[: session.size]
        if tokens.tobytes() == row[: session.size].tobytes():  # takes half the time
            return session.size
        return common_beginning(tokens, with_known_ids(row, self._vocabulary))

    def _begin(self, name: Hashable, tenant: str, holder: Any) -> Session:
        self._by_name.pop(name, None)
        if len(self._by_name) >= self.most:
            oldest = next(iter(self._by_name.values()))
            if oldest.used < self._step:
                del self._by_name[oldest.name]
        session = self._by_name[name] = Session(name, self._begun, self._step, tenant, holder)
        self._begun += 1
        return session


def with_known_ids(row: TokenArray, vocabulary: int) -> TokenArray:
    """Return int32[n] with unknown ids as the vocabulary's size."""
    clipped: TokenArray = np.minimum(row.view(np.uint32), np.uint32(vocabulary)).view(np.int32)
    return clipped
