"""Prompts of one conversation, which share its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ngramkit.corpus.chat import Message


class MessagePrefix(Sequence[Message]):
    """The first `count` messages of a shared list, after those of `before`."""

    __slots__ = ("_count", "before", "begin", "shared")

    def __init__(
        self, messages: list[Message], count: int, before: MessagePrefix | None = None
    ) -> None:
        self.shared, self._count = messages, count
        self.before = before if before is not None and len(before) else None
        self.begin = 0 if self.before is None else len(self.before)  # place of the shared list

    def first(self, count: int) -> MessagePrefix:
        """Return the first `count` messages, at most its own."""
        here: MessagePrefix | None = self
        while here is not None and count <= here.begin:
            here = here.before
        if here is None:
            return MessagePrefix([], 0)
        return MessagePrefix(here.shared, min(count - here.begin, here._count), here.before)

    def segments(self) -> list[tuple[list[Message], int]]:
        """Return the shared lists, from the first to its own, each with its count."""
        found = []
        here: MessagePrefix | None = self
        while here is not None:
            found.append((here.shared, here._count))
            here = here.before
        return found[::-1]

    def __len__(self) -> int:
        return self.begin + self._count

    def __iter__(self) -> Iterator[Message]:
        for messages, count in self.segments():
            for at in range(count):
                yield messages[at]

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        here = self
        while here.before is not None and number < here.begin:
            here = here.before
        return here.shared[number - here.begin]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
