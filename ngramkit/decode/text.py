"""Text to token ids and back: prompts, conversations, references, what a stream shows, stop
strings.

Prompts are encoded with the special tokens that a model expects, references without any. New tokens
are decoded as they come: half a character is held back until the rest of it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import many
from ngramkit.basics.untrusted import read_given
from ngramkit.corpus.chat import AUTO, OWN, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray
from ngramkit.drafters.references import NONE, ReferenceTexts

Reference = str | Path | Sequence[int]  # text, a file of it, or token ids
MOST_BYTES = 4 << 20  # of a reference file; encoding takes thirty times as much memory
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what an incomplete UTF-8 sequence decodes to
SEEN = 6  # prompt tokens that decide how the first new one reads (spaces, bytes)


def chat_ids(
    tokenizer: TextTokenizer, template: Template, messages: Sequence[Message]
) -> TokenArray:
    """Encode a conversation, up to where the model's next answer begins: int32[n].

    A model's own template writes all special tokens itself; with others BOS comes from the template
    or the tokenizer, and is kept once.
    """
    text = template.prompt(messages)
    if template.name == OWN:
        return tokenizer.encode(text)
    ids = tokenizer.encode_prompt(text)
    twice = len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos
    return ids[1:] if twice else ids


def chat_template(name: str, tokenizer: TextTokenizer, reporter: Reporter) -> Template:
    """Find a template by its name, and report which.

    Raises UsageError for "auto" where no template is known for the model.
    """
    template = find_template(name, tokenizer)
    if name == AUTO and template.name == "none":
        raise UsageError(
            f"{tokenizer.record.id} goes on with a text; it was not made for conversations",
            "leave out chat, or use another model",
            option="chat",
        )
    reporter.note(str(template))
    return template


def require_fits(prompt: TokenArray, model: str, context: int | None) -> None:
    """Raise UsageError for a prompt without a token, InputError for one, int32[n], that leaves no
    room in the model's context; None where that is unknown."""
    if not len(prompt):
        raise UsageError("the prompt is empty", "give at least one token of text")
    if context is not None and len(prompt) >= context:
        raise InputError(
            f"the prompt has {len(prompt):,} tokens, the context of {model} {context:,}",
            "shorten the prompt",
        )


# References.


def open_references(
    references: Sequence[Reference], tokenizer: TextTokenizer, reporter: Reporter
) -> ReferenceTexts:
    """Read and encode references, without special tokens, and report how many.

    Raises InputError for a file that cannot be read or is no text, UsageError for an empty text.
    """
    if not len(references):
        return NONE
    texts = ReferenceTexts([_reference_ids(each, tokenizer) for each in references])
    count = many(len(texts), "reference")
    reporter.note(f"drafting from {count} too, {texts.tokens:,} tokens")
    return texts


def _reference_ids(reference: Reference, tokenizer: TextTokenizer) -> Any:
    if isinstance(reference, Path):
        return tokenizer.encode(read_reference(reference))
    if isinstance(reference, str):
        if not reference:
            raise UsageError("a reference is empty", "leave it out", option="references")
        return tokenizer.encode(reference)
    return reference


def read_reference(file: Path) -> str:
    """Read a text file of at most MOST_BYTES, with line ends as "\\n"."""
    raw = read_given(file, MOST_BYTES, too_long="give the part that the answer will repeat")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}", "convert it to UTF-8") from error
    if "\0" in text:
        raise InputError(f"{file} is binary, no text", "give a text", option="references")
    if not text:
        raise InputError(f"{file} is empty", "leave it out", option="references")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# New tokens.


class TextStream:
    """The text of new tokens, as far as it is complete.

    `backend` is a tokenizers.Tokenizer. The text continues `prompt`, so that a tokenizer which
    drops the space before a text's first word keeps it here. Special tokens have no text.
    """

    def __init__(self, backend: Any, prompt: TokenArray | Sequence[int] = ()) -> None:
        self._backend = backend
        self._ids = [int(token) for token in prompt[-SEEN:]]
        self._shown = self._decode()

    def push(self, token: int) -> str:
        """Return the text that `token` completes: often its own, sometimes none."""
        self._ids.append(token)
        text = self._decode()
        if text.endswith(REPLACEMENT):
            return ""
        return self._show(text)

    def rest(self) -> str:
        """Return what was held back: the beginning of a character that never ended."""
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
    """The strings that end a text; tells at which token the new text first holds one."""

    def __init__(self, backend: Any, prompt: TokenArray, strings: Sequence[str]) -> None:
        self._stream = TextStream(backend, prompt)
        self._strings = strings
        self._longest = max(map(len, strings))
        self._tail = ""

    def completed_by(self, token: int) -> bool:
        """Add a token; return whether one of the strings is complete now."""
        piece = self._stream.push(token)
        text = self._tail + piece
        self._tail = text[-self._longest :]
        return any(string in text for string in self._strings)
