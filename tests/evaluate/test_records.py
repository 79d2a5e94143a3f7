"""Recorded answers are read as they stand, and a bad line is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from reporters import Notes

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.evaluate.records import read_records


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("demo")


def lines(path, *bodies):
    path.write_text("".join(b if isinstance(b, str) else json.dumps(b) + "\n" for b in bodies))
    return path


def text(tokenizer, ids):
    return tokenizer.decode(ids)


def read(tokenizer, answers, questions=None, template="vicuna"):
    return read_records(answers, questions, tokenizer, template)[0]


def test_turns_of_a_question_share_one_conversation(tokenizer, tmp_path):
    questions = lines(
        tmp_path / "q", {"question_id": 7, "category": "math", "turns": ["1 + 1?", "And 2?"]}
    )
    answers = lines(tmp_path / "a", {"question_id": 7, "choices": [{"turns": ["It is 2.", "4"]}]})
    (record,) = read(tokenizer, answers, questions)
    eos = tokenizer.record.eos
    assert (record.name, record.category) == ("7", "math")
    first, second = record.turns
    assert text(tokenizer, first.prompt).endswith("USER: 1 + 1? ASSISTANT:")
    assert text(tokenizer, first.answer[:-1]) == " It is 2."
    assert first.answer[-1] == second.answer[-1] == eos
    assert text(tokenizer, second.prompt).endswith("It is 2.</s>USER: And 2? ASSISTANT:")


def test_answers_to_any_questions_find_them(tokenizer, tmp_path):
    body = {"task_id": "HumanEval/0", "prompt": "def f(", "canonical_solution": ""}
    questions = lines(tmp_path / "q", body)
    reply = {"question_id": "HumanEval/0", "choices": [{"turns": ["x):"]}]}
    (record,) = read(tokenizer, lines(tmp_path / "a", reply), questions)
    assert (record.name, record.category) == ("HumanEval/0", "humaneval")


def test_questions_without_an_answer_are_counted(tokenizer, tmp_path):
    body = {"category": "math", "turns": ["1 + 1?"]}
    questions = lines(tmp_path / "q", *({"question_id": n, **body} for n in range(3)))
    answers = lines(tmp_path / "a", {"question_id": 1, "choices": [{"turns": ["It is 2."]}]})
    notes = Notes()
    read_records(answers, questions, tokenizer, "vicuna", reporter=notes)
    assert "2 of 3 questions have no answer" in notes


def test_prompts_and_outputs_are_taken_as_they_stand(tokenizer, tmp_path):
    answers = lines(tmp_path / "a", {"prompt": "def f(", "output": "x):\n"}, "\n")
    (record,) = read(tokenizer, answers)
    (turn,) = record.turns
    assert text(tokenizer, [*turn.prompt, *turn.answer[:-1]]) == "def f(x):\n"


def test_names_and_kinds_are_short_and_can_be_shown(tokenizer, tmp_path):
    body = {"id": "a\n" * 99, "category": "\x1b[2J" * 99, "prompt": "a", "output": "b"}
    (record,) = read(tokenizer, lines(tmp_path / "a", body))
    assert len(record.name) == len(record.category) == 80
    assert record.category.startswith(r"\x1b[2J\x1b")


def test_an_eos_that_the_recorder_left_in_the_text_counts_once(tokenizer, tmp_path):
    eos = tokenizer.eos_token
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" + eos}]
    (record,) = read(tokenizer, lines(tmp_path / "a", {"messages": talk}), template="chatml")
    assert record.turns[0].answer.tolist().count(tokenizer.record.eos) == 1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]\n", "must be a JSON object"),
        ({"choices": []}, "must have `question_id`"),
        ({"question_id": 1}, "`choices` must be a list"),
        ({"question_id": 1, "choices": {}}, "`choices` must be a list"),
        ({"question_id": 1, "choices": []}, "must have `turns`"),
        ({"question_id": 1, "choices": [{"turns": [3]}]}, "must have `turns`"),
        ({"question_id": 2, "choices": [{"turns": ["x"]}]}, "got 2"),
        ({"question_id": 1, "choices": [{"turns": ["x", "y"]}]}, "1 turns, got 2"),
    ],
)
def test_a_bad_answer_line_is_named(tokenizer, tmp_path, answer, complaint):
    questions = lines(tmp_path / "q", {"question_id": 1, "turns": ["one"]})
    good = {"question_id": 1, "choices": [{"turns": ["x"]}]}
    with pytest.raises(InputError, match=complaint) as caught:
        read(tokenizer, lines(tmp_path / "a.jsonl", good, answer), questions)
    assert "a.jsonl, line 2" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        {"text": "x"},
        {"prompt": 1, "output": "x"},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}]},
    ],
)
def test_a_bad_line_of_a_file_by_itself_is_named(tokenizer, tmp_path, body):
    with pytest.raises(InputError, match=r"a\.jsonl, line 1"):
        read(tokenizer, lines(tmp_path / "a.jsonl", body))


def test_a_bad_question_line_and_missing_or_empty_files_are_named(tokenizer, tmp_path):
    answers = lines(tmp_path / "a", {"question_id": 1, "choices": [{"turns": ["x"]}]})
    with pytest.raises(InputError, match=r"q, line 1: `turns`"):
        read(tokenizer, answers, lines(tmp_path / "q", {"question_id": 1, "turns": "x"}))
    with pytest.raises(InputError, match="no such file"):
        read(tokenizer, tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no requests"):
        read(tokenizer, lines(tmp_path / "empty", "\n"))


def test_a_template_is_wanted_only_where_a_conversation_needs_one(tokenizer, tmp_path):
    plain = lines(tmp_path / "plain", {"prompt": "def f(", "output": "x):\n"})
    talk = lines(tmp_path / "talk", {"messages": [{"role": "assistant", "content": "x"}]})
    unknown = replace(tokenizer, record=replace(tokenizer.record, id="me/mine"))
    assert read_records(plain, None, unknown, "auto")[1] is None
    with pytest.raises(UsageError, match="me/mine has no chat template"):
        read_records(talk, None, unknown, "auto")
