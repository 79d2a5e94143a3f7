"""Texts that tokenizers stumble over, the same for every build.

Every assigned character of the planes in use, alone, between spaces and behind letters, digits and
marks; combining marks, emoji sequences, bytes that are no UTF-8, long words and long runs of
whitespace, line ends of three kinds, and the tokenizer's own added tokens in and beside words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

PLANES = range(0x20000)  # the basic and the first supplementary plane; beyond, one of so many:
SPARSE = range(0x20000, 0x110000, 251)
LINE = 64  # characters of one text
ADDED = 400  # added tokens that are tried
WORDS = (
    "a", "word", "Word", "naïve", "x1", "1000", "don't", "...", "=>", "def f(x):", "漢字", "и",
    "ملف",
)  # fmt: skip
SPACES = (
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u200b",
)  # fmt: skip
REPEATED = ("a", "ab", "Z9", "é", "漢", "🙂", "-", "0")
ODD = (
    "", "\x00", "a\x00b", "\ufeff", "\ufffd\ufffd", "e\u0301\u0323o\u0308", "\u1100\u1161\u11a8",
    "\u0300\u0301\u0302", "a" + "\u0301" * 300, "क्षि", "ﷺ", "ﬁ", "Å Å Å", "ſt", "İi̇ıI",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308\U0001f3f3",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1ec", "1\ufe0f\u20e3", "\U0001f44d\U0001f3fd",
    "\u202eabc\u202c", "a\u200db", b"\xff\xfe\x80abc\xc3".decode("utf-8", "replace"),
    "I'm you're he'll we'd they've it's 'tis O'Neil's I'M", "http://a.b/c?d=e&f#g",
    "a_b-c.d,e;f:g", "1,234,567.89 12345678901234567890 3.14e-10 0x1F",
    "$100 €5 ±3 ½ ² ₂ Ⅷ ①", "<|x|> <s> </s> [INST] <unk>", "▁▁ ▁a a▁b", "Ġa Ċ",
)  # fmt: skip


def hard_texts(backend: Any) -> Iterator[str]:
    """`backend` is a tokenizers.Tokenizer: its added tokens are among them."""
    yield from ODD
    yield from _lines()
    for space in SPACES:
        yield space.join(WORDS)
        yield space.join(("", *WORDS, ""))
        yield from (space * n for n in (1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 257, 5000))
        yield from (f"a{space * n}b" for n in (1, 2, 3, 5, 40))
    yield from (
        word * n for word in ("a", "ab", "Z9", "é", "漢", "🙂", "-", "0") for n in (50, 3000)
    )
    added = sorted(each.content for each in backend.get_added_tokens_decoder().values())
    for token in added[:ADDED]:
        yield from (
            token,
            f" {token} ",
            f"a{token}b",
            token * 2,
            f"\n{token}\n",
            f"{token}{token[:-1]}",
        )


def _lines() -> Iterator[str]:
    """Every assigned character in four surroundings."""
    each = [chr(code) for code in (*PLANES, *SPARSE) if _is_assigned(code)]
    for begin in range(0, len(each), LINE):
        some = each[begin : begin + LINE]
        yield "".join(some)
        yield " ".join(some)
        yield "".join(f"a{c}1{c}" for c in some)
        yield "\n".join(some)


def _is_assigned(code: int) -> bool:
    return unicodedata.category(chr(code)) not in ("Cn", "Cs")
