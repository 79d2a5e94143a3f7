"""Where artifacts lie and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngramkit.formats.outputs import AUTOMATIC, artifacts_in, default_place, short_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python-stdlib", "python-stdlib"),
        ("notes.txt", "notes"),
        ("chats.jsonl.zst", "chats"),
        ("chat-corpus/train-0000[01]-of-00004.parquet", "chat-corpus"),
        ("/data/chat-corpus/train-0000*.parquet", "chat-corpus"),
        ("/data/llama-tokenizer", "llama-tokenizer"),
        ("../models/my model/", "my-model"),
        ("hf:HuggingFaceH4/ultrachat_200k", "ultrachat_200k"),
        ("hf:me/code:python", "code-python"),
        ("lmsys/vicuna-7b-v1.5", "vicuna-7b-v1.5"),
        ("*.txt", "txt"),
        (".txt", "txt"),
        ("..", ""),
        ("x" * 200, "x" * 60),
    ],
)
def test_a_name_is_the_last_part_of_where_it_came_from(text, name):
    assert short_name(text) == name


def test_names_by_hand_and_automatic_ones_are_the_same():
    parts = ("chat-corpus/train-*.parquet", "/data/llama-tokenizer", "datastore")
    by_hand, automatic = default_place(*parts), default_place(*parts, folder=AUTOMATIC)
    assert by_hand == Path("artifacts/chat-corpus-llama-tokenizer-datastore")
    assert automatic.name == by_hand.name
    assert default_place("a", "b", "frozen-table") == default_place("a", "b", "frozen")


def test_artifacts_are_found_and_damaged_ones_named(token_store, tmp_path):
    for name in ("b", "a", "c.partial"):
        token_store([[1, 2]], 10).path.rename(tmp_path / name)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    (tmp_path / "nothing").mkdir()
    found = {each.path.name: each for each in artifacts_in(tmp_path)}
    assert list(found) == ["a", "b", "damaged"]
    assert found["a"].manifest.kind == "tokens"
    assert found["damaged"].manifest is None
    assert "not JSON" in found["damaged"].problem
    assert not list(artifacts_in(tmp_path / "nowhere"))
