"""Text to the ids a model is prompted with, special tokens included."""

from __future__ import annotations

import numpy as np

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.drafters.base import TokenArray
from ngramkit.errors import UsageError


def prompt_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as it stands, with the special tokens (BOS) that the tokenizer adds."""
    return np.array(tokenizer.full(text)["input_ids"], np.int32)


def chat_ids(tokenizer: TextTokenizer, text: str) -> TokenArray:
    """int32[n]: `text` as a user's turn, and the beginning of the answer, by the chat template.

    Raises UsageError where the tokenizer has no template.
    """
    if tokenizer.full.chat_template is None:
        raise UsageError(
            f"the tokenizer of {tokenizer.record.id} has no template for conversations",
            "leave out chat, or use an instruction-tuned model",
            option="chat",
        )
    turn = [{"role": "user", "content": text}]
    ids = tokenizer.full.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
    return np.array(ids, np.int32)
