"""The documentation says what is so: its pages are the code's, and every example can be parsed."""

from __future__ import annotations

import re
import shlex

import doc_pages
import pytest

COMMANDS = dict(doc_pages.leaves())
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def parse(line: str) -> None:
    """Raises where a command line names a command or an option that does not exist."""
    words = shlex.split(line, comments=True)[1:]
    name = max((n for n in COMMANDS if words[: len(n.split())] == n.split()), key=len)
    COMMANDS[name].make_context(name, words[len(name.split()) :])


def shell_lines(text: str) -> list[str]:
    blocks = SHELL.findall(text)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("ngramkit ")]


@pytest.mark.parametrize("page", doc_pages.PAGES, ids=lambda page: page.name)
def test_the_generated_parts_of_a_page_are_fresh(page):
    text = page.read_text(encoding="utf-8")
    assert doc_pages.generated(text) == text, "run: make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_and_shows_how(name):
    text = COMMANDS[name].help
    example = re.search(r"Example: (ngramkit .*)", text, re.DOTALL)
    assert example, text
    parse(" ".join(example[1].split()))


@pytest.mark.parametrize(
    "page",
    [*doc_pages.PAGES, doc_pages.ROOT / "artifacts" / "README.md"],
    ids=lambda page: page.name,
)
def test_the_command_lines_of_the_docs_can_be_parsed(page):
    lines = shell_lines(page.read_text(encoding="utf-8"))
    assert lines or page != doc_pages.ROOT / "README.md"
    for line in lines:
        parse(line)


def test_a_wrong_example_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        parse("ngramkit decode --no-such-option")
