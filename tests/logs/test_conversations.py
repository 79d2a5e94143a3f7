"""Requests of a log are one conversation by what they say, never by their names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngramkit.corpus.chat import Message
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.evaluate.records import Record, Turn, read_records, units_of
from ngramkit.evaluate.replay_figures import Replay, Tally
from ngramkit.logs.conversations import find_predecessors
from ngramkit.logs.request import LoggedRequest

BODY = (
    "\n    zebra = {}\n    for quokka in range(zebra):\n        print(quokka)\n    return zebra\n"
)


def found(*pairs, eos="</s>"):
    requests = [LoggedRequest(prompt, output, name="same") for prompt, output in pairs]
    return find_predecessors(requests, lambda ids: "".join(map(chr, ids)), eos)


def chat(*texts):
    """Return messages: user and assistant in turn."""
    return [Message(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]


def test_a_request_continues_the_one_whose_prompt_and_answer_it_begins_with():
    assert found(("a", "b"), ("abc", "d"), ("abcd", "e"), ("x", "b"), ("ab", "y")) == [
        None, 0, 1, None, 0,
    ]  # fmt: skip
    assert found((chat("hi"), "ho"), (chat("hi", "ho", "and"), "x")) == [None, 0]
    assert found((chat("hi"), "ho"), (chat("hi", "no", "and"), "x")) == [None, None]
    assert found(([97, 98], [99]), ([97, 98, 99, 100], [1])) == [None, 0]
    assert found(("q", ""), ("q", ""), ("q", "")) == [None] * 3  # a retry


def test_other_requests_may_come_between_and_answers_may_be_equal():
    assert found(("a", "1"), ("b", "2"), ("a12", "3"), ("b23", "4")) == [None, None, 0, 1]
    trials = [(chat("q"), "a")] * 3 + [(chat("q", "a", f"{i}"), "x") for i in range(4)]
    assert found(*trials) == [None, None, None, 2, 1, 0, 2]


@pytest.mark.parametrize(
    "answer",
    ["<think>\nlong\n</think>\n\nIt is 2. ", "It is 2.</s>", "[THINK]a[/THINK]It is 2.",
     "long\n</think>\nIt is 2."],
)  # fmt: skip
def test_what_templates_leave_out_of_earlier_turns_is_not_compared(answer):
    assert found((chat("1+1?"), answer), (chat("1+1?", "It is 2.", "ok"), "x")) == [None, 0]
    prompt = "<u>1+1?<a>" + ("<think>\n" if answer.startswith("long") else "")
    assert found((prompt, answer), ("<u>1+1?<a>It is 2.<u>ok<a>", "x")) == [None, 0]


def test_a_template_may_leave_empty_thoughts_in_earlier_turns():
    first, open_ = "<u>1+1?<a>", "<think>\n\n</think>\n\n"
    later = f"{first}{open_}It is 2.</s><u>ok<a>"
    assert found((first, "<think>\nlong\n</think>\n\nIt is 2.</s>"), (later, "x")) == [None, 0]
    assert found((first + open_, "It is 2."), (later.replace(open_, ""), "x")) == [None, 0]


def test_many_thoughts_without_an_end_take_no_time():
    text = "<think>" * 200_000
    assert found((text, "a"), (f"{text}ab", "c")) == [None, 0]


def record(prompt, output, **more):
    return {"prompt": prompt, "output": output, **more}


SIX = [record(f"def f{i}(a):", BODY) for i in range(6)]
SAMPLES = [record("def f(a):", BODY + f"# {i}\n", id="HumanEval/0") for i in range(6)]
CHOICES = {
    "request": {"prompt": "def f(a):", "n": 6},
    "response": {"id": "x", "choices": [{"index": i, "text": BODY} for i in range(6)]},
}


@pytest.mark.parametrize(
    ("files", "units"),
    [
        ({"one.jsonl": SIX}, "conversations"),
        ({f"r{i}.json": [row] for i, row in enumerate(SIX)}, "conversations"),
        ({"n6.jsonl": [CHOICES]}, "tasks"),
        ({"same.jsonl": SAMPLES}, "tasks"),
    ],
)
def test_unrelated_requests_are_one_record_each_however_they_are_stored(files, units, tmp_path):
    for name, rows in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    records, _ = read_records(tmp_path, None, load_tokenizer("demo"), "auto")
    assert [len(each.turns) for each in records] == [1] * 6
    found = units_of(records)
    assert found.name == units
    assert len(set(found.of or range(6))) == (6 if units == "conversations" else 1)


@pytest.mark.parametrize("begin", [[], [1]])
def test_requests_whose_prompts_the_log_lacks_are_not_one_task(begin):
    records = [Record(str(i), "all", [Turn(np.array(begin), np.array([i]))]) for i in range(6)]
    assert units_of(records).of is None
    replay = Replay("context", 8)
    for each in records:
        replay.add(each, Tally())
    assert not any(replay.asked_before)


def test_a_conversation_is_one_record_whatever_comes_between(tmp_path):
    first = [{"role": "user", "content": "hi"}]
    second = [*first, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "and"}]
    rows = [record(first, "ho", id="a"), record("x", "y", id="b"), record(second, "z", id="c")]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    template = "vicuna"
    records, _ = read_records(tmp_path, None, load_tokenizer("demo"), template)
    assert [(each.name, len(each.turns)) for each in records] == [("a", 2), ("b", 1)]
    assert [(turn.place, turn.after) for turn in records[0].turns] == [(0, None), (2, 0)]
