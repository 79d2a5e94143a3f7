"""The documentation says what is so: the README is the code's, and every example can be parsed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import docs
import pytest

COMMANDS = dict(docs.leaves())
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


def test_the_generated_parts_of_the_readme_are_fresh():
    text = docs.README.read_text(encoding="utf-8")
    assert docs.generated(text) == text, "run: make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_and_shows_how(name):
    text = COMMANDS[name].help
    example = re.search(r"Example: (ngramkit .*)", text, re.DOTALL)
    assert example, text
    parse(" ".join(example[1].split()))


@pytest.mark.parametrize("page", ["README.md", "artifacts/README.md"])
def test_the_command_lines_of_the_docs_can_be_parsed(page):
    lines = shell_lines((Path(docs.ROOT) / page).read_text(encoding="utf-8"))
    assert lines or page != "README.md"
    for line in lines:
        parse(line)


def test_a_wrong_example_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        parse("ngramkit decode --no-such-option")
