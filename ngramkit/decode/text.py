"""Text from token ids, as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        whole = self._move([int(token) for token in prompt[-2 * TOKENS_OF_CONTEXT :]])
        # The known text and, if it ends inside a character, the text without that character.
        self._before = [whole, *self._shorter(whole)]

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
        text = self._decode(self._ids)
        incomplete = REPLACEMENT if hold_back and text.endswith(REPLACEMENT) else ""
        self._run.clear()
        self._in_run = False
        if text == self._before[0]:
            whole = self._move(self._ids)
            self._before = [whole, *self._shorter(whole)]
            return ""
        before = next(filter(text.startswith, self._before), None)
        if before is None:  # a run of byte tokens became invalid
            before, text = "", self._decode(self._ids[self._known :])
        piece = text[len(before) :].removesuffix(incomplete)
        window = self._move(self._ids)
        self._before = [window.removesuffix(incomplete)]
        return piece

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

    def _shorter(self, whole: str) -> Iterator[str]:
        for count in range(1, MAX_CHARACTER_BYTES):
            if whole.endswith(REPLACEMENT):
                whole = self._decode(self._ids[:-count])
                yield whole

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=not self._special)
        return text
