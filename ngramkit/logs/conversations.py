"""Conversations in a log.

A request continues an earlier one if its prompt begins with the earlier prompt and answer. White
space and thoughts are ignored, because templates and clients drop both from earlier turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngramkit.corpus.chat import Message
from ngramkit.corpus.message_prefix import MessagePrefix
from ngramkit.corpus.turns import ASSISTANT
from ngramkit.logs.request import LoggedRequest

# How thoughts begin and end: in most models, in Mistral's, in gpt-oss.
THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
)
Key = str | int  # a text, or a node of the tree of messages


def find_predecessors(
    requests: Sequence[LoggedRequest], decode: Callable[[Any], str], eos: str = ""
) -> list[int | None]:
    """Return for each request the index of the earlier one that it continues, or None.

    `eos` is stripped from answers. Equal candidates are each continued once, the latest first,
    before any is continued again.
    """
    keys = _Keys(decode, eos)
    prompts = [keys.prompt(request) for request in requests]
    ends = [keys.end(each, prompt) for each, prompt in zip(requests, prompts, strict=True)]
    known = {end for end in ends if end is not None}
    shorter, longest = _text_prefixes(known, set(prompts))
    for of_texts, of_messages in zip((shorter, longest), keys.tree.prefixes(known), strict=True):
        of_texts.update(of_messages)
    unused: dict[Key, list[int]] = {}  # end -> requests not continued yet
    latest: dict[Key, int] = {}  # end -> its latest request
    found: list[int | None] = []
    for number, (prompt, end) in enumerate(zip(prompts, ends, strict=True)):
        before = longest[prompt]
        while before is not None and before not in latest:  # that request comes later
            before = shorter[before]
        if before is None:
            found.append(None)
        else:
            found.append(unused[before].pop() if unused[before] else latest[before])
        if end is not None:
            unused.setdefault(end, []).append(number)
            latest[end] = number
    return found


class _Tree:
    """A tree of messages, so that a prompt costs what it adds to an earlier one."""

    def __init__(self) -> None:
        self._parents = [0]  # of each node; the root is 0
        self._children: dict[tuple[int, str], int] = {}
        self._prompts: dict[int, tuple[list[Message], int, list[int]]] = {}  # by id of a list

    def child(self, node: int, text: str) -> int:
        found = self._children.setdefault((node, text), len(self._parents))
        if found == len(self._parents):
            self._parents.append(node)
        return found

    def node(self, prompt: MessagePrefix, text_of: Callable[[Message], str]) -> int:
        """Return the node of a prompt whose messages other prompts share."""
        at = 0
        for messages, count in prompt.segments():
            _, begin, nodes = self._prompts.setdefault(id(messages), (messages, at, []))
            assert begin == at
            for message in messages[len(nodes) : count]:
                nodes.append(self.child(nodes[-1] if nodes else at, text_of(message)))
            at = nodes[count - 1] if count else at
        return at

    def prefixes(self, ends: set[Key]) -> tuple[dict[Key, Key | None], dict[Key, Key | None]]:
        """Return what `_text_prefixes` does, of all nodes."""
        nearest: list[int | None] = []
        for node, parent in enumerate(self._parents):
            nearest.append(node if node in ends else nearest[parent] if node else None)
        shorter = {node: nearest[self._parents[node]] for node in range(1, len(nearest))}
        return shorter, dict(enumerate(nearest))  # type: ignore[return-value]


class _Keys:
    """Keys of requests; equal messages share one str, for fast comparison."""

    def __init__(self, decode: Callable[[Any], str], eos: str) -> None:
        self.tree = _Tree()
        self._decode, self._eos = decode, eos
        self._known: dict[Message, str] = {}

    def prompt(self, request: LoggedRequest) -> Key:
        messages = _messages_of(request)
        if messages is None:
            return _normalize_text(self._text(request.prompt))
        return self.tree.node(messages, self._message)

    def end(self, request: LoggedRequest, prompt: Key) -> Key | None:
        answer = self._text(request.output).removesuffix(self._eos)
        if isinstance(prompt, int):
            written = self._message(Message(ASSISTANT, answer))
            return None if written == ASSISTANT else self.tree.child(prompt, written)
        return (
            _normalize_text(self._text(request.prompt) + answer)
            if _normalize_text(answer)
            else None
        )

    def _message(self, message: Message) -> str:
        if message not in self._known:
            role, content = message
            text = _normalize_text(content.removesuffix(self._eos))
            if role == ASSISTANT and THOUGHT_MARKS[0][1] in text:  # opened in the prompt
                text = text.partition(THOUGHT_MARKS[0][1])[2]
            self._known[message] = role + text
        return self._known[message]

    def _text(self, given: Any) -> str:
        return given if isinstance(given, str) else self._decode(given)


def _messages_of(request: LoggedRequest) -> MessagePrefix | None:
    prompt: Any = request.prompt
    if isinstance(prompt, str) or not len(prompt) or not isinstance(prompt[0], Message):
        return None
    return prompt if isinstance(prompt, MessagePrefix) else MessagePrefix(prompt, len(prompt))


def _normalize_text(text: str) -> str:
    """Remove white space, thoughts and incomplete characters."""
    for begin, end in THOUGHT_MARKS:
        parts, at = [], 0
        while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
            parts.append(text[at:start])
            at = stop + len(end)
        text = "".join([*parts, text[at:]]) if parts else text
    return "".join(text.replace("\ufffd", "").split())


def _text_prefixes(
    ends: set[Key], prompts: set[Key]
) -> tuple[dict[Key, Key | None], dict[Key, Key | None]]:
    """Return each end's longest proper prefix and each prompt's longest prefix among `ends`."""
    shorter: dict[Key, Key | None] = {}
    longest: dict[Key, Key | None] = {}
    items = [(end, 0) for end in ends if isinstance(end, str)]
    items += [(prompt, 1) for prompt in prompts if isinstance(prompt, str)]
    stack: list[str] = []  # ends, each a prefix of the next
    for key, is_prompt in sorted(items):
        while stack and not key.startswith(stack[-1]):
            stack.pop()
        above = stack[-1] if stack else None
        if is_prompt:
            longest[key] = above
        else:
            shorter[key] = above
            stack.append(key)
    return shorter, longest
