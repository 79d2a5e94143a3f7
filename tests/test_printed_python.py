"""The Python that pages print runs as it stands, from the top of a page to its end."""

from __future__ import annotations

import re

import doc_pages
import pytest

import ngramkit

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks(name):
    """The code of a page that is written by hand: generated parts are signatures."""
    text = (doc_pages.ROOT / name).read_text(encoding="utf-8")
    return BLOCK.findall(doc_pages.SECTION.sub("", text))


def run(name, smaller=None, **names):
    for block in blocks(name):
        for written, small in (smaller or {}).items():
            assert written in block
            block = block.replace(written, small)
        exec(block, names)
    return names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_page_of_python_runs(tmp_path):
    names = run("docs/python.md")
    assert names["answer"].text
    assert (tmp_path / "replay.png").is_file()


def test_the_readme_runs():
    build = 'build_datastore("python-stdlib", model="demo"'
    assert run("README.md", {build: f"{build}, limit=5"})["answer"].text


def test_the_pages_of_decoding_and_of_specache_run():
    ngramkit.build_datastore("python-stdlib", "artifacts/mine", model="demo", limit=5)
    run("docs/decoding.md", ngramkit=ngramkit)
    model = ngramkit.load_model("demo")
    input_ids = model.tokenizer.encode_prompt("import os\n" * 40)
    names = run("docs/specache.md", ngramkit=ngramkit, model=model, input_ids=input_ids)
    assert names["cache"].bits == 1


def test_every_public_name_is_on_the_page():
    page = doc_pages.python()
    assert all(f"### {name}\n" in page for name in ngramkit.__all__)
    assert "## More" not in page  # a new package has its chapter in doc_pages.CHAPTERS
