"""The Space of examples/hub with a stand-in of gradio, for an artifact of the Hub's stand-in."""

from __future__ import annotations

import html
import json
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

APP = Path(__file__).parents[2] / "examples" / "hub" / "space" / "app.py"
CODE = "def area(width, height):\n    return width * height\n\n\n"


class Gradio(MagicMock):
    """A stand-in for gradio: components do nothing, events are kept."""

    Error = type("Error", (Exception,), {})


@pytest.fixture
def space(shared, artifacts, monkeypatch):
    [pushed] = shared(["push", artifacts["datastore"], "acme/our-data"])
    assert pushed.code == 0, pushed.err
    gradio = Gradio()
    monkeypatch.setitem(sys.modules, "gradio", gradio)
    monkeypatch.setenv("ARTIFACT", "hf://acme/our-data")
    names = runpy.run_path(str(APP))
    [event] = gradio.Button.return_value.click.call_args_list
    assert event.args[0] is names["show"]
    return names


@pytest.mark.parametrize("drafter", ["blend", "rest", "prompt-lookup"])
def test_the_space_shows_the_page(space, drafter):
    frame = space["show"](space["PROMPT"], CODE + "</iframe>", drafter, 8.0)
    assert frame.startswith('<iframe sandbox="allow-scripts" ')
    assert frame.count("<") == 2  # the page is escaped
    page = html.unescape(re.search('srcdoc="([^"]*)"', frame)[1])
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', page)[1])
    assert data["drafters"] == [drafter]
    assert "".join(data["answers"][0]["texts"]).strip().startswith(CODE.strip())


def test_the_space_refuses_what_it_cannot_show(space, monkeypatch):
    error = sys.modules["gradio"].Error
    for answer, drafter, said in [
        (" \n", "blend", "Paste an answer"),
        ("b" * 20_001, "blend", "20,000 characters"),
        ("b", "nothing", "unknown drafter 'nothing'"),
    ]:
        with pytest.raises(error, match=said):
            space["show"]("a", answer, drafter)
    space["show"]("", "b")  # without a prompt
    space["show"]("a\ud800", "b")  # half a surrogate pair becomes U+FFFD
