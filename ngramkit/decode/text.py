"""Tokens to text as they come: half a character is held back until the rest of it is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngramkit.drafters.base import TokenArray

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what an incomplete UTF-8 sequence decodes to
SEEN = 6  # prompt tokens that decide how the first new one reads (spaces, bytes)


class TextStream:
    """`push` gives the text that a token completes, often the token's own, sometimes none.

    `backend` is a tokenizers.Tokenizer. The text continues `prompt`, so that a tokenizer which
    drops the space before a text's first word keeps it here. Special tokens have no text.
    """

    def __init__(self, backend: Any, prompt: TokenArray | Sequence[int] = ()) -> None:
        self._backend = backend
        self._ids = [int(token) for token in prompt[-SEEN:]]
        self._shown = self._decode()

    def push(self, token: int) -> str:
        self._ids.append(token)
        text = self._decode()
        if text.endswith(REPLACEMENT):
            return ""
        return self._show(text)

    def rest(self) -> str:
        """What was held back: the beginning of a character that never ended."""
        return self._show(self._decode())

    def _show(self, text: str) -> str:
        piece = text[len(self._shown) :]
        self._ids = self._ids[-SEEN:]
        self._shown = self._decode()
        return piece

    def _decode(self) -> str:
        text: str = self._backend.decode(self._ids, skip_special_tokens=True)
        return text


class StopStrings:
    """Says at which token the new text first holds one of `strings`."""

    def __init__(self, backend: Any, prompt: TokenArray, strings: Sequence[str]) -> None:
        self._stream = TextStream(backend, prompt)
        self._strings = strings
        self._longest = max(map(len, strings))
        self._tail = ""

    def completed_by(self, token: int) -> bool:
        piece = self._stream.push(token)
        text = self._tail + piece
        self._tail = text[-self._longest :]
        return any(string in text for string in self._strings)
