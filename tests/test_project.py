"""What the project says of itself: one version, dependencies pinned with their hashes."""

from __future__ import annotations

import fnmatch
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from site_pages import relinked

import ngramkit
from ngramkit.drafters.registry import DRAFTERS
from ngramkit.kernels.jit import TESTED_NUMBA, is_tested

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ELSEWHERE = {"colorama", "httpx2-jsfetch"}  # needed on other systems only


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines]
    return {plain(match[1]): match[2] for match in found if match}


def test_the_version_is_written_once():
    assert "version" not in PROJECT["project"]
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
    assert dynamic["version"] == {"attr": "ngramkit.basics.version.__version__"}
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest[1] == ngramkit.__version__


def test_who_made_it_and_where_it_runs_is_told_to_the_index():
    project = PROJECT["project"]
    assert {"authors", "description", "license", "requires-python"} <= project.keys()
    versions = [re.fullmatch(r".*:: (3\.\d+)", line) for line in project["classifiers"]]
    assert [match[1] for match in versions if match] == ["3.11", "3.12", "3.13"]


def test_a_numba_that_was_not_tested_is_not_installed():
    (bound,) = [need for need in PROJECT["project"]["dependencies"] if need.startswith("numba")]
    assert bound == f"numba>={'.'.join(map(str, TESTED_NUMBA[0]))}"
    assert is_tested(pins(ROOT / "constraints.txt")["numba"])


def test_every_dependency_but_torch_is_pinned_with_its_hashes():
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    assert all("--hash=sha256:" in block for block in blocks)
    hashed, pinned = pins(ROOT / "requirements.txt"), pins(ROOT / "constraints.txt")
    assert len(hashed) == len(blocks)
    declared = [
        *PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"],
    ]  # fmt: skip
    names = {plain(re.match(r"[\w.-]+", line)[0]) for line in declared}
    assert names - set(hashed) == {"torch"}, "run: make requirements"
    assert {n: v for n, v in hashed.items() if n not in ELSEWHERE}.items() <= pinned.items()


@pytest.mark.parametrize("group", ["publish", "site"])
def test_the_tools_of_a_group_are_pinned_with_their_hashes(group):
    text = (ROOT / f"requirements-{group}.txt").read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    assert all("--hash=sha256:" in block for block in blocks)
    declared = {re.match(r"[\w.-]+", line)[0] for line in PROJECT["dependency-groups"][group]}
    assert declared <= set(pins(ROOT / f"requirements-{group}.txt")), "run: make requirements"


def test_every_file_of_the_packages_is_in_the_wheel():
    listed = subprocess.run(
        ["git", "ls-files", "ngramkit", "cli/ngramkit_cli"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["ngramkit"]
    missed = [
        path
        for path in listed
        if not path.endswith(".py")
        and not any(fnmatch.fnmatch(path, f"ngramkit/{pattern}") for pattern in patterns)
    ]
    assert not missed


def test_the_description_for_the_index_has_no_relative_links():
    describe = runpy.run_path(str(ROOT / "setup.py"))["described"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    alone = describe(text, None, "v1")
    assert not re.findall(r"\]\((?!https?:|#)", alone)
    assert "More: packed weights, all figures." in alone
    absolute = describe(text, "https://example.org/us/it", "v1")
    assert "](https://example.org/us/it/blob/v1/docs/cli.md)" in absolute
    assert "](https://example.org/us/it/raw/v1/docs/real.svg)" in absolute
    assert not re.findall(r"\]\((?!https?:|#)", absolute)


@pytest.mark.parametrize(
    ("source", "page", "text", "expected"),
    [
        ("README.md", "index.md", "[a](docs/cli.md#x) [b](examples/x.py)", "[a](cli.md#x) b"),
        ("README.md", "index.md", "![p](docs/real.svg)", "![p](real.svg)"),
        ("docs/formats.md", "formats.md", "[a](../SECURITY.md)", "[a](security.md)"),
        ("docs/engines/vllm.md", "engines/vllm.md", "[a](../cli.md)", "[a](../cli.md)"),
        ("README.md", "index.md", "[e](docs/engines/README.md)", "[e](engines/README.md)"),
        ("README.md", "index.md", "[u](https://a.b/c.md)", "[u](https://a.b/c.md)"),
    ],
)
def test_links_of_the_repository_lead_to_pages_of_the_site(source, page, text, expected):
    assert relinked(text, source, page) == expected


def test_the_citation_names_this_version_and_every_paper_of_a_drafter():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == ngramkit.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["abstract"] == PROJECT["project"]["description"]
    cited = {reference["url"].rpartition("/")[2] for reference in citation["references"]}
    summaries = " ".join(entry.looks_up for entry in DRAFTERS.values())
    assert set(re.findall(r"arXiv:(\d{4}\.\d{5})", summaries)) <= cited
