"""JSON that somebody else may have written, read without trust.

Python's reader raises RecursionError for what nests deeply, takes Infinity for a number, keeps the
last of two equal keys, and makes of three bytes an object of a hundred. Here every fault is one
line that says where and what.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from ngramkit.errors import ArtifactError, InputError
from ngramkit.formats.files import read_plain

DEEPEST = 32  # lists and objects inside each other, where `strict`
MOST = 1 << 26  # bytes of a file that is read whole
MOST_VALUES = 1 << 20  # in it; a manifest of 70,000 shards has a fifth of that
AGAIN = "build or pull the artifact again"


def parse_json(
    text: str | bytes,
    where: str,
    *,
    strict: bool = False,
    error: type[InputError] = InputError,
    hint: str = "",
) -> Any:
    """What `text` says; `where` names it in errors.

    More than MOST_VALUES are refused. `strict` also refuses a key that stands twice, NaN and
    Infinity (which JSON does not know), text that is none, and what nests deeper than DEEPEST.
    Raises `error`.
    """
    if count_values(text) > MOST_VALUES:
        raise error(f"{where}: it holds more than {MOST_VALUES:,} values", hint)
    try:
        # What stands for a class gives the one decoder, which `loads` would make for each text.
        decoder: Any = _strict_decoder if strict else None
        body = json.loads(text, cls=decoder)
        if strict and not _plain(text):
            json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except RecursionError as failure:
        raise error(f"{where}: not JSON that can be read: it nests too deeply", hint) from failure
    except ValueError as failure:
        raise error(f"{where}: not JSON: {failure}", hint) from failure
    if strict and _brackets(text) > DEEPEST and not nests_within(body, DEEPEST):
        raise error(f"{where}: it nests deeper than {DEEPEST} levels", hint)
    return body


def read_json(
    path: Path,
    *,
    strict: bool = False,
    error: type[InputError] = ArtifactError,
    hint: str = AGAIN,
) -> Any:
    """The whole file as `parse_json` reads it. FileNotFoundError where there is none."""
    raw = read_plain(path, MOST, error=error, hint=hint)
    return parse_json(raw, str(path), strict=strict, error=error, hint=hint)


def whole_number(value: Any, least: int = 0, most: int = (1 << 63) - 1) -> bool:
    """Whether `value` is an integer of [least, most]; true and false are none."""
    return type(value) is int and least <= value <= most


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name!r:.80} stands twice")
            seen.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.80} is too large a number")
    return value


STRICT = json.JSONDecoder(
    object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite
)


def _strict_decoder() -> json.JSONDecoder:
    return STRICT


def _plain(text: str | bytes) -> bool:
    """Whether no string of it can hold a surrogate: none is written out, none is escaped."""
    if isinstance(text, bytes):
        return text.isascii() and b"\\u" not in text
    return text.isascii() and "\\u" not in text


def _brackets(text: str | bytes) -> int:
    """Return how many open: nothing nests deeper."""
    if isinstance(text, bytes):
        return text.count(b"{") + text.count(b"[")
    return text.count("{") + text.count("[")


def count_values(text: str | bytes) -> int:
    """Return how many values it has at most: each begins behind a bracket or a comma."""
    return 1 + _brackets(text) + (text.count(b",") if isinstance(text, bytes) else text.count(","))


def nests_within(body: Any, levels: int) -> bool:
    """Return whether `body` nests at most so deep; without recursion."""
    level = [body]
    while level and levels >= 0:
        level = [
            value
            for holder in level
            if isinstance(holder, dict | list)
            for value in (holder.values() if isinstance(holder, dict) else holder)
        ]
        levels -= 1
    return not level
