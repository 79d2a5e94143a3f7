"""The prompt: from --prompt, --prompt-file or stdin, or an embedded one for `demo`."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import typer

from ngramkit.basics.errors import InputError, UsageError
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import TEMPLATE_RULE, TEMPLATES

MAX_PROMPT_BYTES = 1 << 26  # per prompt, more than any model reads


@dataclass(frozen=True)
class PromptOptions:
    PANEL: ClassVar[str] = "Prompt"

    prompt: list[str] | None = typer.Option(
        None, metavar="TEXT", help="The prompt. May be repeated; each gets an answer."
    )
    prompt_file: Path | None = typer.Option(
        None, metavar="FILE", help="Read the prompt from FILE; - is stdin."
    )
    chat: bool = typer.Option(
        False,
        "--chat",
        help="Make the prompt a user's turn in the model's template. Without a prompt: a "
        "conversation; through a pipe, one prompt per line.",
    )
    template: str | None = typer.Option(
        None, metavar="NAME", help=f"With --chat: {TEMPLATES}. Default: {TEMPLATE_RULE}."
    )
    system: str | None = typer.Option(None, metavar="TEXT", help="With --chat: the system message.")
    reference: list[Path] | None = typer.Option(
        None,
        metavar="FILE",
        help="A text that the answer probably repeats, such as the old version of a file. May "
        "be repeated.",
    )

    def read(self, model: str, out: Output) -> list[str]:
        """Read the prompts. Raises UsageError for no source or two, InputError for a bad file."""
        if self.prompt and self.prompt_file is not None:
            raise UsageError("cannot use --prompt with --prompt-file", "Give one of them.")
        return self.prompt or [read_prompt(self.prompt_file, model, out)]


def read_prompt(file: Path | None, model: str, out: Output) -> str:
    """Read a prompt. Raises UsageError without one, InputError for an unreadable file."""
    if file is not None and str(file) != "-":
        return _read_file(file)
    if file is not None or (sys.stdin is not None and not sys.stdin.isatty()):
        text = _read_stdin()
        if text or file is not None:
            return text
    return _embedded_prompt(model, out)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("cannot read a prompt: stdin is closed", "Give --prompt, or a file.")
    raw = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(raw) > MAX_PROMPT_BYTES:
        raise InputError(
            f"stdin must have at most {MAX_PROMPT_BYTES:,} bytes", "Shorten the prompt."
        )
    return decode_prompt(raw, "stdin")


def _read_file(file: Path) -> str:
    from ngramkit.basics.untrusted import read_given

    return decode_prompt(
        read_given(file, MAX_PROMPT_BYTES, too_long="shorten the prompt"), str(file)
    )


def decode_prompt(raw: bytes, where: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
        return io.IncrementalNewlineDecoder(None, translate=True).decode(text, True)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} must be UTF-8: {error}", "Convert it to UTF-8.") from error


def _embedded_prompt(model: str, out: Output) -> str:
    if model != "demo":
        raise UsageError("a prompt must be given", "Give --prompt, --prompt-file or text on stdin.")
    from ngramkit.demo import demo_prompts

    where, text = demo_prompts(1)[0]
    out.say(f"no prompt given; using the embedded one, from the held-out file {where}:")
    out.say(*text.rstrip("\n").split("\n"))
    return text
