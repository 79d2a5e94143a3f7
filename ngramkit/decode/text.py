"""Text from token ids, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngramkit.basics.terminal_text import REPLACEMENT
from ngramkit.corpus.tokenizer import byte_tokens
from ngramkit.drafters.base import TokenArray

TOKENS_OF_CONTEXT = 6  # last tokens that affect the text of the next one (spaces, bytes)
MAX_CHARACTER_BYTES = 4  # maximum bytes of a UTF-8 character


class TextStream:
    """The text of new tokens as it becomes final; equals decoding all tokens at once.

    It continues `prompt`: a leading space stays, and an open character is completed. `backend` is a
    tokenizers.Tokenizer.

    Incomplete characters are held back, and runs of byte tokens ("<0x0A>"): decoders turn a whole
    run into replacement characters if it ends inside a character.
    """

    def __init__(
        self, backend: Any, prompt: TokenArray | Sequence[int] = (), *, special: bool = False
    ) -> None:
        self._backend, self._special = backend, special
        self._byte_of = byte_tokens(backend)
        self._in_run = bool(len(prompt)) and int(prompt[-1]) in self._byte_of
        self._run = bytearray()  # held-back new byte tokens
        self._ids: list[int] = []  # a window of the last tokens
        self._known = 0  # tokens of the window whose text is known
        # The known text, and what it may be without an incomplete character at its end.
        self._before: list[str] = []
        self._begin_after([int(token) for token in prompt[-2 * TOKENS_OF_CONTEXT :]])

    def push(self, token: int) -> str:
        """Return the text that `token` completes."""
        self._ids.append(token)
        byte = self._byte_of.get(token)
        if byte is not None:
            self._run.append(byte)
            self._in_run = True
            return ""
        if self._in_run and not self._decode([token]):  # a special token does not end a run
            return ""
        return self._take_new_text(hold_back=True)

    def flush(self) -> str:
        """Return the held-back text, with replacement characters for an incomplete character."""
        return self._take_new_text(hold_back=False)

    @property
    def pending(self) -> str:
        return self._run.decode("utf-8", "ignore")

    def _take_new_text(self, *, hold_back: bool) -> str:
        """Return the text since the last call, without an incomplete character if `hold_back`."""
        self._run.clear()
        self._in_run = False
        text = self._decode(self._ids)
        if text == self._before[0]:
            self._begin_after(self._ids)
            return ""
        before = [known for known in self._before if text.startswith(known)]
        # Without one, a run of byte tokens became invalid.
        new = text.removeprefix(before[0]) if before else self._decode(self._ids[self._known :])
        incomplete = REPLACEMENT if hold_back and text.endswith(REPLACEMENT) else ""
        self._before = [self._move(self._ids).removesuffix(incomplete)]
        return new.removesuffix(incomplete)

    def _begin_after(self, ids: list[int]) -> None:
        """Expect text after `ids`, which may end inside a character."""
        self._before = [self._move(ids)]
        for count in range(1, MAX_CHARACTER_BYTES):
            if self._before[-1].endswith(REPLACEMENT):
                self._before.append(self._decode(self._ids[:-count]))

    def _move(self, ids: list[int]) -> str:
        """Keep the last tokens from a whole character on; return their text.

        They are TOKENS_OF_CONTEXT tokens, or up to three more.
        """
        for count in range(TOKENS_OF_CONTEXT, TOKENS_OF_CONTEXT + MAX_CHARACTER_BYTES):
            self._ids = ids[-count:]
            text = self._decode(self._ids)
            byte = self._byte_of.get(self._ids[0]) if self._ids else None
            is_inside = text.startswith(REPLACEMENT) if byte is None else byte & 0xC0 == 0x80
            if not is_inside:
                break
        self._known = len(self._ids)
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=not self._special)
        return text
