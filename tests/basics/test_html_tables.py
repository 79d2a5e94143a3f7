"""What a notebook shows of artifacts and results: small tables of escaped text."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import ngramkit
from ngramkit.basics.html_tables import MAX_CELL, MAX_ROWS, html_table
from ngramkit.basics.results import Result, Rows
from ngramkit.evaluate.result_tables import Cell, Table

HOSTILE = "<script>alert('x')</script> & \x1b[2J \"\u202e https://me:secret@host/x?token=1"


class Page(HTMLParser):
    """The elements and the text of a piece of HTML, which has to be closed properly."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_strings_from_outside_stay_text():
    page = Page(html_table(HOSTILE, [HOSTILE], [[HOSTILE], ["x" * 10_000]], [HOSTILE]))
    assert set(page.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert all(text.isprintable() and len(text) <= MAX_CELL for text in page.texts)
    assert sum("<script>alert('x')</script>" in text for text in page.texts) == 4
    assert not any("secret" in text or "token" in text for text in page.texts)


def test_long_tables_are_cut_and_say_so():
    page = Page(html_table("t", ["a"], [[n] for n in range(MAX_ROWS + 3)]))
    assert page.tags.count("td") == MAX_ROWS
    assert page.texts[-1] == "and 3 more rows"


@dataclass(frozen=True)
class Found(Result):
    name: str
    tokens: int
    share: float
    more: str | None = None


def test_rows_are_a_table_with_a_column_per_field():
    page = Page(Rows([Found("<b>", 12_345, 0.123456)])._repr_html_())
    head = ["Rows: 1 row", "name", "tokens", "share", "more"]
    assert page.texts == [*head, "<b>", "12,345", "0.1235"]


def test_tables_of_results_are_also_html():
    table = Table("x", "Tokens/step", ("nodes", "8"), [("<i>", [Cell("2.1", "2 to 3")])], ["n/a"])
    assert Page(table.html()).texts == ["Tokens/step", "nodes", "8", "<i>", "2.1 (2 to 3)", "n/a"]


def test_an_artifact_shows_its_path_and_its_counts(tmp_path):
    store = ngramkit.tokenize(["one text", "another"], "demo", tmp_path / "a<b>")
    counts = store.manifest.counts
    assert repr(store) == f"<TokenStore {counts['tokens']} tokens, demo, 0.0 MB: {store.path}>"
    texts = Page(store._repr_html_()).texts
    assert texts[:3] == ["TokenStore", "path", str(store.path)]
    assert dict(zip(texts[1::2], texts[2::2], strict=True))["documents"] == "2"
    assert Path(store).is_dir()
