"""Text for a terminal. Foreign strings may hold line breaks, escapes, bidi marks, or megabytes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

# Control characters except tab and line feed, and bidi embeddings, overrides and isolates. Joiners
# and the marks of a single letter's direction are needed for writing.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

SURROGATE = re.compile(r"(\\\\)|\\udc([89a-f][0-9a-f])")  # of an undecodable byte, in repr's form
MAX_NAMES = 5  # in a line
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # decoded from an incomplete UTF-8 sequence


def visible(value: object, most: int = 2000) -> str:
    """Return `value` as one line of at most `most` characters, unprintable ones escaped."""
    whole = str(value)
    line = "".join(c if c.isprintable() else _escape_character(c) for c in whole[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def escape_controls(text: str) -> str:
    """Escape control characters except line feeds and tabs."""
    return CONTROLS.sub(lambda match: _escape_character(match[0]), text)


# A URL, possibly without one of its slashes. User, query and fragment are secret.
URL = re.compile(r"([a-z][a-z0-9+.-]+:/+)(\S+)", re.IGNORECASE)
ENDING = re.compile(r"""[\])}"'`.,;:]*$""")  # punctuation after a URL
HOST = re.compile(r"\[.*|[^:]*(:\d*)?")


def without_secrets(text: str) -> str:
    """Reduce the URLs in `text` to scheme, host and path.

    >>> without_secrets("cannot read 's3://me:pass@bucket/x?signature=1'")
    "cannot read 's3://bucket/x'"
    """
    return URL.sub(_without_secrets, text) if ":/" in text else text


def _without_secrets(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    ending = ENDING.search(rest)
    plain = re.split("[?#]", rest, maxsplit=1)[0]
    authority, slash, path = plain.partition("/")
    host = authority.rpartition("@")[2]
    if not HOST.fullmatch(host):  # a password with a slash
        host, slash, path = path.rpartition("@")[2] if "@" in path else "...", "", ""
    shown = scheme + host + slash + path
    last = ending[0] if ending else ""
    return shown if shown.endswith(last) else shown + last


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def join_some(names: Sequence[str]) -> str:
    """Join the first MAX_NAMES names, and count the others."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def counted(count: int, what: str, plural: str | None = None) -> str:
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts with their names, which are in the plural.

    >>> counts_text({"documents": 1, "tokens": 4789, "left_out": 0})
    '1 document, 4,789 tokens, 0 left out'
    """
    names = {name.replace("_", " "): count for name, count in counts.items()}
    return ", ".join(counted(count, name.removesuffix("s"), name) for name, count in names.items())


def quoted(raw: bytes) -> str:
    """Return UTF-8 as a quoted text; bytes of incomplete characters are \\xNN.

    >>> quoted("a\u4f60".encode()[:-1])
    "'a\\\\xe4\\\\xbd'"
    """
    text = repr(raw.decode("utf-8", "surrogateescape"))
    # An escaped backslash is matched first: it does not begin an escape.
    return SURROGATE.sub(lambda match: match[1] or f"\\x{match[2]}", text)


def size_text(size: int) -> str:
    """Return bytes in the units of `parse_size`: "512 bytes", "4.0 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return counted(size, "byte")


def fold_name(name: str, width: int = 26) -> str:
    # textwrap breaks only at white space
    parts = re.sub(r"([:,]|\.(?=[^\W\d]))(?=\S)", "\\1\v", name)
    return textwrap.fill(parts, width, replace_whitespace=False).replace("\v", "")


def device_text(device: str) -> str:
    return device.replace(" 1 threads", " 1 thread")
