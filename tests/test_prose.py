"""The rules of CONTRIBUTING.md ("How we write") that a machine can check, for pages and for code.

Every room has an allowance: how many findings it may still have. Lower it when you rewrite a room;
a room that is not listed has none.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import doc_pages
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *doc_pages.PAGES,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
# Constructions that plain technical English does without.
CONSTRUCTIONS = {
    "a sentence opens with its object": (
        r"(?:(?<=[.:;!?] )|(?<=\n)|^)"
        r"(?:Of (?!course)\w|What \w[^?\n]{0,160}?[a-z](?:\.|:|;|$)"
        r"|Where (?!is|are|do|does|to)\w|One that |Those that |Whatever )"
    ),
    "'is no', 'is none' for 'is not a'": (
        r"(?<![Tt]here )\b(?:is|are|was|were) (?:no|none)\b(?! longer| more| different| better)"
    ),
    "an unusual adverb": (
        r"\b(?:anew|by turns|in turns|of before|of late|thrice|oneself|at hand|of one's own)\b"
    ),
}
SHAPES = re.compile(r"\bmust\b|^unknown |^cannot |^no such ")
ERRORS = re.compile(r"(?:Error|Problem)$")
# A hint is a sentence that starts with a verb; these are the words that hints start with wrongly.
NOT_A_VERB = re.compile(
    r"(?:a|an|the|it|its|this|that|these|those|they|what|where|which|one|of|only|no|or|there|such"
    r"|without|with|any|all|every|each|both)\b",
    re.IGNORECASE,
)
# A full sentence; a command that can be copied ends without a full stop.
SENTENCE = re.compile(r"(?=[A-Z]|x).*([.?!]$|: (?:pip|hf|ngramkit|ulimit|x)\b|^Run )", re.DOTALL)

# Room -> how many messages have none of the three shapes, and how many hints start with no verb.
MESSAGES = {
    "__init__": 1, "basics": 3, "cli": 1, "corpus": 11, "decode": 1, "drafters": 1, "formats": 8,
    "gguf": 1, "kernels": 4, "logs": 2,
}  # fmt: skip
HINTS = {
    "basics": 1, "builders": 2, "exchange": 1, "formats": 2,
}  # fmt: skip


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "cli" if parts[0] == "cli" else parts[1] if len(parts) > 1 else parts[0]


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "ngramkit", "cli"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    paths = (ROOT / name for name in listed if name.endswith(".py"))
    return [path for path in paths if path.exists()]


def written(page: Path) -> str:
    """Return what people wrote of a page: no generated parts, code or quoted text."""
    text = doc_pages.SECTION.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "x", text)


def findings(text: str) -> list[str]:
    return [
        f"{what}: ...{text[max(match.start() - 20, 0) : match.end() + 40]!r}"
        for what, pattern in CONSTRUCTIONS.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


def prose(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"`[^`]*`", "x", ast.get_docstring(node) or "")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def literal(node: ast.expr) -> str | None:
    """Return a string as written, each value in it as x; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (value.value if isinstance(value, ast.Constant) else "x" for value in node.values)
        return "".join(map(str, parts))
    return None


def errors(path: Path) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield line, message and hint of each error of ours that a module makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if ERRORS.search(node.func.id) and node.args:
            named = {word.arg: word.value for word in node.keywords}
            hint = node.args[1] if len(node.args) > 1 else named.get("hint")
            yield node.lineno, literal(node.args[0]), hint and literal(hint)


def by_room(found: Iterator[tuple[Path, str]]) -> dict[str, list[str]]:
    rooms: dict[str, list[str]] = defaultdict(list)
    for path, what in found:
        rooms[room(path)].append(f"{path.relative_to(ROOT)}: {what}")
    return rooms


def words() -> dict[str, list[str]]:
    return by_room((p, each) for p in sources() for text in prose(p) for each in findings(text))


def messages() -> dict[str, list[str]]:
    return by_room(
        (path, f"{line}: {message!r}")
        for path in sources()
        for line, message, _ in errors(path)
        if message is not None and not SHAPES.search(message)
    )


def hints() -> dict[str, list[str]]:
    return by_room(
        (path, f"{line}: {hint!r}")
        for path in sources()
        for line, _, hint in errors(path)
        if hint and (NOT_A_VERB.match(hint) or not SENTENCE.match(hint))
    )


RULES = {
    "words": (words, {}),
    "messages": (messages, MESSAGES),
    "hints": (hints, HINTS),
}


@pytest.mark.parametrize("rule", RULES)
def test_no_room_has_more_findings_than_it_may(rule):
    find, allowed = RULES[rule]
    over = {name: each for name, each in find().items() if len(each) > allowed.get(name, 0)}
    shown = "\n".join(line for each in over.values() for line in each)
    assert not over, f"{ {name: len(each) for name, each in over.items()} }\n{shown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_plain_english(page):
    assert not findings(written(page))


def avoided() -> dict[str, str]:
    """Return the words that the glossary replaces: avoided word -> term."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page.partition("## One word")[2], re.MULTILINE)
    return {old: term for cell, term in rows[1:] for old in cell.split(", ")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_the_terms_of_the_glossary(page):
    text = written(page).partition("## One word")[0].lower()
    found = [old for old in avoided() if re.search(rf"\b{re.escape(old.lower())}\b", text)]
    assert not found, {old: avoided()[old] for old in found}


def test_an_entry_of_the_changelog_has_at_most_twenty_words():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert entries
    assert [line for line in entries if len(line[2:].split()) > 20] == []
    heads = {line[4:] for line in lines if line.startswith("### ")}
    assert heads <= {"Added", "Changed", "Fixed", "Removed"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What is asked again is drafted from its first token.", 1),
        ("Repeated prompts are drafted from the first token.", 0),
        ("--budget is no number of nodes.", 1),
        ("There is no network.", 0),
    ],
)
def test_a_construction_is_found(text, count):
    assert len(findings(text)) == count
