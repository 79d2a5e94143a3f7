"""Strangers' strings reach the screen as text on a line of their own, or not at all."""

from __future__ import annotations

import doctest
import io
import json

import pytest
from command_lines import run_here

import ngramkit.basics.untrusted
from ngramkit.basics.terminal_text import escape_controls, visible
from ngramkit_cli.output import Output

from . import tally

pytestmark = pytest.mark.attack

FORGED = "datastore\nhf://trusted/artifact  datastore for vicuna"
HOSTILE = [
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "a\rb",
    FORGED,
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x85next\u2028line",
    "\ud800",
    "\x00\x08\x7f",
    "x" * 1_000_000,
]


def is_tame(line: str) -> bool:
    return line.isprintable() and len(line) < 3000


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_of_the_screen_is_a_strangers(hostile, capsys):
    with Output("x", json=False, debug=False) as out:
        out.say(hostile)
        out.show(f"a {hostile} b")
        out.reporter.note(hostile)
    found = capsys.readouterr()
    assert len(found.err.splitlines()) == 2
    assert len(found.out.splitlines()) == 1
    assert all(map(is_tame, [*found.err.splitlines(), *found.out.splitlines()]))
    tally("hostile strings on a screen", "shown as text", 3)


def test_visible_is_one_line_and_bounded():
    assert doctest.testmod(ngramkit.basics.untrusted).failed == 0
    for hostile in HOSTILE:
        assert visible(hostile).isprintable()
        assert len(visible(hostile, 40)) <= 40


def test_what_a_model_writes_stays_text_but_drives_nothing():
    persian = "می\u200cخواهم\n\tتب"
    assert escape_controls(persian) == persian
    assert escape_controls("\x1b[31mred\x07") == "\\x1b[31mred\\x07"
    assert escape_controls("\u202eabc") == "\\u202eabc"


CARDS = [
    {"bytes": "x"},
    {"bytes": -1},
    {"bytes": 1e400},
    {"bytes": 2**70},
    {"bytes": True},
    {"bytes": None},
    {"bytes": [1]},
    {"kind": FORGED},
    {"kind": {"a": [1] * 1000}},
    {"kind": "k" * 100_000},
    {"kind": "\x1b[2J"},
    {"tokenizer": None},
    {"tokenizer": 7},
    {"fingerprint": ["f"]},
    {"vocabulary": {}},
]
WELL = {"kind": "datastore", "tokenizer": "demo", "vocabulary": 9, "bytes": 8, "fingerprint": "f"}


def items():
    for change in CARDS:
        yield {"id": "evil/card", "cardData": {"ngramkit": {**WELL, **change}}}
    for facts in ("text", 7, [1, 2], True, [[[[]]]]):
        yield {"id": "evil/card", "cardData": {"ngramkit": facts}}
    yield {"id": FORGED, "cardData": {"ngramkit": WELL}}
    yield {"id": "evil/card", "cardData": {"ngramkit": WELL}, "sha": 8}
    yield {"id": "evil/card", "cardData": {"ngramkit": WELL}, "downloads": "many"}
    yield {"id": 7}
    yield "nothing"


def test_a_card_that_cannot_be_read_is_one_marked_line(monkeypatch):
    good = {
        "id": "good/artifact",
        "cardData": {"ngramkit": WELL, "self": 1, "ignore_metadata_errors": 1},
    }
    hostile = list(items())
    plain = [{"id": "other/data", "cardData": card} for card in (None, [], "x", {"license": 3})]
    monkeypatch.setattr("huggingface_hub.utils.paginate", lambda *_: iter([*hostile, *plain, good]))
    found = run_here(["search"])
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert len(lines) == len(hostile) + 1
    assert all(map(is_tame, lines))
    rest = [line for line in lines if "cannot be read" not in line and "without an id" not in line]
    assert [line.split("  ")[0] for line in rest] == ["hf://good/artifact"]
    assert rest[0].endswith("  datastore for demo, 8 bytes")
    assert not any(line.startswith("hf://trusted") for line in lines)
    tally("hostile cards in a search", "one marked line", len(hostile))
    asked = run_here(["search", "--json"]).json["found"]
    assert [entry["problem"] == "" for entry in asked].count(True) == 1


def test_a_search_compares_fingerprints_not_names(monkeypatch):
    from ngramkit.corpus.tokenizer import load_tokenizer

    own = load_tokenizer("demo").record.fingerprint
    rows = [
        {"id": "a/same", "cardData": {"ngramkit": {**WELL, "tokenizer": "x", "fingerprint": own}}},
        {"id": "a/other", "cardData": {"ngramkit": {**WELL, "tokenizer": "demo"}}},
    ]
    monkeypatch.setattr("huggingface_hub.utils.paginate", lambda *_: iter(rows))
    assert run_here(["search", "--tokenizer", "demo"]).out.startswith("hf://a/same ")
    missing = run_here(["search", "--tokenizer", "nobody/nowhere"])
    assert (missing.code, "comparing names" in missing.err) == (0, True)


def test_a_manifest_with_escapes_is_inspected_as_text(token_store):
    store = token_store([[1, 2, 3]], 9)
    manifest = json.loads((store.path / "manifest.json").read_text())
    manifest["corpus"]["id"] = "x\x1b[2J\nforged  line"
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    shown = run_here(["inspect", str(store.path)])
    assert "\x1b" not in shown.out + shown.err
    assert not any(line.startswith("forged") for line in (shown.out + shown.err).splitlines())
    tally("hostile strings on a screen", "shown as text")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_models_escapes_do_not_drive_the_terminal():
    from ngramkit_cli.generated_text import Screen

    for stream, wanted in ((Terminal(), "\\x1b[2Jok\n"), (io.StringIO(), "\x1b[2Jok\n")):
        screen = Screen(stream, color=False)
        for piece in "\x1b[2Jok":
            screen.show(piece, False)
        screen.end()
        assert stream.getvalue() == wanted


def test_colours_of_drafted_tokens_have_a_legend(monkeypatch):
    from ngramkit_cli.generated_text import Screen

    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    screen = Screen(stream)
    screen.show("a", True)
    screen.show("b", False)
    assert stream.getvalue().splitlines()[0] == "[\x1b[36mdrafted\x1b[0m, the model's own]"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    Screen(plain).show("a", True)
    assert plain.getvalue() == "a"
