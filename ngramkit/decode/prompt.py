"""Text to the ids a model is prompted with, special tokens included."""

from __future__ import annotations

from collections.abc import Sequence

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray
from ngramkit.templates import OWN, Message, Template


def prompt_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as it stands, with the special tokens (BOS) that the tokenizer adds."""
    return tokenizer.encode_prompt(text)


def chat_ids(
    tokenizer: TextTokenizer, template: Template, messages: Sequence[Message]
) -> TokenArray:
    """int32[n]: a conversation, up to where the model's next answer begins.

    A model's own template writes all special tokens itself; of others BOS, if at all, is theirs or
    the tokenizer's.
    """
    text = template.prompt(messages)
    if template.name == OWN:
        return tokenizer.encode(text)
    ids = tokenizer.encode_prompt(text)
    twice = len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos
    return ids[1:] if twice else ids
