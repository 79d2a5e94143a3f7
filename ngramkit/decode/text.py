"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import REPLACEMENT
from ngramkit.corpus.chat import AUTO, OWN, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer, byte_tokens
from ngramkit.drafters.base import TokenArray

TOKENS_OF_CONTEXT = 6  # last tokens that affect the text of the next one (spaces, bytes)
MAX_CHARACTER_BYTES = 4  # maximum bytes of a UTF-8 character


def chat_ids(
    tokenizer: TextTokenizer, template: Template, messages: Sequence[Message]
) -> TokenArray:
    """Encode a conversation up to the model's next answer: int32[n].

    Other templates than the model's own may add a second BOS, which is dropped.
    """
    text = template.prompt(messages)
    if template.name == OWN:
        return tokenizer.encode(text)
    ids = tokenizer.encode_prompt(text)
    twice = len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos
    return ids[1:] if twice else ids


def require_chat_template(name: str, tokenizer: TextTokenizer, reporter: Reporter) -> Template:
    """Find a template.

    Raises UsageError for "auto" if no template is known for the model.
    """
    template = find_template(name, tokenizer)
    if name == AUTO and template.name == "none":
        raise UsageError(
            f"cannot hold a conversation with {tokenizer.record.id}: it only continues texts",
            "leave out chat, or use another model",
            option="chat",
        )
    reporter.note(str(template))
    return template


def require_fits(
    prompt: TokenArray, model: str, context: int | None, vocabulary: int | None = None
) -> None:
    """Raise UsageError for an empty prompt, int32[n], InputError for one that does not fit.

    It must leave room in `context` and have only ids below `vocabulary`; None: unknown.
    """
    if not len(prompt):
        raise UsageError("prompt must not be empty", "give at least one token of text")
    if context is not None and len(prompt) >= context:
        raise InputError(
            f"prompt must be shorter than the context of {model}, {context:,} tokens, got "
            f"{len(prompt):,}",
            "shorten the prompt",
        )
    if vocabulary is not None and int(prompt.max()) >= vocabulary:
        raise InputError(
            f"prompt must have ids below {vocabulary:,}, the number that {model} has, got "
            f"{int(prompt.max()):,}",
            "resize the model's embeddings, or use the tokenizer that belongs to the model",
        )


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
        text = self._decode(self._ids)
        open_end = REPLACEMENT if text.endswith(REPLACEMENT) else ""
        return self._show(text, open_end)

    def rest(self) -> str:
        """Return the held-back text, with replacement characters for an incomplete character."""
        return self._show(self._decode(self._ids), "")

    @property
    def pending(self) -> str:
        return self._run.decode("utf-8", "ignore")

    def _show(self, text: str, open_end: str) -> str:
        self._run.clear()
        self._in_run = False
        if text == self._before[0]:
            whole = self._move(self._ids)
            self._before = [whole, *self._shorter(whole)]
            return ""
        before = next(filter(text.startswith, self._before), None)
        if before is None:  # a run of byte tokens became invalid
            before, text = "", self._decode(self._ids[self._known :])
        piece = text[len(before) :].removesuffix(open_end)
        window = self._move(self._ids)
        self._before = [window.removesuffix(open_end)]
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
