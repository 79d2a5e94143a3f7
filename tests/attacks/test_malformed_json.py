"""JSON that nests deeply, or is invalid, in users' files: an error of one line, at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from attacks import tally
from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.corpus.readers import READER_OF_SUFFIX, ReaderOptions
from ngramkit.evaluate.bench_runs import Runs
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.logs.files import LogFile

GOLDEN = Path(__file__).parents[1] / "golden"
DEEP = "[" * 100_000


def one_line(failure):
    assert isinstance(failure.value, InputError)
    assert "\n" not in str(failure.value)
    tally("malformed JSON in files that people name", "refused")


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, "null", "[1]", "{", "3"])
def test_questions_and_answers(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.jsonl") as failure:
        list(LogFile(path).objects())
    one_line(failure)


@pytest.mark.parametrize("kind", [".json", ".jsonl"])
def test_a_corpus(tmp_path, kind):
    path = tmp_path / f"x{kind}"
    path.write_text(DEEP)
    with pytest.raises(InputError, match="nests too deeply") as failure, path.open("rb") as file:
        list(READER_OF_SUFFIX[kind](path, file, ReaderOptions()))
    one_line(failure)


@pytest.mark.parametrize("line", [DEEP, "null", "[]", '{"drafter": 3}', '{"turns": [3]}'])
def test_a_benchmark_begun_before(tmp_path, line):
    plan = {"a": 1}
    (tmp_path / "runs.jsonl").write_text(json.dumps({"plan": plan}) + f"\n{line}\n")
    with pytest.raises(InputError, match="line 2") as failure:
        Runs(tmp_path, plan)
    one_line(failure)


def test_a_proof_of_one_copy_proves_no_other(tmp_path):
    one, other = (shutil.copytree(GOLDEN / "frozen-table", tmp_path / name) for name in "ab")
    open_artifact_folder(one)
    table = other / "table.safetensors"
    table.write_bytes(table.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ArtifactError, match="its checksum is not the listed one"):
        open_artifact_folder(other)
    tally("proofs of another copy", "not believed")
