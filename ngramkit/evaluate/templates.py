"""How a conversation became the text that a chat model saw.

Knows the marks of each template; knows nothing of tokens or of drafters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.errors import UsageError


@dataclass(frozen=True)
class Message:
    role: str  # "system", "user" or "assistant"
    content: str


class Template(Protocol):
    def prompt(self, messages: Sequence[Message]) -> str:
        """The text up to where the model's next answer begins."""

    @property
    def joint(self) -> str:
        """What stands between the prompt and the answer's own text."""


@dataclass(frozen=True)
class MarkTemplate:
    """Fixed marks around each turn."""

    system: str  # the default system message; "" for none
    system_form: str
    user: str
    assistant: str
    ask: str  # opens the answer
    joint: str = ""

    def prompt(self, messages: Sequence[Message]) -> str:
        system = next((m.content for m in messages if m.role == "system"), self.system)
        text = self.system_form.format(system) if system else ""
        for message in messages:
            if message.role != "system":
                form = self.user if message.role == "user" else self.assistant
                text += form.format(message.content)
        return text + self.ask


class Llama2Template:
    """`[INST] question [/INST] answer`, a system message inside the first question."""

    joint = " "

    def __init__(self, begin: str, end: str, system: bool) -> None:
        self.begin, self.end, self.system = begin, end, system

    def prompt(self, messages: Sequence[Message]) -> str:
        text, before = "", ""
        for message in messages:
            if message.role == "system":
                mark = "<<SYS>>\n{}\n<</SYS>>\n\n" if self.system else "{}\n\n"
                before = mark.format(message.content)
            elif message.role == "user":
                text += f"{self.begin}[INST] {before}{message.content} [/INST]"
                before = ""
            else:
                text += f" {message.content}{self.end}"
        return text


class TokenizerTemplate:
    """The chat template that came with the model's tokenizer."""

    joint = ""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        if not tokenizer.chat_template:
            raise UsageError(
                "the model's tokenizer has no chat format of its own",
                "choose a template: vicuna, chatml, llama-2, mistral or none",
                option="template",
            )
        self.tokenizer = tokenizer

    def prompt(self, messages: Sequence[Message]) -> str:
        return self.tokenizer.chat([{"role": m.role, "content": m.content} for m in messages])


VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)
MARKS = {
    "vicuna": MarkTemplate(
        VICUNA_SYSTEM, "{} ", "USER: {} ", "ASSISTANT: {}</s>", "ASSISTANT:", " "
    ),
    "chatml": MarkTemplate(
        "",
        "<|im_start|>system\n{}<|im_end|>\n",
        "<|im_start|>user\n{}<|im_end|>\n",
        "<|im_start|>assistant\n{}<|im_end|>\n",
        "<|im_start|>assistant\n",
    ),
    "none": MarkTemplate("", "{}\n\n", "{}\n\n", "{}\n\n", ""),
}
NAMES = (*MARKS, "llama-2", "mistral", "tokenizer")


def find_template(name: str, tokenizer: TextTokenizer) -> Template:
    """The template called `name`; Raises UsageError."""
    if name in MARKS:
        return MARKS[name]
    if name == "llama-2":
        return Llama2Template("<s>", " </s>", system=True)
    if name == "mistral":
        return Llama2Template("", "</s>", system=False)
    if name == "tokenizer":
        return TokenizerTemplate(tokenizer)
    raise UsageError(f"no template is called {name!r}", f"templates: {', '.join(sorted(NAMES))}")
