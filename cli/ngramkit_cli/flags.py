"""The library's words for its parameters, put as this command's flags: top_p -> --top-p.

Where the running command has no such option (a recipe's key, say) the library's name stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """How an option is written: `on` alone for a switch, before its value otherwise."""

    on: str
    off: str = ""
    switch: bool = False


def with_flags(text: str, names: Iterable[str], flags: Mapping[str, Flag]) -> str:
    """`text` with every whole word of `names` as its flag.

    >>> flags = {"top_p": Flag("--top-p"), "force": Flag("--force", switch=True)}
    >>> with_flags("top_p must be 1; or force=True, or top_p=1", ("top_p", "force"), flags)
    '--top-p must be 1; or --force, or --top-p 1'
    """
    known = "|".join(re.escape(name) for name in names if name in flags)
    if not known:
        return text
    # Not inside a path or a longer name; `=True`, `=False` and `=` belong to the word.
    word = rf"(?<![\w/.-])({known})(?:=(True|False)\b|(=)(?=\S)|(?![\w=/-]|\.\w))"
    return re.sub(word, lambda found: _as_flag(flags[found[1]], found), text)


def _as_flag(flag: Flag, found: re.Match[str]) -> str:
    if found[2] == "False" and flag.off:
        return flag.off
    if found[3]:
        return f"{flag.on} "
    return flag.on if flag.switch or not found[2] else f"{flag.on} {found[2]}"
