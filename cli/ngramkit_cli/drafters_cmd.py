"""`ngramkit drafters`: the drafters and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

import ngramkit
from ngramkit.basics.kinds import KIND_OF_ROLE, a_kind
from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.tables import wrap_text

if TYPE_CHECKING:
    from ngramkit.drafters.options import DrafterOption
    from ngramkit.drafters.registry import AboutDrafter

SOURCES = {**{role: a_kind(kind) for role, kind in KIND_OF_ROLE.items()}, "past": "past requests"}
KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def drafters(
    *,
    name: str | None = typer.Argument(
        None,
        metavar="NAME",
        help="Only this one. Default: all of them.",
        autocompletion=completion.drafters,
    ),
    out: Output,
) -> None:
    """List the drafters: what each looks up, from which artifacts, and its options.

    Example: ngramkit drafters rest
    """
    known = ngramkit.drafters(name)
    for each in known:
        out.show(
            *wrap_text(f"{each.name}{_list_sources(each)}", 0, 2), *wrap_text(each.looks_up, 4)
        )
        for option in each.options:
            out.show(*wrap_text(_describe_option(option), 6, 2))
    out.show("", *wrap_text("Given as: --drafter rest:max_match=8,continuation=12", 0))
    out.result(drafters=known.to_dict())


def _list_sources(drafter: AboutDrafter) -> str:
    sources = [name for role, name in SOURCES.items() if role in drafter.sources]
    some = "any of: " if len(sources) > 1 else ""
    return f"  ({some}{', '.join(sources)})" if sources else ""


def _describe_option(option: DrafterOption) -> str:
    bounds = f", {option.bounds}" if option.bounds else ""
    default = "" if option.default is None else f", default {_show_default(option.default)}"
    return f"{option.name}: {option.help} ({KINDS[option.type]}{bounds}{default})"


def _show_default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
