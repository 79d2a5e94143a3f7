"""The page of a replay: whole by itself, its texts escaped, its size bounded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.base import DraftTree, Source
from ngramkit.drafters.context import Context
from ngramkit.evaluate import replay_page
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay_page import WatchedPass, text_of_each_token
from ngramkit.formats.tokenizer_record import TokenizerRecord

CODE = 'def main(self):\n    """Says it."""\n    return self.name\n'
EVIL = "</script><script>alert(1)</script><!-- \u202eabc\u2066 \x1b[31m &amp; "


class Page(HTMLParser):
    """The parts of a page: its elements, its scripts' texts and its data."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._inside = [], {}, None
        self.feed(text)
        self.data = json.loads(self.texts["application/json"])

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = dict(attributes).get("type", tag) if tag in ("script", "style") else None

    def handle_data(self, data):
        if self._inside is not None:
            self.texts[self._inside] = data
            self._inside = None


class Notes(Reporter):
    def __init__(self):
        self.of_the_page = []

    def note(self, text):
        self.of_the_page += [text] if text.startswith(("page", "the page")) else []


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def replayed(tmp_path, monkeypatch):
    """replayed(outputs, **options) -> (results, page, notes)"""
    monkeypatch.chdir(tmp_path)

    def replay(outputs, **options):
        lines = [{"prompt": f"class A:\n{EVIL}", "output": output} for output in outputs]
        (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
        reporter = Notes()
        options = {"model": "demo", "drafters": ["context"], "budgets": [6, 12], **options}
        results = ngramkit.replay(
            tmp_path / "log.jsonl", html="page.html", reporter=reporter, **options
        )
        return results, read(tmp_path / "page.html"), reporter.of_the_page

    return replay


def test_the_page_has_the_passes_of_the_replay(replayed):
    results, page, notes = replayed([CODE * 3, CODE], drafters=["context", "prompt-lookup"])
    data = page.data
    assert data["drafters"] == ["context", "prompt-lookup"]
    assert [answer["name"] for answer in data["answers"]] == ["1", "2"]
    assert not notes
    for at, drafter in enumerate(data["drafters"]):
        total = next(r for r in results if (r.drafter, r.budget) == (drafter, 6)).total
        passes = [each for answer in data["answers"] for each in answer["views"][at]["passes"]]
        assert len(passes) == total.passes
        assert sum(written for written, *_ in passes) == total.tokens
        assert all(len(nodes) <= 4 * 6 for _, nodes, *_ in passes)
    for answer, text in zip(data["answers"], (CODE * 3, CODE), strict=True):
        assert "".join(answer["texts"]).strip().startswith(text)
        assert answer["views"][0]["left"] == 0
        assert answer["prompt"].startswith("class A:")
        assert answer["prompt_tokens"] > 20


def test_accepted_nodes_are_what_was_written(replayed):
    data = replayed([CODE * 3])[1].data
    answer = data["answers"][0]
    place, drafted = 1, 0
    for written, nodes, accepted, _ in answer["views"][0]["passes"]:
        for at, node in enumerate(accepted):
            piece, parent, source, score = nodes[4 * node : 4 * node + 4]
            assert data["pieces"][piece] == answer["texts"][place + at]
            assert parent == (accepted[at - 1] if at else -1)
            assert data["sources"][source]["key"] == "own"
            assert 0 <= score <= 100
        drafted += len(accepted)
        place += written
    assert place == len(answer["texts"])
    assert drafted > 5


@pytest.mark.skipif(not shutil.which("node"), reason="the page's script needs a browser or node")
def test_its_script_shows_the_passes(replayed, tmp_path):
    data = replayed([CODE * 3], drafters=["context", "none"])[1].data
    words = ["node", str(Path(__file__).with_name("page_in_node.js")), str(tmp_path / "page.html")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    first, begin, third, clicked, other = json.loads(done.stdout)
    answer = data["answers"][0]
    text, view = "".join(answer["texts"]), answer["views"][0]
    passes, tokens = view["passes"], sum(written for written, *_ in view["passes"])
    assert {each["answer"] for each in (first, begin, third, clicked, other)} == {text}
    assert first["colours"].count("own") == sum(len(accepted) for *_, accepted, _ in passes)
    assert len(first["colours"]) == tokens + 1  # the first is from the prompt's pass
    assert first["figures"].startswith(f"{tokens / len(passes):.2f} tokens per pass")
    assert first["later"] == 0
    assert (begin["place"], begin["later"]) == (f"pass 1 of {len(passes)}", len(passes) - 1)
    assert (third["place"], third["later"]) == (f"pass 3 of {len(passes)}", len(passes) - 3)
    assert third["detail"].startswith(f"Pass 3: {passes[2][0]} token")
    assert third["accepted"] == passes[2][0]
    assert (clicked["place"], clicked["later"]) == (f"pass 1 of {len(passes)}", 0)
    assert set(other["colours"]) == {"none"}
    assert other["figures"].startswith("1.00 tokens per pass")


def test_it_loads_nothing_and_only_its_own_script_runs(replayed):
    page = replayed([CODE])[1]
    assert not [e for e in page.elements if {"src", "href", "srcset", "action"} & e[1].keys()]
    policy = dict(page.elements[[e[1].get("http-equiv") for e in page.elements].index(
        "Content-Security-Policy")][1])["content"]  # fmt: skip
    assert policy.startswith("default-src 'none'; ")
    for name in ("script", "style"):
        digest = hashlib.sha256(page.texts[name].encode()).digest()
        assert f"{name}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
        assert not re.search(r"https?:|//\w|url\(|@import", page.texts[name])
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval", str(page.texts)
    )


def test_no_text_is_markup(replayed, tmp_path):
    page = replayed([EVIL * 2 + CODE])[1]
    raw = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert raw.count("<script") == raw.count("</script>") == 2
    assert "<!--" not in raw
    assert [tag for tag, _ in page.elements].count("script") == 2
    answer = page.data["answers"][0]
    shown = "".join(answer["texts"])
    assert "</script><script>alert(1)</script><!-- \\u202eabc\\u2066 \\x1b[31m" in shown
    assert "\\u202e" in answer["prompt"]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", raw)


def test_a_drafter_with_a_hostile_name(tmp_path, replayed):
    hostile = type("</title><script>", (Context,), {})
    page = replayed([CODE], drafters=[lambda: hostile()])[1]
    assert len([1 for tag, _ in page.elements if tag == "script"]) == 2


def test_a_character_of_several_tokens_is_the_last_ones():
    tokenizer = load_tokenizer("demo")
    ids = tokenizer.encode("a你🎉\n")
    texts = list(text_of_each_token(ids, tokenizer))
    assert "".join(texts) == "a你🎉\n"
    assert "" in texts
    assert "\\x" in "".join(
        text_of_each_token(ids[:-2], tokenizer)
    )  # it ends within the last character


def test_long_answers_and_many_answers_are_cut_and_that_is_said(replayed, monkeypatch):
    monkeypatch.setattr(replay_page, "MAX_TOKENS", 40)
    monkeypatch.setattr(replay_page, "MAX_ANSWERS", 2)
    monkeypatch.setattr(replay_page, "MAX_PROMPT_CHARACTERS", 10)
    _, page, notes = replayed([CODE * 9, CODE * 4, CODE, CODE])
    first, second = page.data["answers"]
    view = first["views"][0]
    assert len(first["texts"]) <= 40
    assert view["left"] > 100
    assert sum(written for written, *_ in view["passes"]) + 1 == len(first["texts"])
    assert len(first["prompt"]) <= 10
    assert first["prompt_cut"]
    assert notes == ["page.html has the first 2 of 4 answers"]
    assert "the first 2 of 4 answers" in page.data["about"]
    assert second["name"] == "2"


def test_further_drafters_are_named_as_left_out(replayed, monkeypatch):
    monkeypatch.setattr(replay_page, "MAX_DRAFTERS", 1)
    _, page, notes = replayed([CODE], drafters=["context", "prompt-lookup"])
    assert page.data["drafters"] == ["context"]
    assert notes == ["page.html has the first 1 of 2 drafters"]


def test_a_page_has_a_bounded_number_of_nodes(replayed, monkeypatch):
    monkeypatch.setattr(replay_page, "PAGE_NODES", 50)
    _, page, notes = replayed([CODE * 3] * 3)
    assert len(page.data["answers"]) == 1
    assert notes == ["page.html has the first 1 of 3 answers"]


def test_a_large_tree_keeps_the_accepted_path(monkeypatch):
    monkeypatch.setattr(replay_page, "MAX_NODES", 2)
    parents = np.array([-1, -1, -1, 2, 3], np.int32)
    tree = DraftTree(
        np.arange(5, dtype=np.int32), parents, np.ones(5, np.float32), np.zeros(5, np.uint8)
    )
    watched = WatchedPass.of(tree, [2, 3], 3)
    watched.tree.check()
    assert watched.tree.token_ids.tolist() == [0, 1, 2, 3]
    assert watched.tree.parents.tolist() == [-1, -1, -1, 2]
    assert (list(watched.accepted), watched.left_out) == ([2, 3], 1)


def test_every_source_has_a_colour():
    assert replay_page.GROUP_OF_SOURCE.keys() == set(map(int, Source))


def test_records_of_ids_show_ids(tmp_path):
    reporter = Notes()
    record = Record("q", "all", [Turn([1, 2, 1, 2], [1, 2, 1, 2, 3])])
    tokenizer = TokenizerRecord("./nowhere", 9, "ab" * 32)
    ngramkit.replay(
        [record], model=tokenizer, drafters="context", budgets=[4], html=tmp_path / "p.html",
        reporter=reporter,
    )  # fmt: skip
    assert read(tmp_path / "p.html").data["answers"][0]["texts"] == ["1 ", "2 ", "1 ", "2 ", "3 "]
    assert reporter.of_the_page[0].startswith("the page shows token ids: ")


def test_a_page_without_an_answer(tmp_path):
    path, tokenizer = tmp_path / "p.html", TokenizerRecord("./nowhere", 9, "ab" * 32)
    empty = Record("q", "all", [Turn([1, 2], [])])
    ngramkit.replay([empty], model=tokenizer, drafters="context", budgets=[4], html=path)
    page = read(path)
    assert page.data["answers"] == []
    assert "No answer has tokens." in page.texts["script"]


def test_only_a_page_is_replaced_and_only_with_force(replayed, tmp_path):
    page = tmp_path / "page.html"
    replayed([CODE])
    with pytest.raises(UsageError, match=r"cannot write page\.html: it exists") as caught:
        replayed([CODE])
    assert caught.value.option == ("html", "force")
    replayed([CODE], force=True)
    page.write_text("<html>mine</html>")
    with pytest.raises(UsageError, match="no replay wrote what is there"):
        replayed([CODE], force=True)
    assert page.read_text() == "<html>mine</html>"


@pytest.mark.parametrize("private", [False, True])
def test_a_page_with_private_texts_is_for_its_owner_only(replayed, tmp_path, private):
    datastore = ngramkit.build_datastore(
        [CODE], tmp_path / "d", model="demo", name="code", private=private
    )
    _, _, notes = replayed([CODE], drafters=["rest"], artifacts=[datastore])
    assert (tmp_path / "page.html").stat().st_mode & 0o077 == (0 if private else 0o044)
    assert notes == ["page.html has private texts, so only you can read it"] * private


@pytest.mark.parametrize(
    ("path", "match"),
    [("page.png", "html must be a file FILE.html"), ("none/page.html", "no such folder: none")],
)
def test_places_that_cannot_be_written(path, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=match) as caught:
        ngramkit.replay("none.jsonl", html=path)
    assert caught.value.option == ("html",)
