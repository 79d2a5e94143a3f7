"""The Typer app, its groups and commands, and the options of every command.

A command is a function whose parameters are options. Its parameter `out: Output` is replaced by the
output options, and a parameter that is a dataclass by its fields:

    @dataclass(frozen=True)
    class SamplingOptions:
        temperature: float = typer.Option(0.0, help="0 is greedy.")

    def decode(*, sampling: SamplingOptions, out: Output) -> None: ...
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ngramkit.basics.errors import is_utf8
from ngramkit.basics.machine import expand_home
from ngramkit_cli import streams, tables
from ngramkit_cli.errors import get_current_context
from ngramkit_cli.output import Output
from ngramkit_cli.shared_options import TAKING_URLS, StagingOptions

TYPED = "ngramkit.typed"  # key of a context's meta
HELP = {"help_option_names": ["-h", "--help"]}
NO_NUMBER = re.compile(r"is not a valid (int|float)(eger)?( range)?\.$")  # click's message
WANTED = {"int": "is not a whole number: write it like 4000000", "float": "is not a number"}


class Command(TyperCommand):
    """A command that refuses empty words, text that is not UTF-8, and repeated single options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = [self.name, *args]
        with _errors_as_json(ctx, args):
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for entry in order:
                given_words = given.get(entry.name or "")
                words = given_words if isinstance(given_words, list | tuple) else [given_words]
                name = entry.opts[0] if entry.param_type_name == "option" else entry.metavar
                if "" in words:
                    ctx.fail(f"{name} is empty{'' if entry.required else ': leave it out'}")
                for word in words:  # paths may be any bytes
                    if not (
                        is_utf8(word) or entry.type.name == "path" or os.path.lexists(str(word))
                    ):
                        ctx.fail(f"{name} must be UTF-8, got {word!a:.80} (is LC_ALL C.UTF-8?)")
            for entry, times in Counter(order).items():
                once = not (getattr(entry, "multiple", False) or getattr(entry, "count", False))
                if times > 1 and once and entry.param_type_name == "option":
                    ctx.fail(f"{entry.opts[0]} is given {times} times: it takes one value")
            return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        fit_to_terminal(formatter)
        super().format_usage(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List options in panels, output options last."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for entry in self.get_params(ctx):
            record = entry.get_help_record(ctx)
            if record is not None:
                panels.setdefault(_panel_of(entry), []).append(record)
        output = panels.pop(OutputOptions.PANEL, [])
        for title, rows in [*panels.items(), (OutputOptions.PANEL, output)]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _panel_of(entry: Any) -> str:
    if entry.param_type_name == "argument":
        return "Arguments"
    return OutputOptions.PANEL if entry.name == "help" else entry.rich_help_panel or "Options"


def fit_to_terminal(formatter: Any) -> None:
    """Fit help to narrow terminals; the option parser assumes at least 50 columns."""
    columns = shutil.get_terminal_size().columns
    if columns < tables.NARROW_COLUMNS:
        formatter.width = min(formatter.width, max(columns - 2, 20))
        formatter.write_dl = functools.partial(formatter.write_dl, col_max=columns // 4)


def words_as_typed() -> list[str]:
    words: list[str] = get_current_context().meta[TYPED]
    return words


class Group(TyperGroup):
    """A group of commands; with --json an unknown command is an error in JSON too."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        fit_to_terminal(formatter)
        super().format_usage(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List whole summaries, which Typer would truncate."""
        for title, rows in self.panels().items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def panels(self) -> dict[str, list[tuple[str, str]]]:
        return {"Commands": self.summaries()}

    def summaries(self) -> list[tuple[str, str]]:
        return [(name, first_clause(each.help or "")) for name, each in self.commands.items()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _errors_as_json(ctx, args):
            return super().resolve_command(ctx, args)


def first_clause(text: str) -> str:
    """Return a command's help up to its first colon, semicolon or comma."""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"[:;,](?= )|\.$", first)[0]


@contextmanager
def _errors_as_json(ctx: Any, args: Sequence[str]) -> Iterator[None]:
    """Name the wanted numbers in parser errors; with --json, print the errors as JSON too."""
    as_json = "--json" in args  # the parser empties `args`
    try:
        yield
    except Exception as error:
        if isinstance(said := getattr(error, "message", None), str):
            error.message = NO_NUMBER.sub(lambda found: WANTED[found[1]], said)  # type: ignore[attr-defined]
        if as_json and hasattr(error, "format_message"):
            body = {"command": _name_of(ctx), "error": error.format_message(), "hint": ""}
            streams.write(json.dumps(body))
        raise


def _name_of(ctx: Any) -> str:
    """Return a command's name with its group's, as in results: `history import`."""
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name)
        ctx = ctx.parent
    return " ".join(names) or str(ctx.command.name)


class App(typer.Typer):
    """A Typer with groups and commands of these classes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": Group, "context_settings": HELP, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        register = super().command(name, **{"cls": Command, "context_settings": HELP, **settings})

        def registered(command: Callable[..., None]) -> Callable[..., None]:
            words = (self.info.name, name or command.__name__)
            register(_parsed(command, " ".join(filter(None, words))))
            return command

        return registered


@dataclass(frozen=True)
class OutputOptions:
    """Options of a command's output. A field is an option."""

    PANEL: ClassVar[str] = "Output"

    json: bool = typer.Option(False, "--json", help="Print one JSON object in place of the result.")
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with an error.")
    verbose: int = typer.Option(
        0,
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Log what is done; -vv: libraries too.",
    )
    quiet: bool = typer.Option(
        False, "--quiet", "-q", help="Print results, warnings and errors only."
    )

    def output(self, command: str) -> Output:
        verbosity = -1 if self.quiet else self.verbose
        return Output(command, json=self.json, debug=self.debug, verbosity=verbosity)


def _parsed(command: Callable[..., None], name: str) -> Callable[..., None]:
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for entry in inspect.signature(command, eval_str=True).parameters.values():
        group = OutputOptions if entry.annotation is Output else entry.annotation
        if is_dataclass(group):
            groups[entry.name] = group
            parameters += options_of(group)
        else:
            parameters.append(entry)
    if command in TAKING_URLS:
        groups["staging"] = StagingOptions
        parameters += options_of(StagingOptions)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {name: _with_home(value) for name, value in given.items()}
        chosen = {
            parameter: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for parameter, group in groups.items()
        }
        staging = chosen.pop("staging", None)
        with chosen.pop("out").output(name) as out:
            if staging is None or (staging.cache_dir is None and staging.cache_size is None):
                command(**chosen, **values, out=out)
                return
            from ngramkit.remote.url_cache import using_cache

            with using_cache(staging.cache_dir, staging.cache_size):
                command(**chosen, **values, out=out)

    keywords = [entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in parameters]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {entry.name: entry.annotation for entry in keywords}
    return run


def _with_home(value: Any) -> Any:
    """Expand ~ in a path or paths, which a shell leaves in --out=~/x."""
    if isinstance(value, list):
        return list(map(_with_home, value))
    return expand_home(value) if isinstance(value, Path) else value


def options_of(group: Any) -> list[inspect.Parameter]:
    """Return a dataclass's fields as options, in the panel `PANEL` of the class."""
    hints = get_type_hints(group)
    parameters = []
    for field in fields(group):
        option: Any = copy.copy(field.default)
        option.rich_help_panel = getattr(group, "PANEL", None)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(field.name, kind, default=option, annotation=hints[field.name])
        )
    return parameters
