"""Text for people: strings from elsewhere, shown and never obeyed, and counted words.

Cards, manifests, file names, ids of corpora and what servers answer may hold line breaks that forge
a line, escapes that drive the terminal, marks that turn the reading order, or megabytes. What a
model writes is text, and stays it; only what a terminal would obey is shown instead.
"""

from __future__ import annotations

import re

LONGEST = 2000  # characters of a line
# The control characters but tab and line end, and the marks that turn text around (bidi embeddings,
# overrides and isolates). Joiners and the marks of one letter's direction are needed for writing.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(value: object, most: int = LONGEST) -> str:
    r"""`value` as one line of at most `most` characters.

    What has no shape on a screen is written as Python writes it.

    >>> print(visible("a\n\x1b[2Jb"), visible("aaaaa", 3))
    a\n\x1b[2Jb aa…
    """
    whole = str(value)
    shown = "".join(c if c.isprintable() else _written(c) for c in whole[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def harmless(text: str) -> str:
    r"""`text` with nothing in it that a terminal would obey; its line ends and tabs stay.

    >>> print(harmless("one\ntwo\x1b[31m"))
    one
    two\x1b[31m
    """
    return OBEYED.sub(lambda found: _written(found[0]), text)


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def many(count: int, what: str, plural: str | None = None) -> str:
    """Return a count with what it counts: 1 shard; 2,000 shards; 2 passes.

    `plural`, where it is not `what` and an s.
    """
    return f"{count:,} {what if count == 1 else plural or what + 's'}"
