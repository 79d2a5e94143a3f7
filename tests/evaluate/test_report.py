"""report.html: whole by itself, escaped, readable by everyone and on every screen."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ngramkit.evaluate.plots import DARK, INK, PALETTE
from ngramkit.evaluate.report import write_report
from ngramkit.evaluate.results import Result
from ngramkit.evaluate.simulation import Replay, Tally

EVIL = '<script>alert("x")</script>'


def measured(drafter, speedup, categories):
    figures = {name: {"tokens_per_step": 2.0, "speedup": speedup} for name in categories}
    return Result(
        drafter, 100, 50, 2.0, 30.0 * speedup, speedup, speedup * 0.9, speedup * 3, True,
        1.0, 5.0, 10.0, figures, {"1": 25, "3": 25},
    )  # fmt: skip


def replayed(drafter, budget, steps):
    return Replay(drafter, budget, Tally(tokens=round(100 * steps), passes=100))


def page(path, *, budget="auto", drafters=("blend", "rest"), categories=("a", "b", "c"), **facts):
    results = [measured(name, 1.0 + i, categories) for i, name in enumerate(["none", *drafters])]
    curves = [replayed(name, n, 1 + n / 20) for name in drafters for n in (2, 64)]
    title = facts.pop("title", "demo on 3 questions")
    write_report(path, title, results, curves, {"budget": budget, **facts}, {"numpy": "2"})
    return path.read_text(encoding="utf-8")


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_whatever_a_file_calls_itself_is_text(tmp_path):
    text = page(
        tmp_path / "r.html", title=EVIL, drafters=(f"rest{EVIL}",), categories=(EVIL, "b"),
        questions=EVIL, artifacts=[EVIL],
    )  # fmt: skip
    assert "<script" not in text
    assert text.count("&lt;script") > 6  # title twice, drafter, category, plan, pictures
    assert not Elements(text).all("script")


def test_nothing_is_loaded(tmp_path):
    text = page(tmp_path / "r.html")
    elements = Elements(text)
    assert not any(elements.all(tag) for tag in ("script", "link", "img", "iframe"))
    links = [a[k] for _, a in elements.found for k in ("src", "href", "xlink:href") if k in a]
    assert all(link.startswith("#") for link in links)
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)


def test_it_fits_a_phone_and_a_dark_room(tmp_path):
    text = page(tmp_path / "r.html")
    (viewport,) = [m for m in Elements(text).all("meta") if m.get("name") == "viewport"]
    assert viewport["content"].startswith("width=device-width")
    assert "minmax(min(28em, 100%), 1fr)" in text  # no column is wider than the screen
    assert "prefers-color-scheme: dark" in text
    pictures = text[text.index("<svg") : text.rindex("</svg>")]
    for color in (INK, *PALETTE, "#000000", "black"):
        assert color not in pictures
    assert "var(--c1)" in pictures
    assert len(DARK) == len(PALETTE)


@pytest.mark.parametrize(("categories", "pictures"), [(("a", "b", "c"), 4), (("a",), 3)])
def test_every_picture_has_a_title_and_a_text(tmp_path, categories, pictures):
    text = page(tmp_path / "r.html", categories=categories)
    elements = Elements(text)
    ids = {a["id"]: tag for tag, a in elements.found if "id" in a}
    assert len(ids) == sum("id" in a for _, a in elements.found)  # each given once
    found = elements.all("svg")
    assert len(found) == pictures
    for svg in found:
        assert svg["role"] == "img"
        assert ids[svg["aria-labelledby"]] == "title"
        assert ids[svg["aria-describedby"]] == "desc"
    assert "blend 2.00 (1.80 to 6.00)" in text


def test_a_speedup_stands_where_its_bar_ends(tmp_path):
    text = page(tmp_path / "r.html", drafters=("blend",))
    picture = text[text.index("<svg") : text.index("</svg>")]
    (bar,) = re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="fill: var\(--c0\)', picture)
    end = max(float(x) for x in re.findall(r"[ML] ([-0-9.]+) ", bar))
    (label,) = re.findall(r'<text[^>]* x="([-0-9.]+)"[^>]*>2\.00</text>', picture)
    assert 0 < float(label) - end < 10


@pytest.mark.parametrize(("budget", "said"), [("auto", "budget auto"), (16, "at most 16 nodes")])
def test_one_speedup_per_drafter_and_what_the_curve_is(tmp_path, budget, said):
    text = page(tmp_path / "r.html", budget=budget)
    assert said in text
    assert "replays the answers" in text
    assert f"measured, {budget}" in text
    for cell in ("1.10", "4.20", "2.00"):  # blend at 2 and 64 nodes, and as measured
        assert f"<td>{cell}</td>" in text


def test_the_same_results_give_the_same_bytes(tmp_path):
    assert page(tmp_path / "a.html") == page(tmp_path / "b.html")
