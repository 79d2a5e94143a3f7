"""Conversations in a log.

A request continues an earlier one if its prompt begins with the earlier prompt and answer. White
space and thoughts are ignored, because templates and clients drop both from earlier turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngramkit.corpus.chat import Message
from ngramkit.corpus.turns import ASSISTANT
from ngramkit.logs.request import LoggedRequest

# How thoughts begin and end: in most models, in Mistral's, in gpt-oss.
THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
)
Key = Any  # a str, or a tuple of str


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
    shorter, longest = _prefixes({end for end in ends if end is not None}, set(prompts))
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


class _Keys:
    """Keys of requests; equal messages share one str, for fast comparison."""

    def __init__(self, decode: Callable[[Any], str], eos: str) -> None:
        self._decode, self._eos = decode, eos
        self._known: dict[tuple[str, str], str] = {}

    def prompt(self, request: LoggedRequest) -> Key:
        messages = _messages(request)
        if messages is None:
            return _normalize(self._text(request.prompt))
        return tuple(self._message(each.role, each.content) for each in messages)

    def end(self, request: LoggedRequest, prompt: Key) -> Key | None:
        answer = self._text(request.output).removesuffix(self._eos)
        if isinstance(prompt, tuple):
            written = self._message(ASSISTANT, answer)
            return None if written == ASSISTANT else (*prompt, written)
        return _normalize(self._text(request.prompt) + answer) if _normalize(answer) else None

    def _message(self, role: str, content: str) -> str:
        key = role, content
        if key not in self._known:
            text = _normalize(content.removesuffix(self._eos))
            if role == ASSISTANT and THOUGHT_MARKS[0][1] in text:  # opened in the prompt
                text = text.partition(THOUGHT_MARKS[0][1])[2]
            self._known[key] = role + text
        return self._known[key]

    def _text(self, given: Any) -> str:
        return given if isinstance(given, str) else self._decode(given)


def _messages(request: LoggedRequest) -> list[Message] | None:
    prompt: Any = request.prompt
    if isinstance(prompt, str) or not len(prompt) or not isinstance(prompt[0], Message):
        return None
    return list(prompt)


def _normalize(text: str) -> str:
    """Remove white space, thoughts and incomplete characters."""
    for begin, end in THOUGHT_MARKS:
        parts, at = [], 0
        while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
            parts.append(text[at:start])
            at = stop + len(end)
        text = "".join([*parts, text[at:]]) if parts else text
    return "".join(text.replace("\ufffd", "").split())


def _prefixes(
    ends: set[Key], prompts: set[Key]
) -> tuple[dict[Key, Key | None], dict[Key, Key | None]]:
    """Return each end's longest proper prefix and each prompt's longest prefix among `ends`."""
    shorter: dict[Key, Key | None] = {}
    longest: dict[Key, Key | None] = {}
    for kind in (str, tuple):
        items = [(end, 0) for end in ends if isinstance(end, kind)]
        items += [(prompt, 1) for prompt in prompts if isinstance(prompt, kind)]
        stack: list[Key] = []  # ends, each a prefix of the next
        for key, is_prompt in sorted(items):
            while stack and key[: len(stack[-1])] != stack[-1]:
                stack.pop()
            above = stack[-1] if stack else None
            if is_prompt:
                longest[key] = above
            else:
                shorter[key] = above
                stack.append(key)
    return shorter, longest
