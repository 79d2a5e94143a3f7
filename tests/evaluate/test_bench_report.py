"""report.html: whole by itself, escaped, readable by everyone and on any screen."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser

import pytest

from ngramkit.evaluate.bench_figures import BenchResult
from ngramkit.evaluate.bench_report import write_report
from ngramkit.evaluate.replay_figures import Replay, Tally

EVIL = '<script>alert("x")</script>'


def measured(drafter, speedup, categories):
    figures = {name: {"tokens_per_step": 2.0, "speedup": speedup} for name in categories}
    return BenchResult(
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


def test_every_value_is_escaped(tmp_path):
    text = page(
        tmp_path / "r.html", title=EVIL, drafters=(f"rest{EVIL}",), categories=(EVIL, "b"),
        questions=EVIL, artifacts=[EVIL],
    )  # fmt: skip
    assert "<script" not in text
    assert text.count("&lt;script") > 6  # title twice, drafter, category, plan, descriptions
    assert not Elements(text).all("script")


def test_nothing_is_loaded(tmp_path):
    text = page(tmp_path / "r.html")
    elements = Elements(text)
    assert not any(elements.all(tag) for tag in ("script", "link", "iframe"))
    links = [a[k] for _, a in elements.found for k in ("src", "href", "xlink:href") if k in a]
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links)
    for link in links:
        picture = base64.b64decode(link.partition(",")[2]).decode()
        assert picture.startswith("<?xml")
        assert not re.findall(r"url\((?!#)", picture)
    assert "@import" not in text
    assert "url(" not in text


def test_it_fits_a_phone(tmp_path):
    text = page(tmp_path / "r.html")
    (viewport,) = [m for m in Elements(text).all("meta") if m.get("name") == "viewport"]
    assert viewport["content"].startswith("width=device-width")
    assert "minmax(min(28em, 100%), 1fr)" in text  # no column is wider than the screen
    kinds = [table["class"] for table in Elements(text).all("table")]
    assert kinds == ["measured cards", "", "names cards"]  # cards: a row is a list on a phone
    cells = Elements(text).all("td")
    assert {cell["data-column"] for cell in cells} >= {"speed-up", "64", "blend"}  # their labels


def test_a_name_is_broken_between_its_parts_alone(tmp_path):
    name = "rest:max_match=8,continuation=12"
    text = page(tmp_path / "r.html", drafters=(name,), artifacts=["a/b_c (1)"])
    assert '<th scope="row">rest:<wbr>max_<wbr>match=<wbr>8,<wbr>continuation=<wbr>12<' in text
    assert 'data-column="rest:\u200bmax_\u200bmatch' in text
    assert "<dd>a/b_<wbr>c (1)</dd>" in text
    assert ">1.10</td>" in text
    anywhere = re.findall(r"^(\S.*) { overflow-wrap: anywhere", text, re.M)
    assert anywhere == [".names thead th"]  # as little as that, where columns have room


def test_the_baseline_has_no_interval(tmp_path):
    rows = re.findall(r'<th scope="row">(.*?)</tr>', page(tmp_path / "r.html"))
    intervals = [re.findall(r"<td[^>]*>(.*?)</td>", row)[2] for row in rows[:3]]
    assert intervals == ["", "1.80 to 6.00", "2.70 to 9.00"]


def test_whether_the_answers_are_the_same_comes_first(tmp_path):
    text = page(tmp_path / "r.html")
    heads = re.findall(r'<th scope="col">(.*?)</th>', text)
    assert heads[:3] == ["drafter", "answers as without drafts", "speed-up"]
    row = re.search(r'<th scope="row">blend</th>(.*?)</tr>', text)[1]
    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[:2] == ["all", "2.00"]


@pytest.mark.parametrize(("categories", "pictures"), [(("a", "b", "c"), 4), (("a",), 3)])
def test_every_picture_is_described_in_words(tmp_path, categories, pictures):
    text = page(tmp_path / "r.html", categories=categories)
    found = Elements(text).all("img")
    assert len(found) == pictures
    assert "blend 2.00 (1.80 to 6.00)" in found[0]["alt"]
    assert all(": " in image["alt"] for image in found)


@pytest.mark.parametrize(("budget", "said"), [("auto", "budget auto"), (16, "at most 16 nodes")])
def test_one_speedup_per_drafter_and_what_the_curve_is(tmp_path, budget, said):
    text = page(tmp_path / "r.html", budget=budget)
    assert said in text
    assert "replays the answers" in text
    assert f"measured, {budget}" in text
    for cell in ("1.10", "4.20", "2.00"):  # blend at 2 and 64 nodes, and as measured
        assert f">{cell}</td>" in text


def test_the_same_results_give_the_same_bytes(tmp_path):
    assert page(tmp_path / "a.html") == page(tmp_path / "b.html")


def test_the_picture_promises_no_interval_where_there_is_none(tmp_path):
    few = measured("rest", 2.0, ["a"])
    few.speedup_low = few.speedup_high = None
    write_report(tmp_path / "r.html", "two", [few, few], [], {"budget": 8}, {})
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<figcaption>Speed-up over no drafts</figcaption>" in text
    assert "95% interval over questions" not in text


def test_one_thread_is_shown_as_one(tmp_path):
    text = page(tmp_path / "r.html", device="cpu, 1 threads, packed weights")
    assert "cpu, 1 thread, packed weights" in text
    assert "1 threads" not in text
