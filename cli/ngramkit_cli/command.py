"""The Typer app and its commands, with what all of them share. Knows no command by name."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperCommand

from ngramkit_cli.flags import Flag

_running: ContextVar[TyperCommand | None] = ContextVar("running", default=None)


class Command(TyperCommand):
    """A command that is known while it runs, so that errors can speak of its flags."""

    def invoke(self, ctx: Any) -> Any:
        token = _running.set(self)
        try:
            return super().invoke(ctx)
        finally:
            _running.reset(token)


class App(typer.Typer):
    """A Typer whose commands are of the class above."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        return super().command(name, **{"cls": Command, **settings})


def running_flags() -> dict[str, Flag]:
    """The options of the running command, under the library's names; none outside a command."""
    command = _running.get()
    found: dict[str, Flag] = {}
    for entry in command.params if command else ():
        off = next((flag for flag in entry.secondary_opts if flag.startswith("--")), "")
        for flag in entry.opts:
            if flag.startswith("--"):
                name = flag.removeprefix("--").replace("-", "_")
                found[name] = Flag(flag, off, bool(getattr(entry, "is_flag", False)))
                if getattr(entry, "multiple", False):
                    found.setdefault(f"{name}s", found[name])
    return found
