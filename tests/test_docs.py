"""The documentation is true: generated parts are fresh, examples parse, links and files exist."""

from __future__ import annotations

import ast
import json
import re
import shlex

import doc_pages
import pytest

from benchmarks._figures import FIGURES
from ngramkit.formats.opening import CLASS_OF_KIND

COMMANDS = dict(doc_pages.leaves())
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def parse(line: str) -> None:
    """Parse a command line; raises where it names a command or an option that does not exist."""
    words = shlex.split(line, comments=True)[1:]
    name = max((n for n in COMMANDS if words[: len(n.split())] == n.split()), key=len)
    COMMANDS[name].make_context(name, words[len(name.split()) :])


def shell_lines(text: str) -> list[str]:
    blocks = SHELL.findall(text)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("ngramkit ")]


@pytest.mark.parametrize(
    "page",
    [*doc_pages.PAGES, *doc_pages.NOTEBOOKS],
    ids=lambda page: page.relative_to(doc_pages.ROOT).as_posix(),
)
def test_the_generated_parts_of_a_page_are_fresh(page):
    text = page.read_text(encoding="utf-8")
    assert doc_pages.generated(text) == text, "run: make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    text = COMMANDS[name].help
    example = re.search(r"Example: (ngramkit .*)", text, re.DOTALL)
    assert example, text
    parse(" ".join(example[1].split()))


@pytest.mark.parametrize("page", doc_pages.PAGES, ids=lambda page: page.name)
def test_the_command_lines_of_the_docs_can_be_parsed(page):
    lines = shell_lines(page.read_text(encoding="utf-8"))
    assert lines or page != doc_pages.ROOT / "README.md"
    for line in lines:
        parse(line)


WRITTEN = ["CONTRIBUTING.md", "SECURITY.md", "docs/reliability.md", "docs/code.md"]
FILE = re.compile(r"`((?:ngramkit|cli|tests|examples|docs|benchmarks|artifacts)/[\w./-]+)`")


@pytest.mark.parametrize("name", WRITTEN)
def test_the_files_that_a_page_walks_through_are_there(name):
    named = FILE.findall((doc_pages.ROOT / name).read_text(encoding="utf-8"))
    missing = [path for path in named if not (doc_pages.ROOT / path).exists()]
    assert not missing, f"{name} names what has moved: mend its sentence"


def test_the_tests_of_the_threat_model_are_there():
    named = re.findall(r"`(\w+/(?:test_\w+\.py)?)`", (doc_pages.ROOT / "SECURITY.md").read_text())
    assert named
    assert [path for path in named if not (doc_pages.ROOT / "tests" / path).exists()] == []


NAME = re.compile(r"`(\w+)(?:\(.*?\))?`")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/code.md"])
def test_the_names_that_a_page_walks_through_are_in_the_code(name):
    named = NAME.findall((doc_pages.ROOT / name).read_text(encoding="utf-8"))
    sources = [*doc_pages.ROOT.glob("ngramkit/**/*.py"), *doc_pages.ROOT.glob("cli/**/*.py")]
    sources += [*doc_pages.ROOT.glob("tests/**/*.py"), doc_pages.ROOT / "mkdocs.yml"]
    code = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}
    written_in_code = {word for word in named if "_" in word or word != word.lower()}
    assert written_in_code <= code


CALL = re.compile(r"`(?:\w+\.)*(\w+)\([^`]*\)`")
DEFINED = re.compile(r"\b(?:def|class) (\w+)")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/code.md"])
def test_the_calls_that_a_page_shows_are_defined_in_the_package(name):
    called = set(CALL.findall((doc_pages.ROOT / name).read_text(encoding="utf-8")))
    sources = doc_pages.ROOT.glob("ngramkit/**/*.py")
    defined = {word for path in sources for word in DEFINED.findall(path.read_text("utf-8"))}
    assert called <= defined


PLACE = re.compile(r"`([\w.]+)` in\s+`([\w/]+\.py)`")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/code.md"])
def test_a_name_is_defined_in_the_file_that_a_page_gives(name):
    places = PLACE.findall((doc_pages.ROOT / name).read_text(encoding="utf-8"))
    assert places
    for words, path in places:
        tree = ast.parse((doc_pages.ROOT / path).read_text(encoding="utf-8"))
        targets = [
            each.id
            for each in ast.walk(tree)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        ]
        defined = {*targets, *(each.name for each in ast.walk(tree) if hasattr(each, "name"))}
        assert set(words.split(".")) <= defined, f"{words} is not in {path}"


def test_the_bytes_of_every_kind_are_on_the_page_of_formats():
    assert {kind.__module__.rpartition(".")[2] for kind in CLASS_OF_KIND.values()} <= {
        *doc_pages.FORMATS
    }


def test_links_of_the_pages_lead_to_files():
    for page in [
        *doc_pages.PAGES,
        *doc_pages.NOTEBOOKS,
        *(doc_pages.ROOT / name for name in WRITTEN),
    ]:
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.json")), ids=lambda path: path.stem)
def test_a_measurement_has_its_provenance_and_is_on_a_page(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    assert {"command", "commit", "date", "machine"} <= record["measured"].keys()
    if "rows" in record:
        assert {len(row) for row in record["rows"]} == {len(record["head"])}
        marker = f"<!-- generated: figure_{path.stem} -->"
        assert any(marker in page.read_text(encoding="utf-8") for page in doc_pages.PAGES)


def test_a_wrong_example_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        parse("ngramkit decode --no-such-option")


def test_the_commands_of_the_image_can_be_parsed():
    text = (doc_pages.ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line for line in text.splitlines() if line.startswith("RUN ")]
    lines = [part.strip() for step in steps for part in re.split(r"&&|RUN ", step)]
    ours = [line for line in lines if line.startswith("ngramkit ")]
    assert ours
    for line in ours:
        parse(line)
    for copied in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((doc_pages.ROOT / name).exists() for name in copied.split())
