"""The Typer app, its groups and commands, and the options that all commands share."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ngramkit_cli import streams
from ngramkit_cli.errors import Flag

_running: ContextVar[TyperCommand | None] = ContextVar("running", default=None)
_verbosity: ContextVar[int] = ContextVar("verbosity", default=0)

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Log what is done; -vv: libraries too.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only results, warnings and errors.")]


def verbosity() -> int:
    """Return -1 under --quiet, 1 under -v, 2 under -vv, else 0."""
    return _verbosity.get()


class Command(TyperCommand):
    """A command that `running_flags` knows while it runs, so that errors name its flags.

    An option that takes one value is refused where it is given twice.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _parsing(self.name, args):
            *_, order = self.make_parser(ctx).parse_args(args=list(args))
            for entry, times in Counter(order).items():
                once = not (getattr(entry, "multiple", False) or getattr(entry, "count", False))
                if times > 1 and once and entry.param_type_name == "option":
                    ctx.fail(f"{entry.opts[0]} is given {times} times: it takes one value")
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        token = _running.set(self)
        try:
            return super().invoke(ctx)
        finally:
            _running.reset(token)


class Group(TyperGroup):
    """Commands under one name; under --json an unknown one is an error in JSON, too."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with whole summaries, which Typer would cut to the terminal."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries())

    def summaries(self) -> list[tuple[str, str]]:
        return [(name, summary(each.help or "")) for name, each in self.commands.items()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _parsing(self.name, args):
            return super().resolve_command(ctx, args)


def summary(text: str) -> str:
    """Return the first words of a command's help, before the details.

    >>> summary("Build a datastore (REST): suffix arrays.")
    'Build a datastore (REST)'
    """
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"[:;,](?= )|\.$", first)[0]


class _parsing:  # noqa: N801 (reads as a statement)
    """A context that prints errors of the option parser as JSON, too, under --json."""

    def __init__(self, command: str | None, args: Sequence[str]) -> None:
        self._command, self._json = command, "--json" in args

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._json and hasattr(error, "format_message"):
            body = {"command": self._command, "error": error.format_message(), "hint": ""}
            streams.write(json.dumps(body))


def _with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Add -v and -q to a command, whose function does not take them."""

    def wrapped(*, verbose: int, quiet: bool, **values: Any) -> None:
        token = _verbosity.set(-1 if quiet else verbose)
        try:
            command(**values)
        finally:
            _verbosity.reset(token)

    return with_options(command, wrapped, {"verbose": (Verbose, 0), "quiet": (Quiet, False)})


def with_options(
    command: Callable[..., None],
    wrapped: Callable[..., None],
    options: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """Return `wrapped`, which calls `command`, with the name and parameters of `command`.

    `options` are more parameters: name -> (annotation, default).
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(command, eval_str=True)
    parameters = [each.replace(kind=keyword) for each in signature.parameters.values()]
    for name, (hint, default) in options.items():
        parameters.append(inspect.Parameter(name, keyword, default=default, annotation=hint))
    functools.update_wrapper(wrapped, command)
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return wrapped


# Parameters whose option has another name. SpeCache's top_k is none: --top-k is of sampling.
OTHER_NAMES = {
    "kv_bits": "bits",
    "kv_group": "group",
    "kv_residual": "residual",
    "speculative_token": "speculative",
    "time": "seconds",
}


class App(typer.Typer):
    """A Typer with groups and commands of these classes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": Group, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        register = super().command(name, **{"cls": Command, **settings})

        def registered(command: Callable[..., None]) -> Callable[..., None]:
            register(_with_verbosity(command))
            return command

        return registered


def running_flags() -> dict[str, Flag]:
    """Return the running command's flags by the library's names; {} outside a command."""
    command = _running.get()
    flags: dict[str, Flag] = {}
    for entry in command.params if command else ():
        off = next((flag for flag in entry.secondary_opts if flag.startswith("--")), "")
        for flag in entry.opts:
            if flag.startswith("--"):
                name = flag.removeprefix("--").replace("-", "_")
                flags[name] = Flag(flag, off, bool(getattr(entry, "is_flag", False)))
                if name in OTHER_NAMES:
                    flags[OTHER_NAMES[name]] = flags[name]
                if getattr(entry, "multiple", False):
                    flags.setdefault(f"{name}s", flags[name])
    return flags
