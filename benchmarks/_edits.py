"""Successive versions of a source file, made from the running Python's own library: the old one is
a file as it is, the new one has been edited as people edit. Same interpreter, same edits."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ngramkit.corpus.files import stdlib_split

SIZES = range(4_000, 20_000)  # bytes
NAME = re.compile(r"\b[a-z_][a-zA-Z_]{4,}\b")
KNOWN = {*keyword.kwlist, *dir(builtins)}
NEW_NAMES = ("quarry_marker", "lantern_state", "tidal_offset", "copper_index", "meadow_span")

Edit = Callable[[int, list[str]], str]


def originals(count: int) -> list[str]:
    """Files that the embedded tokenizer and model were not trained on, in the order of names."""
    texts = [_read(path) for _, path in stdlib_split("held-out") if path.stat().st_size in SIZES]
    return [text for text in texts if _parses(text)][:count]


def renamed(number: int, texts: list[str]) -> str:
    """The identifier that stands in the middle of those used 4 to 30 times has another name."""
    uses = Counter(name for name in NAME.findall(texts[number]) if name not in KNOWN)
    often = sorted(name for name, times in uses.items() if 4 <= times <= 30)
    if not often:
        return texts[number]
    old, new = often[len(often) // 2], NEW_NAMES[number % len(NEW_NAMES)]
    return re.sub(rf"\b{re.escape(old)}\b", new, texts[number])


def inserted(number: int, texts: list[str]) -> str:
    """A function of another file stands before the middle one of the file's own."""
    lines = texts[number].splitlines(keepends=True)
    own, others = _functions(texts[number]), _functions(texts[(number + 1) % len(texts)])
    at = own[len(own) // 2][0] if own else len(lines)
    foreign = texts[(number + 1) % len(texts)].splitlines(keepends=True)
    begin, end = others[len(others) // 2] if others else (0, 12)
    return "".join([*lines[:at], *foreign[begin:end], "\n", "\n", *lines[at:]])


def rewritten(number: int, texts: list[str]) -> str:
    """The longest docstring says what another file's longest says."""
    old, new = (
        _longest_docstring(texts[number]),
        _longest_docstring(texts[(number + 1) % len(texts)]),
    )
    return texts[number].replace(old, new, 1) if old else texts[number]


def all_three(number: int, texts: list[str]) -> str:
    edited = list(texts)
    for edit in (renamed, inserted, rewritten):
        edited[number] = edit(number, edited)
    return edited[number]


EDITS: dict[str, Edit] = {
    "an identifier renamed": renamed,
    "a function inserted": inserted,
    "a paragraph rewritten": rewritten,
    "all three": all_three,
}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return bool(_functions(text)) and bool(_longest_docstring(text))


def _functions(text: str) -> list[tuple[int, int]]:
    """Lines of every function at the top of a file, from 0, ends excluded."""
    nodes = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    found = [(node.lineno - 1, node.end_lineno or 0) for node in nodes if not node.decorator_list]
    return [(begin, end) for begin, end in found if end - begin <= 40]


def _longest_docstring(text: str) -> str:
    """As it stands between its quotes; of those of 2,000 characters at most."""
    found = re.findall(r'"""(.*?)"""', text, re.S)
    return max((each for each in found if len(each) <= 2_000), key=len, default="")
