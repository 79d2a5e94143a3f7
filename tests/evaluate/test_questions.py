import gzip
import json

import pytest

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.evaluate.records import Question, questions_for, read_questions

LINES = {
    "mt-bench": (
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
        Question(81, "writing", ["Write.", "Again."]),
    ),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "", "test": ""},
        Question("HumanEval/0", "humaneval", ["def f():\n"]),
    ),
    "gsm8k": (
        {"question": "1 + 1?", "answer": "#### 2"},
        Question(1, "gsm8k", ["1 + 1?"]),
    ),
    "plain": ({"prompt": "Once"}, Question(1, "all", ["Once"])),
    "null": ({"prompt": "Once", "category": None}, Question(1, "all", ["Once"])),
    "named": ({"prompt": "Once", "id": "a", "category": "x"}, Question("a", "x", ["Once"])),
}


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_line(tmp_path, kind, packed):
    body, expected = LINES[kind]
    text = "\n" + json.dumps(body) + "\n"
    path = tmp_path / ("q.jsonl.gz" if packed else "q.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert list(read_questions(path)) == [expected]


def test_text_files_have_a_prompt_per_line(tmp_path):
    (tmp_path / "q.txt").write_text("one\n\ntwo words\n", encoding="utf-8-sig")
    expected = [Question(1, "all", ["one"]), Question(2, "all", ["two words"])]
    assert list(read_questions(tmp_path / "q.txt")) == expected


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"prompt": "a"}', "{"], "line 2: not JSON"),
        (['{"prompt": "a"}', "[1]"], "line 2: a record must be a JSON object"),
        (['{"answer": "a"}'], "line 1: a question must"),
        (['{"turns": []}'], "line 1: `turns` must be"),
        (['{"turns": ["a", 1]}'], "line 1: `turns` must be"),
        (['{"prompt": ""}'], "line 1: `prompt` must be"),
        (['{"question": 3}'], "line 1: `question` must be"),
        (['{"prompt": "a", "id": [1]}'], "line 1: the id"),
        (['{"prompt": "a", "id": 1}', '{"prompt": "b", "id": 1}'], "line 2: ids"),
        ([""], "no questions"),
        (['{"prompt": "a", "category": "\\ud800"}'], "line 1: category must be UTF-8"),
        (['{"prompt": "a", "id": true}'], "line 1: the id must be .*, got True"),
    ],
)
def test_malformed_lines_are_named(tmp_path, lines, said):
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=said):
        read_questions(path)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_questions(tmp_path / "none.jsonl")
    (tmp_path / "q.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="damaged"):
        read_questions(tmp_path / "q.jsonl.gz")
    whole = gzip.compress(json.dumps({"prompt": "a" * 5000}).encode())
    (tmp_path / "q.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(InputError, match="damaged"):
        read_questions(tmp_path / "q.jsonl.gz")


def test_questions_from_python_have_turns_and_ids_of_their_own(tmp_path):
    one, same = Question(1, "a", iter(["Write."])), Question("1", "a", ["Again."])
    assert one.turns == ["Write."]
    with pytest.raises(UsageError, match="ids of questions must be unique, got 1 2 times"):
        questions_for([one, same], "demo")
    (tmp_path / "q.jsonl").write_text('{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}')
    with pytest.raises(InputError, match="line 2: ids must be unique"):
        read_questions(tmp_path / "q.jsonl")
    with pytest.raises(UsageError, match="turns must not be empty"):
        Question(1, "a", [])
