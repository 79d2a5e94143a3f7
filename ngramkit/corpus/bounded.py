"""Reading without trust in size: a file of kilobytes may unfold to gigabytes. Knows bytes only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from ngramkit.errors import InputError

MAX_DOCUMENT = 64 << 20  # bytes
BLOCK = 1 << 20
SMALLER = "leave it out, or raise max_document"
BLANK = re.compile(rb"\s*")


def whole(file: IO[bytes], most: int, where: str) -> bytes:
    """All of the file. Raises InputError where it has more than `most` bytes."""
    raw = file.read(most + 1)
    if len(raw) > most:
        raise too_large(where, most)
    return raw


def lines(
    file: IO[bytes], most: int, where: str, hint: str = SMALLER
) -> Iterator[tuple[int, bytes]]:
    r"""Every line with something in it, and its number from 1 on.

    Blank ones, be there billions, are passed over a block at a time. Raises InputError where a line
    has more than `most` bytes.

    >>> import io
    >>> list(lines(io.BytesIO(b"\n\na\n \nb"), 10, "x"))
    [(3, b'a'), (5, b'b')]
    """
    number, begun = 1, bytearray()
    while block := file.read(BLOCK):
        at = 0
        while at < len(block):
            if not begun:
                after = BLANK.match(block, at).end()  # type: ignore[union-attr]
                number += block.count(b"\n", at, after)
                at = after
            end = block.find(b"\n", at)
            begun += block[at : end if end >= 0 else len(block)]
            if len(begun) > most:
                raise too_large(f"{where}, line {number}", most, hint)
            if end < 0:
                break
            if begun:
                yield number, bytes(begun)
                begun = bytearray()
                number += 1
            at = end + 1
    if begun:
        yield number, bytes(begun)


def too_large(where: str, most: int, hint: str = SMALLER) -> InputError:
    return InputError(
        f"{where}: a document of more than {most:,} bytes",
        hint,
        option="max_document",
    )
