"""The prompt: from --prompt, --prompt-file, stdin, or for `demo` an embedded one."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ngramkit.basics.errors import InputError, UsageError
from ngramkit_cli.options import RULE, TEMPLATES
from ngramkit_cli.output import Output

MOST_BYTES = 1 << 26  # of a prompt: more than any model reads


@dataclass(frozen=True)
class PromptOptions:
    """Options of what the model goes on with. A field is an option."""

    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="The prompt; may be repeated, with an answer to each."),
    ] = None
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the prompt from FILE; - is stdin.")
    ] = None
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="The prompt is a user's turn: wrap it in the model's template. Without a prompt: "
            "a conversation; through a pipe, a prompt a line.",
        ),
    ] = False
    template: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"With --chat: {TEMPLATES}. Default: {RULE}."),
    ] = None
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --chat: what the model is told first.")
    ] = None
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A text that the answer is likely to repeat, as the old version of a file: drafts "
            "are taken from it first. May be repeated.",
        ),
    ] = None

    @property
    def is_conversation(self) -> bool:
        return self.chat and not self.prompt and self.prompt_file is None

    def keywords(self) -> dict[str, Any]:
        """Return the words of DecodeOptions."""
        return {
            "chat": self.chat,
            "template": self.template,
            "system": self.system,
            "references": self.reference or (),
        }

    def read(self, model: str, out: Output) -> list[str]:
        """Read the prompts' texts. Raises UsageError where there is none or two sources of them,
        InputError where a file cannot be read."""
        if self.prompt and self.prompt_file is not None:
            raise UsageError("--prompt and --prompt-file exclude each other", "give one of them")
        return self.prompt or [read_prompt(self.prompt_file, model, out)]


def read_prompt(file: Path | None, model: str, out: Output) -> str:
    """Read a prompt. Raises UsageError where there is none, InputError where a file cannot be
    read."""
    if file is not None and str(file) != "-":
        return _read_file(file)
    if file is not None or (sys.stdin is not None and not sys.stdin.isatty()):
        text = _read_stdin()
        if text or file is not None:
            return text
    return _embedded_prompt(model, out)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("stdin is closed", "give --prompt, or a file")
    raw = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise InputError(f"stdin has more than {MOST_BYTES:,} bytes", "give a shorter prompt")
    return _decode(raw, "stdin")


def _read_file(file: Path) -> str:
    from ngramkit.basics.untrusted import read_given

    return _decode(read_given(file, MOST_BYTES, too_long="shorten the prompt"), str(file))


def _decode(raw: bytes, where: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
        return io.IncrementalNewlineDecoder(None, translate=True).decode(text, True)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8: {error}", "convert it to UTF-8") from error


def _embedded_prompt(model: str, out: Output) -> str:
    if model != "demo":
        raise UsageError("there is no prompt", "give --prompt, --prompt-file or text on stdin")
    from ngramkit.demo import demo_prompts

    where, text = demo_prompts(1)[0]
    out.say(f"no prompt given; taking the embedded one, from the held-out file {where}:")
    out.say(*text.rstrip("\n").split("\n"))
    return text
