"""Text to the ids a model is prompted with, special tokens included."""

from __future__ import annotations

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray


def prompt_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as it stands, with the special tokens (BOS) that the tokenizer adds."""
    return tokenizer.encode_prompt(text)


def chat_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as a user's turn, and the beginning of the answer, by the chat template.

    Raises UsageError where the tokenizer has no template.
    """
    return tokenizer.encode(tokenizer.chat([{"role": "user", "content": text}]))
