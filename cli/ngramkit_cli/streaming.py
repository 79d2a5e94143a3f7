"""Generated text on the screen as it is accepted, drafted tokens in another colour.

To a file or a pipe it goes as the model wrote it; a terminal is shown what it would obey.
"""

from __future__ import annotations

import os
from typing import IO

from ngramkit.text import harmless

DRAFTED, PLAIN = "\x1b[36m", "\x1b[0m"


class Screen:
    """`show` is what decoding calls with every piece of text. Plain where there is no terminal."""

    def __init__(self, stream: IO[str], *, color: bool = True) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._color = color and self._terminal and not os.environ.get("NO_COLOR")
        self._coloured = False
        self._last = ""
        self._explained = not self._color

    def show(self, piece: str, drafted: bool) -> None:
        self._last = piece
        if self._terminal:
            piece = harmless(piece)
        if not self._explained:
            self._stream.write(f"[{DRAFTED}drafted{PLAIN}, the model's own]\n")
            self._explained = True
        if self._color and drafted != self._coloured:
            piece = (DRAFTED if drafted else PLAIN) + piece
            self._coloured = drafted
        self._stream.write(piece)
        self._stream.flush()

    def end(self) -> None:
        """End the line."""
        ending = "" if self._last.endswith("\n") else "\n"
        self._stream.write((PLAIN if self._coloured else "") + ending)
        self._stream.flush()
        self._last, self._coloured = "", False
