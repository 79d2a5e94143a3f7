"""Logs that are still being written: a cut last line is counted, and everything before it read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reporters import Notes

from ngramkit.logs.read import read_log

SAMPLES = Path(__file__).parent / "samples"
LINES = [
    path
    for path in sorted(SAMPLES.rglob("*"))
    if path.suffix in (".jsonl", ".log")
    and "batch" not in path.name  # whose answers are in another file
    and len(path.read_text().splitlines()) > 2
]


def test_there_are_samples_of_lines():
    assert len(LINES) > 3


@pytest.mark.parametrize("sample", LINES, ids=lambda path: path.relative_to(SAMPLES).as_posix())
def test_a_cut_last_line_stops_nothing(tmp_path, sample):
    raw = sample.read_bytes().rstrip(b"\n")
    whole = list(read_log(sample))
    last = len(raw) - raw.rfind(b"\n") - 1
    for kept in {1, last // 2, last - 1}:
        file = tmp_path / sample.name
        file.write_bytes(raw[: len(raw) - last + kept])
        assert len(whole) - 2 <= len(list(read_log(file))) <= len(whole)


def test_a_line_cut_inside_a_letter_is_counted(tmp_path):
    rows = [json.dumps({"prompt": "a", "output": "\u4f60"}, ensure_ascii=False)] * 3
    file = tmp_path / "live.jsonl"
    file.write_bytes("\n".join(rows).encode()[:-4])
    notes = Notes()
    assert len(list(read_log(file, reporter=notes))) == 2
    assert "skipped 1 record, read 2 requests" in notes
