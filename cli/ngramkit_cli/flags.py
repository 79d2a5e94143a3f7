"""Errors' parameter names as the running command's flags: top_p -> --top-p.

A name for which the command has no option (a recipe's key, for example) stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """An option's flags: `on` alone for a switch, otherwise before a value."""

    on: str
    off: str = ""
    switch: bool = False


def with_flags(text: str, names: Iterable[str], flags: Mapping[str, Flag]) -> str:
    """Replace every whole word of `names` in `text` by its flag.

    >>> flags = {"top_p": Flag("--top-p"), "force": Flag("--force", switch=True)}
    >>> with_flags("top_p must be 1; or force=True, or top_p=1", ("top_p", "force"), flags)
    '--top-p must be 1; or --force, or --top-p 1'
    """
    words = "|".join(re.escape(name) for name in names if name in flags)
    if not words:
        return text
    # Not inside a path or a longer name; `=True`, `=False` and `=` belong to the word.
    word = rf"(?<![\w/.-])({words})(?:=(True|False)\b|(=)(?=\S)|(?![\w=/-]|\.\w))"
    return re.sub(word, lambda match: _as_flag(flags[match[1]], match), text)


def _as_flag(flag: Flag, match: re.Match[str]) -> str:
    if match[2] == "False" and flag.off:
        return flag.off
    if match[3]:
        return f"{flag.on} "
    return flag.on if flag.switch or not match[2] else f"{flag.on} {match[2]}"
