"""Prompts: the template that wraps them, their token ids, and whether they fit the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import AUTO, OWN, Message, Template, find_template
from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.decode.options import DecodeOptions
from ngramkit.drafters.base import TokenArray


def require_prompt(prompt: Any) -> None:
    if not isinstance(prompt, str):
        raise UsageError(
            f"a prompt must be a text, got {prompt!r:.60}",
            "Give texts, or use ngramkit.Conversation for messages.",
            option="prompts",
        )


def choose_chat_template(options: DecodeOptions, tokenizer: TextTokenizer) -> Template:
    """Return the template of a conversation.

    Raises UsageError if no template was named and none is known for the model.
    """
    name = options.template or AUTO
    template = find_template(name, tokenizer)
    if name == AUTO and template.name == "none":
        raise UsageError(
            f"cannot hold a conversation with {tokenizer.record.id}: it only continues texts",
            "Leave out chat, or use another model.",
            option="chat",
        )
    options.reporter.note(str(template))
    return template


def first_messages(system: str | None) -> list[Message]:
    """Return the messages before the first turn."""
    return [Message("system", system)] if system else []


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


def require_prompt_fits(
    prompt: TokenArray,
    model: str,
    context: int | None,
    vocabulary: int | None = None,
    *,
    what: str = "prompt",
    hint: str = "Shorten the prompt.",
) -> None:
    """Raise UsageError for an empty prompt, int32[n], InputError for one that does not fit.

    It must leave room in `context` and have only ids below `vocabulary`; None: unknown.
    """
    if not len(prompt):
        raise UsageError("prompt must not be empty", "Give at least one token of text.")
    if context is not None and len(prompt) >= context:
        raise InputError(
            f"{what} must be shorter than the context of {model}, {context:,} tokens, got "
            f"{len(prompt):,}",
            hint,
        )
    if vocabulary is not None and int(prompt.max()) >= vocabulary:
        raise InputError(
            f"prompt must have ids below {vocabulary:,}, the number that {model} has, got "
            f"{int(prompt.max()):,}",
            "Resize the model's embeddings, or use the tokenizer that belongs to the model.",
        )
