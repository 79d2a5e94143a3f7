"""`decode --chat` without a prompt: a conversation on a terminal, through a pipe a prompt a line.

Knows lines and keys; the conversation itself is ngramkit.decode.conversation's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from ngramkit.errors import InputError, UsageError
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import MOST_BYTES
from ngramkit_cli.streaming import Screen

if TYPE_CHECKING:
    from ngramkit.decode.conversation import Conversation, Reply

ASK = "> "
ENDS = {"length": "; cut at --max-new-tokens", "interrupt": "; interrupted"}
HELP = "/exit (or Ctrl-D) ends, /new begins another conversation, Ctrl-C ends an answer"


def converse(talk: Conversation, screen: Screen, out: Output) -> list[Reply]:
    """Hold the conversation; return all replies, in order. Raises UsageError where there is no
    prompt."""
    if sys.stdin is None:
        raise InputError("stdin is closed", "give --prompt")
    if sys.stdin.isatty():
        return _answer_turns(talk, screen, out)
    replies = _answer_lines(talk, sys.stdin, screen, out)
    if not replies:
        raise UsageError("there is no prompt", "give --prompt, or a prompt a line on stdin")
    return replies


def _answer_turns(talk: Conversation, screen: Screen, out: Output) -> list[Reply]:
    """Answer turn after turn until /exit or the input's end. Prints what does not fit."""
    out.say(HELP)
    replies: list[Reply] = []
    for line in _typed_lines():
        if line in ("/exit", "/quit"):
            break
        if line == "/new":
            talk.clear()
            out.say("a new conversation")
        elif line.startswith("/"):
            out.say(HELP)
        elif line:
            try:
                replies.append(_ask(talk, line, screen, out))
            except InputError as error:
                out.say(f"error: {error}", f"  {error.hint}: /new")
    return replies


def _answer_lines(talk: Conversation, lines: IO[str], screen: Screen, out: Output) -> list[Reply]:
    """Answer every line as a prompt of its own. Ctrl-C ends them all."""
    replies: list[Reply] = []
    while line := lines.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES:
            raise InputError(f"a line of more than {MOST_BYTES:,} characters", "give a shorter one")
        if line.strip():
            talk.clear()
            replies.append(_ask(talk, line.rstrip("\r\n"), screen, out))
            if replies[-1].run.ended_by == "interrupt":
                break
    return replies


def _typed_lines() -> Iterator[str]:
    """Yield lines as they are typed, with the keys of readline where there is one."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (input() uses it)
    while True:
        try:
            yield input(ASK).strip()
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(f"\n{HELP}", file=sys.stderr)


def _ask(talk: Conversation, line: str, screen: Screen, out: Output) -> Reply:
    """Show the answer to a line, and what it took."""

    def show(piece: str, drafted: bool) -> None:
        out.reporter.close()  # bars would stand in the text
        screen.show(piece, drafted)

    reply = talk.ask(line, show)
    screen.end()
    run = reply.run
    out.say(
        f"[{len(run.token_ids)} tokens, {run.tokens_per_step:.2f} tokens/step, "
        f"{run.tokens_per_second:,.1f} tokens/s; {reply.held} of {run.prompt_tokens} prompt tokens "
        f"were in memory{ENDS.get(run.ended_by, '')}]"
    )
    return reply
