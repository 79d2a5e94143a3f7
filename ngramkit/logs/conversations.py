"""Conversations in a log.

A request continues an earlier one if its prompt begins with the earlier prompt and answer. White
space and thoughts are ignored, because templates and clients drop both from earlier turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    tree = _MessageTree(eos)
    keys: list[tuple[Key, Key | None]] = []  # of prompts, and of them with their answers
    for request in requests:
        asked: Any = request.prompt
        answer = request.output if isinstance(request.output, str) else decode(request.output)
        answer = answer.removesuffix(eos)
        if len(asked) and isinstance(asked[0], Message):
            keys.append(tree.keys(asked, answer))
            continue
        text = asked if isinstance(asked, str) else decode(asked)
        whole = _normalize_text(text + answer) if _normalize_text(answer) else None
        keys.append((_normalize_text(text), whole))
    known = {end for _, end in keys if end is not None}
    shorter, longest = _text_prefixes(known, {prompt for prompt, _ in keys})
    tree.add_prefixes(known, shorter, longest)
    unused: dict[Key, list[int]] = {}  # end -> requests not continued yet
    latest: dict[Key, int] = {}  # end -> its latest request
    found: list[int | None] = []
    for number, (prompt, end) in enumerate(keys):
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


@dataclass(eq=False)
class _MessageTree:
    """A tree of messages, so that a prompt costs what it adds to an earlier one."""

    eos: str
    parents: list[int] = field(default_factory=lambda: [0])  # of each node; the root is 0
    children: dict[tuple[int, str], int] = field(default_factory=dict)
    # The nodes of a list of messages that prompts share, by its id.
    prompts: dict[int, tuple[list[Message], int, list[int]]] = field(default_factory=dict)
    # Equal messages share one str, for fast comparison.
    texts: dict[Message, str] = field(default_factory=dict)

    def keys(self, prompt: Any, answer: str) -> tuple[int, int | None]:
        """Return the nodes of a prompt, and of it with the answer, if that has a text."""
        in_parts = isinstance(prompt, MessagePrefix)
        at = 0
        for shared, count in prompt.segments() if in_parts else [(prompt, len(prompt))]:
            _, begin, nodes = self.prompts.setdefault(id(shared), (shared, at, []))
            assert begin == at
            for message in shared[len(nodes) : count]:
                nodes.append(self._child(nodes[-1] if nodes else at, self._text_of(message)))
            at = nodes[count - 1] if count else at
        written = self._text_of(Message(ASSISTANT, answer))
        return at, None if written == ASSISTANT else self._child(at, written)

    def _child(self, node: int, text: str) -> int:
        found = self.children.setdefault((node, text), len(self.parents))
        if found == len(self.parents):
            self.parents.append(node)
        return found

    def _text_of(self, message: Message) -> str:
        if message not in self.texts:
            role, content = message
            text = _normalize_text(content.removesuffix(self.eos))
            if role == ASSISTANT and THOUGHT_MARKS[0][1] in text:  # opened in the prompt
                text = text.partition(THOUGHT_MARKS[0][1])[2]
            self.texts[message] = role + text
        return self.texts[message]

    def add_prefixes(
        self, ends: set[Key], shorter: dict[Key, Key | None], longest: dict[Key, Key | None]
    ) -> None:
        """Add all nodes to what `_text_prefixes` returns."""
        nearest: list[Key | None] = []
        for node, parent in enumerate(self.parents):
            nearest.append(node if node in ends else nearest[parent] if node else None)
        longest.update(enumerate(nearest))
        shorter.update((node, nearest[self.parents[node]]) for node in range(1, len(nearest)))


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
