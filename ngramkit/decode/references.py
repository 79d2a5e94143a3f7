"""What the answer is likely to repeat, as somebody names it: texts, files, token ids."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.references import NONE, ReferenceTexts, require_references
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.errors import InputError, UsageError
from ngramkit.formats.files import read_given
from ngramkit.progress import Reporter
from ngramkit.words import many

MOST_BYTES = 4 << 20  # of a file; encoding takes thirty times as much memory

Reference = str | Path | Sequence[int]  # text, a file of it, or token ids


def open_references(
    given: Sequence[Reference], tokenizer: TextTokenizer, reporter: Reporter
) -> ReferenceTexts:
    """Encoded without special tokens, and sorted; says how many. Raises InputError where a file
    cannot be read or is no text, UsageError for an empty one or what is none of these."""
    if isinstance(given, str | Path):
        raise UsageError("references are several texts", "give a list", option="references")
    if not len(given):
        return NONE
    found = ReferenceTexts([_ids(each, tokenizer) for each in given])
    texts = many(len(found), "reference")
    reporter.note(f"drafting from {texts} too, {found.tokens:,} tokens")
    return found


def require_use(references: Sized, drafter: Any, cache: object = None) -> None:
    """Raises UsageError where references are given to a drafter that cannot use them (by name, or
    an object; None: not chosen yet), or with a SpeCache, which takes no drafts."""
    if not len(references):
        return
    if cache is not None:
        raise UsageError(
            "a SpeCache takes no drafts and no references", "leave them out", option="references"
        )
    if isinstance(drafter, str):
        require_references(DrafterSpec.parse(drafter).name)
    elif hasattr(drafter, "draft"):  # a class that makes one, or an object
        require_references(drafter)


def _ids(reference: Reference, tokenizer: TextTokenizer) -> Any:
    if isinstance(reference, Path):
        return tokenizer.encode(read_reference(reference))
    if isinstance(reference, str):
        if not reference:
            raise UsageError("a reference is empty", "leave it out", option="references")
        return tokenizer.encode(reference)
    return reference


def read_reference(file: Path) -> str:
    """The text of a file, of MOST_BYTES at most."""
    raw = read_given(file, MOST_BYTES, hint="give the part that the answer will repeat")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}", "convert it to UTF-8") from error
    if "\0" in text:
        raise InputError(f"{file} is binary, no text", "give a text", option="references")
    if not text:
        raise InputError(f"{file} is empty", "leave it out", option="references")
    return text.replace("\r\n", "\n").replace("\r", "\n")
