"""Generated text on the screen as it is accepted, drafted tokens in another colour.

To a file or a pipe it goes as the model wrote it; a terminal is shown what it would obey.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

from ngramkit.visible import harmless

DRAFTED, PLAIN = "\x1b[36m", "\x1b[0m"


class Screen:
    """`show` is what decoding calls with every token. Plain where `stream` is no terminal."""

    def __init__(
        self, backend: Any, prompt: Sequence[int], stream: IO[str], *, color: bool = True
    ) -> None:
        from ngramkit.decode.text import TextStream

        self._text = TextStream(backend, prompt)
        self._stream = stream
        self._terminal = stream.isatty()
        self._color = color and self._terminal and not os.environ.get("NO_COLOR")
        self._coloured = False
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All that was shown."""
        return "".join(self._pieces)

    def show(self, token: int, drafted: bool) -> None:
        self._put(self._text.push(token), drafted)

    def end(self) -> None:
        """The last half-character, if any, and a line's end."""
        self._put(self._text.rest(), False)
        ending = "" if self.text.endswith("\n") else "\n"
        self._stream.write((PLAIN if self._coloured else "") + ending)
        self._stream.flush()

    def _put(self, piece: str, drafted: bool) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        if self._terminal:
            piece = harmless(piece)
        if self._color and drafted != self._coloured:
            piece = (DRAFTED if drafted else PLAIN) + piece
            self._coloured = drafted
        self._stream.write(piece)
        self._stream.flush()
