"""The conversation of a session while it is read, and the answers in it.

Prompts share one list of messages, so a session takes memory linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ngramkit.corpus.agent_sessions.blocks import OpenAnswer
from ngramkit.corpus.chat import Message
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.turns import ASSISTANT, SYSTEM, USER, Unread

MAX_PROMPT_CHARS = 1 << 20  # about 300,000 tokens, more than most servers accept
MAX_WINDOWS = 2
MAX_SEGMENTS = 64  # of a prompt after many branches, each of which is walked
NO_SYSTEM = "a session without its system prompt and tools"
SUMMARY = "a compaction whose request is not recorded"
ORPHAN = "a record whose parent the file does not hold"
UNKNOWN = "a record of an unknown type"
TOO_LONG = f"a prompt of more than {MAX_PROMPT_CHARS:,} characters, whose beginning was dropped"


@dataclass(slots=True)
class Answer:
    """An answer of the model, which follows the messages of `before`."""

    before: MessagePrefix
    text: str  # thoughts, text and tool calls
    kind: str  # see blocks.KINDS
    time: Any = None  # as recorded
    model: str = ""
    finished: bool = True  # False: it was cut off
    id: str = ""  # the server's; copies of an answer share it, but some servers repeat theirs

    @property
    def digest(self) -> int:
        """A number that copies of an answer share."""
        content = f"{self.id}\0{self.text}"
        if not self.id:
            last = self.before[-1].content if len(self.before) else ""
            content = f"{len(self.before)}\0{last}{content}"
        raw = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(raw, "little")


class Copies:
    """The answers of earlier files, which forked and resumed sessions repeat at their beginning."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._at_beginning = True

    def begin(self) -> None:
        """Begin a file."""
        self._at_beginning = True

    def holds_or_adds(self, answer: Answer) -> bool:
        """Return whether an earlier file holds the answer, and remember it.

        Without the server's ids, equal answers are copies only at the beginning of a file.
        """
        digest = answer.digest
        known = digest in self._known
        self._known.add(digest)
        self._at_beginning = self._at_beginning and known
        return known if answer.id else self._at_beginning


class Thread:
    """A conversation that grows: messages, then an open answer, then texts of the user.

    A place is the number of messages up to and including a record's own. Answers that end are
    appended to `ended`.
    """

    def __init__(
        self,
        unread: Unread,
        ended: list[Answer],
        before: MessagePrefix | None = None,
        chars: int = 0,
    ) -> None:
        self.open: OpenAnswer | None = None
        self._unread, self._ended, self._before = unread, ended, before
        self._messages: list[Message] = []  # after those of `before`
        self._said: list[str] = []  # by the user, not yet a message
        self._dropped = 0  # messages at the beginning
        self._chars = chars  # of all messages

    @property
    def place(self) -> int:
        """The place of the newest record."""
        return self._dropped + len(self.messages()) + (self.open is not None) + self.waits

    @property
    def waits(self) -> bool:
        """Whether a text of the user waits for its answer."""
        return bool(self._said)

    def follows(self, place: int) -> bool:
        """Return whether a record after `place` continues the thread, and does not branch off.

        The result of one of several calls follows the record of its call.
        """
        return place >= self.place - (self.open is not None and self.waits)

    def messages(self) -> MessagePrefix:
        return MessagePrefix(self._messages, len(self._messages), self._before)

    def instruct(self, text: str) -> None:
        """Add to the system message; in a conversation that has begun, say it."""
        if len(self.messages()) > 1 or self.open is not None or self.waits:
            self.say(text)
        elif text and self._messages and self._messages[0].role == SYSTEM:
            self._messages[0] = Message(SYSTEM, f"{self._messages[0].content}\n\n{text}")
            self._chars += len(text)
        elif text:
            self._append(Message(SYSTEM, text))

    def say(self, text: str) -> None:
        """Add a text of the user; those between two answers are one message."""
        if text:
            self._said.append(text)

    def answer(self, id: str = "", model: str = "", time: Any = None) -> OpenAnswer:
        """Begin an answer, which ends the one before."""
        self.close()
        self.open = OpenAnswer(self._unread, id, model, time)
        return self.open

    def close(self) -> None:
        """End the open answer, and make messages of all that was said."""
        opened, self.open = self.open, None
        if opened is not None:
            if text := opened.written():
                answer = Answer(
                    self.messages(), text, opened.kind, opened.time, opened.model,
                    opened.finished, opened.id,
                )  # fmt: skip
                self._ended.append(answer)
            if shown := opened.shown():
                self._append(Message(ASSISTANT, shown))
            elif not text and self._messages and self._messages[-1].role == USER:
                said = self._messages.pop().content  # a failed answer, which no prompt holds
                self._said.insert(0, said)
                self._chars -= len(said)
        if self._said:
            said, self._said = "\n".join(self._said), []
            self._append(Message(USER, said))

    def branch(self, place: int) -> Thread:
        """Return a conversation that leaves this closed one after `place`."""
        messages, said = self.messages(), ""
        before = messages.first(place - self._dropped)
        if len(before) and before[-1].role == USER:
            said, before = before[-1].content, before.first(len(before) - 1)
        if len(before.segments()) > MAX_SEGMENTS:
            before = MessagePrefix(list(before), len(before))
        # Most branches leave near the end.
        chars = self._chars - sum(len(each.content) for each in messages[len(before) :])
        branch = Thread(self._unread, self._ended, before, chars)
        branch.say(said)
        return branch

    def extend(self, messages: Sequence[Message]) -> None:
        """Add messages of another conversation."""
        for message in messages:
            if message.role == USER:
                self.say(message.content)
            else:
                self.close()
                self._append(message)

    def since(self, place: int) -> Sequence[Message]:
        """Return the messages of this closed conversation after `place`."""
        found: Sequence[Message] = self.messages()[max(place - self._dropped, 0) :]
        return found

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._chars += len(message.content)
        if self._chars > MAX_PROMPT_CHARS:
            self._drop()

    def _drop(self) -> None:
        """Keep the last message, and others up to half of the characters, in a new list.

        It begins with a message of the user if one is left, as prompts do.
        """
        self._unread[TOO_LONG] += 1
        everything = list(self.messages())
        at, size = len(everything) - 1, len(everything[-1].content)
        while at and (larger := size + len(everything[at - 1].content)) <= MAX_PROMPT_CHARS // 2:
            at, size = at - 1, larger
        roles = [message.role for message in everything[at:]]
        if at and USER in roles:
            begin = at + roles.index(USER)
            size -= sum(len(message.content) for message in everything[at:begin])
            at = begin
        self._dropped += at
        self._before, self._messages, self._chars = None, everything[at:], size


Place = tuple[Thread, int]  # of a record


class Tree:
    """The conversations of a file whose records name their parents.

    Only the newest MAX_WINDOWS prompts can be branched from; a compaction begins one.
    """

    def __init__(self, unread: Unread) -> None:
        self.ended: list[Answer] = []
        self._unread = unread
        self._windows: list[dict[str, Place]] = [{}]  # by a record's name, the newest last
        self._growing: dict[int, Thread] = {}  # by id

    def place(self, name: Any) -> Place | None:
        """Return the place of a record; None without a name, or if it is missing."""
        found = self.find(name)
        if found is None and isinstance(name, str):
            self._unread[ORPHAN] += 1
        return found

    def find(self, name: Any) -> Place | None:
        """Return the place of a record that may be missing."""
        if not isinstance(name, str):
            return None
        return next((w[name] for w in reversed(self._windows) if name in w), None)

    def keep(self, name: Any, place: Place) -> None:
        if isinstance(name, str):
            self._windows[-1][name] = place

    def continued(self, after: Place | None) -> Thread:
        """Return the conversation that a record after a place belongs to, perhaps a new one."""
        thread = Thread(self._unread, self.ended) if after is None else after[0]
        if after is not None and not thread.follows(after[1]):
            thread.close()
            self._growing.pop(id(thread), None)
            thread = thread.branch(after[1])
        self._growing[id(thread)] = thread
        return thread

    def compacted(self) -> Thread:
        """End all answers, and return the conversation of a new prompt."""
        self._unread[SUMMARY] += 1
        self.end()
        self._windows = [*self._windows[1 - MAX_WINDOWS :], {}]
        return self.continued(None)

    def end(self) -> None:
        for thread in self._growing.values():
            thread.close()
        self._growing.clear()
