"""`ngramkit decode`: a prompt in, the model's own text out, several tokens per pass.

With --chat and no prompt it is a conversation: turn by turn on a terminal, one prompt per line
through a pipe.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.machine import busy_note
from ngramkit.basics.terminal_text import counted
from ngramkit_cli import decode_options as opt, streams
from ngramkit_cli.errors import EXIT_INTERRUPTED
from ngramkit_cli.generated_text import Screen
from ngramkit_cli.output import Output
from ngramkit_cli.prompt import MAX_PROMPT_BYTES, PromptOptions, decode_prompt
from ngramkit_cli.python_drafters import named_drafter
from ngramkit_cli.shared_options import DRAFTER_OR_CLASS, SourceOptions, takes_urls, the_model

if TYPE_CHECKING:
    from ngramkit.decode.answer import Answer
    from ngramkit.decode.compare import Comparison
    from ngramkit.decode.conversation import Conversation
    from ngramkit.decode.result import Decoded

NEW_TOKENS = 128
NEW_TOKENS_OF_TURN = 1024
ENDS = {"context": "; the model's context is full", "interrupt": "; interrupted"}
TURN_ENDS = {"length": "; cut at --max-new-tokens", "interrupt": "; interrupted"}
CHAT_HELP = "/exit (or Ctrl-D) ends, /new begins a new conversation, Ctrl-C ends an answer"


@takes_urls
def decode(
    *,
    drafter: str | None = DRAFTER_OR_CLASS,
    model: str | None = opt.MODEL,
    sources: SourceOptions,
    prompting: PromptOptions,
    max_new_tokens: int | None = typer.Option(
        None,
        min=1,
        help=f"Tokens at most. Default: {NEW_TOKENS}; of an answer in a conversation "
        f"{NEW_TOKENS_OF_TURN}.",
    ),
    sampling: opt.SamplingOptions,
    running: opt.RunOptions,
    caching: opt.CacheOptions,
    stop: list[str] | None = opt.STOP,
    compare: bool = typer.Option(
        False,
        "--compare",
        help="Also decode without drafts and with transformers' generate; print the speed-ups.",
    ),
    color: bool = typer.Option(
        True, "--color/--no-color", help="Colour drafted tokens on a terminal."
    ),
    out: Output,
) -> None:
    """Decode with drafts: the text that the model writes without them, in fewer passes.

    Example: ngramkit decode --drafter rest --prompt "def main(" --compare
    """
    from ngramkit.decode.answer import answer
    from ngramkit.decode.conversation import Conversation
    from ngramkit.decode.options import DecodeOptions

    name = the_model(model, out)
    # With --json a conversation is shown on stderr, for the user who types.
    screen = Screen(sys.stderr if out.json else sys.stdout, color=color, bars=out.reporter)
    talks = prompting.chat and not prompting.prompt and prompting.prompt_file is None
    options = DecodeOptions(
        name,
        drafter=named_drafter(drafter),
        **sources.keywords(),
        chat=prompting.chat,
        template=prompting.template,
        system=prompting.system,
        references=prompting.reference or (),
        **vars(sampling),
        **vars(running),
        cache=caching.chosen(),
        max_new_tokens=max_new_tokens or (NEW_TOKENS_OF_TURN if talks else NEW_TOKENS),
        stop=stop or (),
        compare=compare,
        show=None if out.json or talks else screen.show,
        reporter=out.reporter,
    )
    if talks:
        talk = Conversation.of(options)
        replies: list[dict[str, Any]] = []
        out.partial = {"replies": replies, **talk.facts}
        whole = converse(talk, replies, screen, out)
        out.result(" ".join(talk.drafter.names) or None, **out.partial)
        if not whole:
            raise typer.Exit(EXIT_INTERRUPTED)
        return
    answers = answer(prompting.read(name, out), options)
    for each in answers:
        say_times(out, each, greedy=options.sampling.greedy)
        if each.run.cache is not None:
            out.say(str(each.run.cache))
    results = [each.to_dict() for each in answers]
    artifacts = " ".join(answers[0].drafter.names) or None
    out.result(artifacts, **(results[0] if len(results) == 1 else {"answers": results}))
    if answers[-1].run.ended_by == "interrupt":
        raise typer.Exit(EXIT_INTERRUPTED)


def say_times(out: Output, answer: Answer, *, greedy: bool) -> None:
    run, comparison = answer.run, answer.comparison
    shares = {
        "prefill": run.prefill_seconds,
        "drafting": run.draft_seconds,
        "verifying": run.verify_seconds,
        "the rest": run.other_seconds,
    }
    times = ", ".join(f"{name} {share:.3f} s" for name, share in shares.items())
    passes = counted(run.passes, "pass", "passes")
    out.say(
        f"{counted(len(run.token_ids), 'token')}, {passes}, {run.tokens_per_step:.2f} tokens/step, "
        f"{run.tokens_per_second:,.1f} tokens/s ({times}){ENDS.get(run.ended_by, '')}"
    )
    if run.cache is None and answer.drafter.label != "none":
        out.say(drafts_of(run))
    if comparison is not None:
        for line in show_comparison(comparison, greedy=greedy):
            out.say(line)


def show_comparison(comparison: Comparison, *, greedy: bool) -> Iterator[str]:
    baseline, generate = comparison.baseline, comparison.generate
    seconds = f"{comparison.drafted.seconds:.3f} s, without drafts {baseline.seconds:.3f} s"
    differ = "" if comparison.identical else ", texts differ"
    if comparison.comparable:
        nothing = "" if comparison.drafted.drafted_passes else " (noise: nothing was drafted)"
        yield (
            f"{seconds} on the same weights: speed-up {comparison.shown_speedup}{nothing}{differ}"
        )
    if generate is not None and comparison.comparable:
        why = "packed weights" if comparison.packed else "a shorter loop"
        yield (
            f"transformers' generate {generate.seconds:.3f} s: speed-up over it "
            f"{comparison.over_generate:.2f}{differ}, of which "
            f"{comparison.undrafted_over_generate:.2f} from {why} and the rest from drafts"
        )
    yield describe_sameness(comparison, greedy=greedy)
    if note := busy_note(comparison.others):
        yield f"{note} meanwhile"


def drafts_of(run: Decoded) -> str:
    """Describe the drafted passes, and why others had no draft."""
    declined = run.declined_passes
    if not run.drafted_passes:
        return "no draft was worth verifying" if declined else "no pass had a draft"
    had_none = run.passes - run.drafted_passes - declined
    rest = ""
    if declined and had_none:
        poor, none = counted(declined, "draft"), counted(had_none, "pass", "passes")
        rest = f"; {poor} not worth verifying, {none} without one"
    elif declined or had_none:
        rest = "; the other drafts were not worth it" if declined else "; the others had no draft"
    nodes = f"{run.nodes_per_draft:.1f} nodes on average"
    return f"drafted in {run.drafted_passes:,} of {run.passes:,} passes, {nodes}{rest}"


def describe_sameness(comparison: Comparison, *, greedy: bool) -> str:
    """Describe whether the texts are identical; if not, where they differ and why."""
    parting = comparison.parting
    if parting is None:
        of = "generate's" if comparison.generate is not None else "that without drafts"
        return f"output identical to {of}"
    tokens = ["the end" if t is None else repr(t) for t in (parting.ours, parting.theirs)]
    of = "generate" if parting.of == "generate" else "the text without drafts"
    where = f"output differs from {of} at token {parting.index + 1}, {' and '.join(tokens)}"
    if parting.near_tie and not greedy:
        return f"{where}: the draw is so close to both that rounding decides"
    if parting.near_tie:
        return f"{where}: a near tie, which 16 bits can round either way; try --dtype float32"
    if not greedy:
        return f"{where}: sampled texts only share their distribution, so no speed-up is given"
    return f"{where}: not a near tie, so no speed-up is given; please report it"


# Conversations.


def converse(
    talk: Conversation, replies: list[dict[str, Any]], screen: Screen, out: Output
) -> bool:
    """Add all replies; return whether every line of a pipe was answered.

    Raises UsageError without a prompt, InputError if stdin is closed.
    """
    if sys.stdin is None:
        raise InputError("cannot read a prompt: stdin is closed", "Give --prompt.")
    if sys.stdin.isatty():
        _answer_turns(talk, replies, screen, out)
        return True
    _answer_lines(talk, replies, screen, out)
    if not replies:
        raise UsageError("a prompt must be given", "Give --prompt, or one per line on stdin.")
    return bool(replies[-1]["ended_by"] != "interrupt")


def _answer_turns(
    talk: Conversation, replies: list[dict[str, Any]], screen: Screen, out: Output
) -> None:
    """Answer turns until /exit or the end of input."""
    out.say(CHAT_HELP)
    for line in _typed_lines():
        if line in ("/exit", "/quit"):
            break
        if line == "/new":
            talk.clear()
            out.say("a new conversation")
        elif line.startswith("/"):
            out.say(CHAT_HELP)
        elif line:
            try:
                replies.append(_reply_to_line(talk, line, screen, out))
            except InputError as error:
                out.say(f"error: {error}", f"  -> {error.hint} Type /new.")


def _answer_lines(
    talk: Conversation, replies: list[dict[str, Any]], screen: Screen, out: Output
) -> None:
    """Answer every line as a separate prompt, until Ctrl-C."""
    while raw := sys.stdin.buffer.readline(MAX_PROMPT_BYTES + 1):
        if len(raw) > MAX_PROMPT_BYTES:
            raise InputError(f"a line must have at most {MAX_PROMPT_BYTES:,} bytes", "Shorten it.")
        line = decode_prompt(raw, "stdin")
        if line.strip():
            talk.clear()
            replies.append(_reply_to_line(talk, line.rstrip("\n"), screen, out))
            if replies[-1]["ended_by"] == "interrupt":
                break


def _typed_lines() -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (input() uses it)
    while True:
        try:
            yield streams.ask().strip()
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(f"\n{CHAT_HELP}", file=sys.stderr)


def _reply_to_line(talk: Conversation, line: str, screen: Screen, out: Output) -> dict[str, Any]:
    """Show and return the reply to a line."""
    reply = talk.ask(line, screen.show)
    screen.end()
    run = reply.run
    out.say(
        f"[{counted(len(run.token_ids), 'token')}, {run.tokens_per_step:.2f} tokens/step, "
        f"{run.tokens_per_second:,.1f} tokens/s; {reply.held} of {run.prompt_tokens} prompt tokens "
        f"were cached{TURN_ENDS.get(run.ended_by, '')}]"
    )
    return reply.to_dict()
