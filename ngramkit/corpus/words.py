"""Words of any script. In scripts without spaces, each character is a word."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Thai, Lao, Myanmar, Khmer, kana and Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
)
CHARACTER = re.compile(f"[{UNSPACED}]")
SPOKEN = re.compile(rf"[^\W{UNSPACED}]+|(?=\w)[{UNSPACED}]")
WRITTEN = re.compile(rf"[^\s{UNSPACED}]+|[{UNSPACED}]")


def spoken_words(text: str) -> list[str]:
    """Return the words, without case and punctuation.

    >>> spoken_words("Mt. Fuji: 富士山!")
    ['mt', 'fuji', '富', '士', '山']
    """
    return SPOKEN.findall(text.casefold())


def written_words(text: str) -> list[str]:
    """Split at spaces, and into characters in scripts without spaces."""
    if text.isascii() or not CHARACTER.search(text):
        return text.split()
    return WRITTEN.findall(text)


def count_words(words: Sequence[str]) -> float:
    """Count words; two characters of a script without spaces count as one."""
    return len(words) - sum(CHARACTER.match(word) is not None for word in words) / 2
