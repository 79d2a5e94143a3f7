"""Markdown and YAML around strings that others wrote: what they say is shown, never obeyed.

A corpus is called what its author wants. Whatever it is called, it stays one piece of text: no line
break, heading, link, image, HTML or table border comes out of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ngramkit.visible import visible

MEANS = re.compile(r"([\\`*_\[\]<>#|~$&@!])|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
FENCE = re.compile(r"`{3,}")


def text(value: Any) -> str:
    """`value` as it is, in a paragraph, a heading or a table cell: "a_b" -> "a\\_b"."""
    return MEANS.sub(lambda found: "\\" + (found[1] or ""), visible(value))


def code(value: str) -> str:
    """A code span in a table cell; backticks become quotes."""
    shown = visible(value).replace("|", "\\|").replace("`", "'")
    return f"`{shown or ' '}`"


def shell(command: str) -> str:
    """A fenced block that holds `command` and nothing of it ends; empty for an empty one."""
    if not command:
        return ""
    longest = max(map(len, FENCE.findall(command)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}sh\n{command}\n{fence}"


def table(rows: Mapping[str, Any], head: Sequence[str] = ("", "")) -> str:
    """Two columns; rows without a value are left out."""
    cells = [f"| {text(name)} | {text(value)} |" for name, value in rows.items() if value]
    titles = "|".join(f" {title} " if title else " " for title in head)
    return "\n".join([f"|{titles}|", "|---|---|", *cells])


def yaml(value: Any) -> str:
    """A YAML value in one line. JSON is YAML, if what YAML forbids in a file is escaped too."""
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 2**16 else f"\\U{ord(c):08x}"
        for c in json.dumps(value, ensure_ascii=False)
    )
