"""The ends of an answer: the model's end token, a stop string, the length, the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngramkit.decode.request import Request
from ngramkit.decode.text import TextStream
from ngramkit.drafters.base import TokenArray


def reason_to_end(request: Request, token: int, length: int) -> str:
    """Return why the answer ends with `token`, its token number `length`; "" if it goes on."""
    stopped = request.stop is not None and request.stop(token)
    if token in request.eos:
        return "eos"
    if stopped:
        return "stop"
    if length >= request.longest:
        return "length" if request.longest == request.max_new_tokens else "context"
    return ""


class StopStrings:
    """Finds the token that completes a stop string; special tokens count as text."""

    def __init__(self, backend: Any, prompt: TokenArray, strings: Sequence[str]) -> None:
        self._stream = TextStream(backend, prompt, special=True)
        self._strings = strings
        self._longest = max(map(len, strings))
        self._tail = ""

    def completed_by(self, token: int) -> bool:
        self._tail = self._tail[-self._longest :] + self._stream.push(token)
        text = self._tail + self._stream.pending
        return any(string in text for string in self._strings)
