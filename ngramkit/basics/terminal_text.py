"""Text for a terminal: strings from elsewhere without control characters, and counted words.

Cards, manifests, file names, ids of corpora and servers' answers may hold line breaks that forge a
line, escapes that control the terminal, marks that change the reading order, or megabytes. Of a
model's output only the control characters are escaped.
"""

from __future__ import annotations

import re
import textwrap

LONGEST = 2000  # characters of a line
# The control characters but tab and line end, and bidi embeddings, overrides and isolates. Joiners
# and the marks of one letter's direction are needed for writing.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(value: object, most: int = LONGEST) -> str:
    r"""Return `value` as one line of at most `most` characters.

    Characters that cannot be printed are written as Python's escapes.

    >>> print(visible("a\n\x1b[2Jb"), visible("aaaaa", 3))
    a\n\x1b[2Jb aa…
    """
    whole = str(value)
    line = "".join(c if c.isprintable() else _escape(c) for c in whole[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def harmless(text: str) -> str:
    r"""Return `text` without control characters; its line ends and tabs stay.

    >>> print(harmless("one\ntwo\x1b[31m"))
    one
    two\x1b[31m
    """
    return CONTROLS.sub(lambda match: _escape(match[0]), text)


# A URL, also one that lost a slash; its secrets are its user, query and fragment.
URL = re.compile(r"([a-z][a-z0-9+.-]+:/+)(\S+)", re.IGNORECASE)
ENDING = re.compile(r"""[\])}"'`.,;:]*$""")  # of a sentence, behind a URL
HOST = re.compile(r"\[.*|[^:]*(:\d*)?")


def without_secrets(text: str) -> str:
    """Return `text` with only scheme, host and path of the URLs in it.

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
    if not HOST.fullmatch(host):  # a slash in a password ends it early
        host, slash, path = path.rpartition("@")[2] if "@" in path else "...", "", ""
    shown = scheme + host + slash + path
    last = ending[0] if ending else ""
    return shown if shown.endswith(last) else shown + last


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def many(count: int, what: str, plural: str | None = None) -> str:
    """Return a count and its noun: 1 shard; 2,000 shards.

    `plural` is the noun's plural, where it is not `what` and an s.
    """
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def fold_name(name: str, width: int = 26) -> str:
    r"""Return a drafter's name in lines, broken behind a space, colon, comma or module.

    >>> fold_name("rest:max_match=8,continuation=12")
    'rest:max_match=8,\ncontinuation=12'
    """
    # textwrap breaks at white space alone
    parts = re.sub(r"([:,]|\.(?=[^\W\d]))(?=\S)", "\\1\v", name)
    return textwrap.fill(parts, width, replace_whitespace=False).replace("\v", "")


def device_text(device: str) -> str:
    """Return a device as it is shown, of "cpu, 1 threads" as plans and profiles keep it.

    >>> device_text("cpu, 1 threads, packed weights")
    'cpu, 1 thread, packed weights'
    """
    return device.replace(" 1 threads", " 1 thread")
