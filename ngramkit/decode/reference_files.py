"""References as given: texts, text files or token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.basics.terminal_text import counted
from ngramkit.basics.untrusted import read_given
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.references import ReferenceTexts

Reference = str | Path | Sequence[int]  # text, a text file, or token ids
MAX_REFERENCE_FILE_BYTES = 4 << 20  # encoding takes 30 times as much memory


def open_references(
    references: Sequence[Reference], tokenizer: TextTokenizer, reporter: Reporter
) -> ReferenceTexts:
    """Read and encode references without special tokens.

    Raises InputError for a file that is not readable text, UsageError for an empty text.
    """
    texts = ReferenceTexts([_reference_ids(each, tokenizer) for each in references])
    count = counted(len(texts), "reference")
    reporter.note(f"drafting from {count} too, {texts.tokens:,} tokens")
    return texts


def _reference_ids(reference: Reference, tokenizer: TextTokenizer) -> Any:
    if isinstance(reference, Path):
        return tokenizer.encode(read_reference(reference))
    if isinstance(reference, str):
        if not reference:
            raise UsageError(
                "references must not be empty, got an empty text",
                "Leave it out.",
                option="references",
            )
        return tokenizer.encode(reference)
    return reference


def read_reference(file: Path) -> str:
    raw = read_given(
        file, MAX_REFERENCE_FILE_BYTES, too_long="give the part that the answer will repeat"
    )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {file} as UTF-8: {error}", "Convert it to UTF-8.") from error
    if "\0" in text:
        raise InputError(
            f"{file} must be text, got binary data", "Give a text.", option="references"
        )
    if not text:
        raise InputError(
            f"references must not be empty, got {file}", "Leave it out.", option="references"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")
