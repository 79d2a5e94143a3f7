"""JSON that nests deeply, or is invalid, in users' files: an error of one line, at once."""

from __future__ import annotations

import json

import pytest

from attacks import tally
from ngramkit.cache import private_folder
from ngramkit.corpus.readers import READERS
from ngramkit.corpus.unpacking import MAX_DOCUMENT
from ngramkit.errors import InputError
from ngramkit.evaluate.records import read_lines
from ngramkit.evaluate.runs import Runs
from ngramkit.formats.artifact import recall

DEEP = "[" * 100_000


def one_line(failure):
    assert failure.value.exit_code == 3
    assert "\n" not in str(failure.value)
    tally("malformed JSON in files that people name", "refused")


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, "null", "[1]", "{", "3"])
def test_questions_and_answers(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.jsonl, line 1") as failure:
        list(read_lines(path))
    one_line(failure)


@pytest.mark.parametrize("kind", [".json", ".jsonl"])
def test_a_corpus(tmp_path, kind):
    path = tmp_path / f"x{kind}"
    path.write_text(DEEP)
    with pytest.raises(InputError, match="nests too deeply") as failure, path.open("rb") as file:
        list(READERS[kind](path, file, None, False, MAX_DOCUMENT))
    one_line(failure)


@pytest.mark.parametrize("line", [DEEP, "null", "[]", '{"drafter": 3}', '{"turns": [3]}'])
def test_a_benchmark_begun_before(tmp_path, line):
    plan = {"a": 1}
    (tmp_path / "runs.jsonl").write_text(json.dumps({"plan": plan}) + f"\n{line}\n")
    with pytest.raises(InputError, match="line 2") as failure:
        Runs(tmp_path, plan)
    one_line(failure)


@pytest.mark.parametrize("text", [DEEP, "null", '{"copies": 3}', '{"copies": [{"x": [1]}]}', ""])
def test_a_proof_that_cannot_be_read_proves_nothing(text):
    folder = private_folder("proofs")
    (folder / f"{'9' * 64}-1.json").write_text(text)
    assert not any(any(copy.values()) for copy in recall("9" * 64) or [])
    tally("unreadable proofs", "not believed")
