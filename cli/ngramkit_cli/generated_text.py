"""Generated text on the screen, with drafted tokens in another colour."""

from __future__ import annotations

import os
import sys
from typing import IO

from ngramkit.basics.terminal_text import escape_controls
from ngramkit_cli.progress_reporters import QuietReporter
from ngramkit_cli.streams import require_stdout, write

DRAFTED, PLAIN = "\x1b[36m", "\x1b[0m"


class Screen:
    """Generated text. A terminal gets control characters escaped, a file or pipe the raw text."""

    def __init__(
        self, stream: IO[str], *, color: bool = True, bars: QuietReporter | None = None
    ) -> None:
        if stream is None:
            require_stdout()
        self._stream, self._bars = stream, bars
        self._terminal = stream.isatty()
        self._color = color and self._terminal and not os.environ.get("NO_COLOR")
        self._coloured = False
        self._last = ""
        self._explained = not self._color

    def _write(self, text: str) -> None:
        if self._stream is sys.stdout:
            write(text, end="")
        else:
            self._stream.write(text)
            self._stream.flush()

    def show(self, piece: str, drafted: bool) -> None:
        """Show a piece of text; "" ends the text, as for `show` of DecodeOptions."""
        if self._bars is not None:
            self._bars.close()  # keeps bars out of the text
        if not piece:
            self.end()
            return
        self._last = piece
        if self._terminal:
            piece = escape_controls(piece)
        if not self._explained:
            self._write(f"[{DRAFTED}drafted{PLAIN}, the model's own]\n")
            self._explained = True
        if self._color and drafted != self._coloured:
            piece = (DRAFTED if drafted else PLAIN) + piece
            self._coloured = drafted
        self._write(piece)

    def end(self) -> None:
        ending = "" if self._last.endswith("\n") else "\n"
        self._write((PLAIN if self._coloured else "") + ending)
        self._last, self._coloured = "", False
