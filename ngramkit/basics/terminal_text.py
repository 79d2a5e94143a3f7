"""Text for a terminal: foreign strings without control characters, and counted words.

Cards, manifests, file names, corpus ids and servers' answers may hold line breaks that forge a
line, escapes that control the terminal, marks that change the reading order, or megabytes.
"""

from __future__ import annotations

import re
import textwrap

# Control characters except tab and line feed, and bidi embeddings, overrides and isolates. Joiners
# and the marks of a single letter's direction are needed for writing.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(value: object, most: int = 2000) -> str:
    r"""Return `value` as one line of at most `most` characters.

    Unprintable characters are replaced by Python's escapes.

    >>> print(visible("a\n\x1b[2Jb"), visible("aaaaa", 3))
    a\n\x1b[2Jb aa…
    """
    whole = str(value)
    line = "".join(c if c.isprintable() else _escape(c) for c in whole[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def harmless(text: str) -> str:
    r"""Return `text` with control characters escaped, except line feeds and tabs.

    >>> print(harmless("one\ntwo\x1b[31m"))
    one
    two\x1b[31m
    """
    return CONTROLS.sub(lambda match: _escape(match[0]), text)


# A URL, possibly without one of its slashes. User, query and fragment are secret.
URL = re.compile(r"([a-z][a-z0-9+.-]+:/+)(\S+)", re.IGNORECASE)
ENDING = re.compile(r"""[\])}"'`.,;:]*$""")  # punctuation after a URL
HOST = re.compile(r"\[.*|[^:]*(:\d*)?")


def without_secrets(text: str) -> str:
    """Return `text` with only the scheme, host and path of its URLs.

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


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def many(count: int, what: str, plural: str | None = None) -> str:
    """Return a count and its noun: 1 shard; 2,000 shards."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def fold_name(name: str, width: int = 26) -> str:
    r"""Fold a drafter's name after spaces, colons, commas and modules.

    >>> fold_name("rest:max_match=8,continuation=12")
    'rest:max_match=8,\ncontinuation=12'
    """
    # textwrap breaks only at white space
    parts = re.sub(r"([:,]|\.(?=[^\W\d]))(?=\S)", "\\1\v", name)
    return textwrap.fill(parts, width, replace_whitespace=False).replace("\v", "")


def device_text(device: str) -> str:
    """Return a plan's or profile's device with "1 thread" in the singular.

    >>> device_text("cpu, 1 threads, packed weights")
    'cpu, 1 thread, packed weights'
    """
    return device.replace(" 1 threads", " 1 thread")
