"""Token ids of prompts that share messages, in time and memory linear in the conversation.

Most chat templates put a fixed text between two messages, by their roles. Then a prompt's ids are
a view of its conversation's, and each message is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ngramkit.basics.errors import InputError
from ngramkit.corpus.chat import Message, Template
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.turns import ASSISTANT, SYSTEM, USER
from ngramkit.drafters.base import LiveContext, TokenArray

ORDERS = (
    (USER, ASSISTANT, USER),
    (SYSTEM, USER, ASSISTANT, USER),
    (USER, ASSISTANT, ASSISTANT),
)
MARK = "\N{SNOWMAN}"
END = ""  # in place of a role: the beginning or the end of a prompt
SAMPLES = (  # templates may refuse all but the first
    [(USER, "1?"), (ASSISTANT, "<tool_call>\n{}\n</tool_call>"),
     (USER, "<tool_response>\nx\n</tool_response>"), (ASSISTANT, "Two. "), (USER, "\n3?")],
    [(SYSTEM, " Be brief.\n"), (USER, "\n1?"), (ASSISTANT, "One. "), (USER, " 2?\n")],
    [(USER, "1?"), (ASSISTANT, "One."), (ASSISTANT, "Two."), (USER, "3?"), (ASSISTANT, "Four.")],
)  # fmt: skip


class Borders:
    """The texts of a template between messages, by the roles before and after."""

    def __init__(self, texts: dict[tuple[str, str], str], *, strips: bool) -> None:
        self._texts, self._strips = texts, strips

    @classmethod
    def of(cls, template: Template) -> Borders | None:
        """Return the borders of a template; None if it has no fixed ones."""
        texts: dict[tuple[str, str], str] = {}
        for roles in ORDERS:
            messages = [Message(role, f"{MARK}{i}{MARK}") for i, role in enumerate(roles)]
            try:
                rest = template.prompt(messages)
            except InputError:
                continue  # such as a template that takes no system message
            before = END
            for message in messages:
                border, found, rest = rest.partition(message.content)
                if not found or texts.setdefault((before, message.role), border) != border:
                    return None
                before = message.role
            if texts.setdefault((before, END), rest) != rest:
                return None
        for strips in (False, True):
            borders = cls(texts, strips=strips)
            if all(borders._renders(template, sample) for sample in SAMPLES):
                return borders
        return None

    def _renders(self, template: Template, sample: Sequence[tuple[str, str]]) -> bool:
        """Return whether the borders make the template's text; True for what it refuses."""
        messages = [Message(*each) for each in sample]
        try:
            text = template.prompt(messages)
        except InputError:
            return sample is not SAMPLES[0]
        return self.end(MessagePrefix(messages, len(messages)), len(text)) == text

    def closing(self, role: str) -> str | None:
        """Return the text after a prompt whose last message has this role; None if unknown."""
        return self._texts.get((role, END))

    def piece(self, before: str, message: Message) -> str | None:
        """Return a message with the border before it; None after an unusual role."""
        border = self._texts.get((before, message.role))
        if border is None:
            return None
        return border + (message.content.strip() if self._strips else message.content)

    def end(self, prompt: MessagePrefix, least: int) -> str | None:
        """Return the end of a prompt, at least `least` characters if it has as many."""
        closing = self.closing(prompt[-1].role)
        if closing is None:
            return None
        parts, size, at = [closing], 0, len(prompt)
        while at and size < least:
            at -= 1
            part = self.piece(prompt[at - 1].role if at else END, prompt[at])
            if part is None:
                return None
            parts.append(part)
            size += len(part)
        return "".join(reversed(parts))


class SharedPrompts:
    """Encodes prompts of conversations, each message once."""

    def __init__(
        self, borders: Borders, encode: Callable[[str], TokenArray], begin: Sequence[int]
    ) -> None:
        self.borders, self._encode = borders, encode
        self._begin = np.array(begin, np.int32)
        self._known: dict[int, _Conversation] = {}  # by id of the shared list

    def tokens(self, prompt: MessagePrefix) -> TokenArray | None:
        """Return a prompt's ids, int32[n], mostly a view; None after an unusual order of roles."""
        ids, role = self._begin, END
        for messages, count in prompt.segments():
            if id(messages) not in self._known:
                self._known[id(messages)] = _Conversation(messages, ids, role)
            known = self._known[id(messages)]
            if not known.extend(count, self.borders, self._encode):
                return None
            if count:
                ids, role = known.tokens(count), messages[count - 1].role
        if role == USER:
            return ids
        closing = self.borders.closing(role)
        return None if closing is None else np.concatenate([ids, self._encode(closing)])


class _Conversation:
    """The ids of a shared list of messages, after those of `before`."""

    def __init__(self, messages: Sequence[Message], before: TokenArray, role: str) -> None:
        self._messages, self._role = messages, role
        self._ids = LiveContext(before)
        self._ends: list[int] = []  # after each message

    def tokens(self, count: int) -> TokenArray:
        return self._ids.tokens[: self._ends[count - 1]]

    def extend(self, count: int, borders: Borders, encode: Callable[[str], TokenArray]) -> bool:
        """Encode the first `count` messages; return False after an unusual order of roles."""
        for at in range(len(self._ends), count):
            message = self._messages[at]
            before = self._messages[at - 1].role if at else self._role
            piece = borders.piece(before, message)
            if piece is None:
                return False
            opened = borders.closing(USER) or ""  # follows each message of the user
            if before == USER:
                piece = piece.removeprefix(opened)
            self._ids.append(encode(piece))
            if message.role == USER:
                self._ids.append(encode(opened))
            self._ends.append(self._ids.length)
        return True
