"""JSON records and turns, which corpora and logs share."""

from __future__ import annotations

import json

import pytest

from ngramkit.corpus.json_records import is_document, value_at
from ngramkit.corpus.turns import turn_text
from ngramkit.logs.read import read_log


@pytest.mark.parametrize(
    ("lines", "document"),
    [
        (['{"a": 1}'], False),
        (['[{"a": 1}]'], True),
        (['{"a": 1}', '{"a": 2}'], False),
        (['{"a": 1', '{"a": 2}'], False),  # cut off
        (['"a"', '"b"'], False),
        (["{", '"a": 1'], True),
        (['{"data": [', '{"a": 1},'], True),
        (["[", '{"a": 1}'], True),
        (['[{"a": 1}]', '[{"a": 2}]'], False),
        (['[{"a": 1},', '{"a": 2}]'], True),
    ],
)
def test_lines_or_one_document(lines, document):
    assert is_document(*(line.encode() for line in lines)) is document


def test_a_path_names_a_field_as_it_is_written_or_a_field_in_a_field():
    record = {"a.b": 1, "a": {"b": 2, "c": 3, "d.e": [4, {"f": 5}]}, "none": None}
    found = {p: value_at(record, p) for p in ("a.b", "a.c", "a.d.e.0", "a.d.e.1.f", "none.x")}
    assert found == {"a.b": 1, "a.c": 3, "a.d.e.0": 4, "a.d.e.1.f": 5, "none.x": None}
    for path in ("b", "a.x", "a.d.e.2", "a.b.c", "a.d.e.x", "a."):
        with pytest.raises(KeyError):
            value_at(record, path)


def test_the_text_of_a_turn():
    call = {"function": {"name": "f", "arguments": '{"x": 1}'}}
    written = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    assert turn_text({"content": None}) == ""
    assert turn_text({"value": "a"}) == "a"
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b"]
    assert turn_text({"content": parts}) == "ab"
    assert turn_text({"content": None, "tool_calls": [call]}) == written
    assert turn_text({"content": "a", "function_call": call["function"]}) == f"a\n{written}"
    for bad in ({}, {"content": 5}, {"role": "user"}, {"tool_calls": 5}):
        with pytest.raises(TypeError):
            turn_text(bad)


def test_a_byte_order_mark_before_a_log(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "p", "output": "o"}) + "\n", encoding="utf-8-sig")
    (request,) = read_log(path)
    assert (request.prompt, request.output) == ("p", "o")
