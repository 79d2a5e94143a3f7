"""A wrong argument of a benchmark that the pages name is said in a line, not by a traceback."""

from __future__ import annotations

import importlib
import sys

import pytest

WRONG = """
needle --lengths x                            | 'x' is no list of lengths, like 1k,2k
needle --haystack none.txt                    | there is no none.txt
needle --cache fast                           | unknown cache 'fast'
needle --kv-bits 3                            | bits must be 1 or 2
needle --plot none/x.png                      | no such folder: none
needle nope                                   | 'nope'
needle --lengths 20 --kv-group 32             | do not fit into 20 tokens
longcontext                                   | give --data DIR, or --publish
longcontext nope --publish                    | there is no part nope
longcontext --data none                       | there is no none
growth --data none --work w --out o           | there is no none
llama_cpp --questions none.jsonl              | there is no none.jsonl
llama_cpp --workload none.jsonl               | there is no none.jsonl
llama_schemas --gguf none.gguf                | there is no none.gguf
"""
CASES = [line.split(" | ") for line in WRONG.strip().splitlines()]


@pytest.mark.parametrize(("words", "said"), CASES)
def test_it_is_said_and_nothing_is_written(words, said, monkeypatch, capsys, tmp_path):
    name, *given = words.split()
    program = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *given])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
