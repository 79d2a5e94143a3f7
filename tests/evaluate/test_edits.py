"""The versions that `python -m benchmarks references` compares: small edits, always the same."""

from __future__ import annotations

import ast
import difflib

import pytest

from benchmarks._edits import EDITS, originals


@pytest.fixture(scope="module")
def texts():
    return originals(3)


@pytest.mark.parametrize("kind", EDITS)
def test_each_edit_leaves_most_of_a_file_and_a_program(texts, kind):
    for number, old in enumerate(texts):
        new = EDITS[kind](number, texts)
        assert new == EDITS[kind](number, list(texts))
        assert new != old
        ast.parse(new)
        lines = old.splitlines(), new.splitlines()
        assert difflib.SequenceMatcher(None, *lines, autojunk=False).ratio() > 0.6
