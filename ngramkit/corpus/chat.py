"""Conversations as the text that a chat model reads: jinja2 templates, and the choice of one.

It is the model's own template, else the one that is known for its name; none is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ngramkit.corpus.chat_template import render_chat, render_confined
from ngramkit.errors import InputError, UsageError
from ngramkit.models import DEFAULT, resolve_model

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer


OWN, AUTO = "own", "auto"
PLACEHOLDER = "\N{SNOWMAN}"  # an answer, to find the text around it

# FastChat's vicuna_v1.1, as in its conversation.py: a space after a question, </s> after an answer.
VICUNA = """\
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}\
A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful\
, detailed, and polite answers to the user's questions.{% endif %} {% for m in messages %}\
{% if m.role == 'user' %}USER: {{ m.content }} \
{% elif m.role == 'assistant' %}ASSISTANT: {{ m.content }}</s>{% endif %}{% endfor %}\
{% if add_generation_prompt %}ASSISTANT:{% endif %}"""
# Meta's llama/generation.py: a system message stands inside the first question.
LLAMA_2 = """\
{%- set first = messages[0] if messages[0].role == 'system' else none %}{% for m in messages %}\
{% if m.role == 'user' %}<s>[INST] \
{% if first and loop.index0 == 1 %}<<SYS>>\n{{ first.content }}\n<</SYS>>\n\n{% endif %}\
{{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }} </s>{% endif %}\
{% endfor %}"""
# Mistral's own, as its Instruct models up to v0.2 ship it.
MISTRAL = """\
{%- set first = messages[0] if messages[0].role == 'system' else none %}{% for m in messages %}\
{% if m.role == 'user' %}[INST] \
{% if first and loop.index0 == 1 %}{{ first.content }}\n\n{% endif %}\
{{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}\
{% endfor %}"""
CHATML = """\
{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
NONE = "{{ messages | map(attribute='content') | join('\n\n') }}"
KNOWN = {"vicuna": VICUNA, "llama-2": LLAMA_2, "mistral": MISTRAL, "chatml": CHATML, "none": NONE}
NAMES = (AUTO, OWN, *KNOWN)

# (pattern of a model's name, the template that it was trained on)
BY_NAME = (
    (r"vicuna", "vicuna"),
    (r"(llama-?2.*chat|codellama.*instruct)", "llama-2"),
    (r"(mistral|mixtral).*instruct", "mistral"),
    (r"(chatml|hermes|dolphin|qwen.*(chat|instruct)|smollm.*instruct)", "chatml"),
)


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True)
class Template:
    """A chat template: jinja2 text, and the model's special tokens by name."""

    name: str
    source: str
    special: tuple[tuple[str, str], ...] = ()
    why: str = ""  # why it was chosen; "" for one that was named

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the text up to where the model's next answer begins. Raises InputError where the
        template fails or refuses the conversation."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        render = render_confined if self.name == OWN else render_chat
        return render(self.source, turns, dict(self.special))

    @cached_property
    def joint(self) -> str:
        """The white space between a prompt and the answer's own text."""
        question = Message("user", "?")
        try:
            before = self.prompt([question])
            whole = self.prompt([question, Message("assistant", PLACEHOLDER)])
        except InputError:
            return ""
        between = whole.removeprefix(before).partition(PLACEHOLDER)[0]
        plain = self.name == "none" or not whole.startswith(before)
        return "" if plain or between.strip() else between

    def __str__(self) -> str:
        name = "the model's own" if self.name == OWN else self.name
        return f"template: {name}{self.why and f' ({self.why})'}"


def find_template(name: str, tokenizer: TextTokenizer) -> Template:
    """Return the template `name`; for auto the model's own, else the one known for its name.

    Raises UsageError for an unknown name, and for auto and own where there is none.
    """
    model = tokenizer.record.id
    require_template(name)
    if name in KNOWN:
        return Template(name, KNOWN[name])
    if tokenizer.chat_template is not None:
        special = tuple(sorted(tokenizer.special.items()))
        return Template(OWN, tokenizer.chat_template, special)
    by_name = known_for(model) if name == AUTO else None
    if by_name is None:
        raise UsageError(
            f"{model} brings no format of conversations"
            + (", and none is known for its name" if name == AUTO else ""),
            f"give template={'|'.join(KNOWN)}; none leaves prompts as they are",
            option="template",
        )
    return Template(by_name, KNOWN[by_name], why=f"known for {model}")


def require_template(name: str) -> None:
    """Raise UsageError where no template is called that."""
    if name not in NAMES:
        raise UsageError(
            f"template must be one of {', '.join(NAMES)}, is {name!r}", option="template"
        )


def known_for(model: str) -> str | None:
    """Return the template for a model by the last part of its name, id or folder.

    >>> known_for("vicuna-7b"), known_for("me/Llama-2-7b-chat-hf"), known_for("mistral-7b")
    ('vicuna', 'llama-2', None)
    """
    if model == DEFAULT:
        return "none"  # it writes code
    for name in (model, resolve_model(model)):
        last = name.rstrip("/").rsplit("/", 1)[-1].lower()
        for pattern, template in BY_NAME:
            if re.search(pattern, last):
                return template
    return None
