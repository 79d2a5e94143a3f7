"""`ngramkit drafters`: the drafters and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ngramkit_cli import completion
from ngramkit_cli.output import Output
from ngramkit_cli.screen import wrapped

if TYPE_CHECKING:
    from ngramkit.drafters.options import DrafterOption
    from ngramkit.drafters.registry import Entry

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Only this one. Default: all of them.",
        autocompletion=completion.drafters,
    ),
]
SOURCES = {
    "datastores": "datastores",
    "frozen_table": "a frozen table",
    "bigram": "the model's bigram table",
    "unigram": "the model's unigram table",
    "past": "past requests",
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def drafters(*, name: Name = None, out: Output) -> None:
    """List the drafters: what each looks up, from which artifacts, and its options.

    Example: ngramkit drafters rest
    """
    from ngramkit.drafters.registry import DRAFTERS, drafter_entry, drafter_options

    if name is not None:
        drafter_entry(name)
    entries = []
    for each in [name] if name else DRAFTERS:
        entry, options = DRAFTERS[each], drafter_options(each)
        out.show(*wrapped(f"{each}{_from(entry)}", 0, 2), *wrapped(entry.looks_up, 4))
        for option in options:
            out.show(*wrapped(_line(option), 6, 2))
        entries.append({"name": each, "looks_up": entry.looks_up, **_facts(entry, options)})
    out.show("", *wrapped("Given as: --drafter rest:max_match=8,continuation=12", 0))
    out.result(drafters=entries)


def _from(entry: Entry) -> str:
    sources = [name for role, name in SOURCES.items() if role in entry.sources]
    some = "any of: " if len(sources) > 1 else ""
    return f"  ({some}{', '.join(sources)})" if sources else ""


def _line(option: DrafterOption) -> str:
    bounds = f", {option.bounds}" if option.bounds else ""
    default = "" if option.default is None else f", default {_text(option.default)}"
    return f"{option.name}: {option.help} ({KINDS[option.type]}{bounds}{default})"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"


def _facts(entry: Entry, options: list[DrafterOption]) -> dict[str, Any]:
    described = [
        {
            "name": option.name,
            "type": option.type.__name__,
            "default": option.default,
            "bounds": option.bounds,
            "help": option.help,
        }
        for option in options
    ]
    return {"artifacts": list(entry.artifacts), "options": described}
