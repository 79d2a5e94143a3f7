"""The embedded model and its held-out prompts.

A prompt is the beginning of a class or function in a standard-library file that neither the
model nor the demo datastore has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ngramkit.corpus.stdlib import is_held_out, stdlib_files

# Ordinary code in Python 3.11 and 3.12 that the model continues sensibly; other files come later.
FIRST_FILES = (
    "xml/etree/ElementTree.py",
    "multiprocessing/util.py",
    "xmlrpc/server.py",
    "modulefinder.py",
    "pdb.py",
    "zipimport.py",
    "_collections_abc.py",
)
# Tables, or not in every Python.
SKIPPED_FOLDERS = ("encodings/", "lib2to3/", "idlelib/", "distutils/")
HEADING = re.compile(r"\s*(async )?(def \w+\(|class \w+[(:])")
MIN_PROMPT_CHARS, MAX_PROMPT_CHARS = 450, 900  # about 120 to 250 tokens


def demo_prompts(count: int) -> list[tuple[str, str]]:
    """Return (place, text) of up to `count` prompts, spread over files, always the same."""
    by_file = [list(_prompts_of(name, text)) for name, text in _held_out_texts()]
    most = max(map(len, by_file), default=0)
    in_turn = (prompts[i] for i in range(most) for prompts in by_file if i < len(prompts))
    return [prompt for prompt, _ in zip(in_turn, range(count), strict=False)]


def _held_out_texts() -> Iterator[tuple[str, str]]:
    held_out = {name: path for name, path in stdlib_files() if is_held_out(name)}
    others = [
        name
        for name in held_out
        if name not in FIRST_FILES and not name.startswith(SKIPPED_FOLDERS)
    ]
    for name in [name for name in FIRST_FILES if name in held_out] + others:
        yield name, held_out[name].read_text(encoding="utf-8", errors="ignore")


def _prompts_of(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield disjoint pieces that begin with a `def` or `class` line."""
    lines = text.splitlines(keepends=True)
    begin, in_docstring = 0, False
    while begin < len(lines):
        end = begin
        if not in_docstring and HEADING.match(lines[begin]):
            end = _end_inside_a_body(lines, begin)
        if end > begin:
            yield f"{name}:{begin + 1}", "".join(lines[begin:end])
        else:
            end = begin + 1
        in_docstring ^= _opens_quotes(lines[begin:end])
        begin = end


def _end_inside_a_body(lines: list[str], begin: int) -> int:
    """Return the line to cut before, inside the body; `begin` if there is none."""
    length, in_docstring = 0, False
    for end in range(begin + 1, len(lines)):
        last, following = lines[end - 1], lines[end]
        length += len(last)
        in_docstring ^= _opens_quotes([last])
        if length > MAX_PROMPT_CHARS:
            break
        continues = following.startswith("    ") and bool(following.strip() and last.strip())
        if length >= MIN_PROMPT_CHARS and continues and not in_docstring:
            return end
    return begin


def _opens_quotes(lines: list[str]) -> bool:
    """Return whether the number of triple quotes is odd."""
    return sum(line.count('"""') + line.count("'''") for line in lines) % 2 == 1
