"""Recipes of strangers: any keys, any values, any bytes. An error of ours, or an artifact, soon.

The suite tries some mutations, `python -m tests.attacks` more.
"""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

import pytest
from command_lines import run_here
from forked import in_child

from attacks.file_mutations import damage
from attacks.mutations import NUMBERS
from ngramkit.basics.errors import NgramkitError
from ngramkit.recipe_files import MAX_BYTES, read_recipe
from ngramkit.recipes import build as build_recipe

from . import tally

ATTACK = "hostile recipes"
GOOD = """
kind = "frozen-table"
summary = "small"
dedup = "exact"
exclude = ["questions.jsonl"]
model.id = "demo"
parameters = {leaders = 20, followers = 3}
prune.bytes = "100k"

[[corpus]]
name = "c.jsonl"
weight = 0.5
sample = 0.9
seed = 3

[[corpus]]
name = "d.jsonl"
column = "text"
licenses = ["mit"]
"""
LEAST = 'kind = "frozen-table"\nmodel.id = "demo"\ncorpus.name = "c.jsonl"\n'
SHARDS = LEAST.replace("frozen-table", "datastore")
BIGRAM = 'kind = "model-bigram"\nmodel.id = "demo"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = '{"text": "def name(self): return self.value", "license": "mit"}\n'
    for name in ("c.jsonl", "d.jsonl"):
        Path(name).write_text(line * 9)
    Path("questions.jsonl").write_text(
        '{"turns": ["a question of more than six words, this is"]}\n'
    )
    os.mkfifo("pipe.jsonl")
    return tmp_path


def filled(head: str, part: str, tail: str = "") -> str:
    """`head`, and as many times `part` as a recipe may have."""
    return head + part * ((MAX_BYTES - len(head) - len(tail)) // len(part)) + tail


HOSTILE = {
    "more than a recipe": LEAST + "#" * MAX_BYTES,
    "deep lists": filled(LEAST + "exclude = ", "["),
    "deep lists that end": LEAST + "exclude = " + "[" * 30_000 + "]" * 30_000,
    "lists as deep as they are read": LEAST + "exclude = " + "[" * 150 + "]" * 150,
    "deep tables": filled(LEAST + "summary = ", "{a="),
    "a key of many dots": filled(LEAST + "x", ".a", " = 1"),
    "a key of many dots in a table": filled(LEAST + "summary = {a", ".a", " = 1}"),
    "many keys of many dots": LEAST + "".join(f"{'a.' * 900}b{n} = 1\n" for n in range(36)),
    "headers of many dots": LEAST + "".join(f"[x{'.a' * 900}.b{n}]\n" for n in range(36)),
    "many keys": LEAST + "".join(f"k{n}=1\n" for n in range(7000)),
    "many corpora": filled(BIGRAM.replace("model-bigram", "datastore"),
                           "[[corpus]]\nname='c.jsonl'\n"),
    "a number of many digits": filled(LEAST + "parameters.followers = ", "9"),
    "a number of many hex digits": filled(LEAST + "parameters.followers = 0x", "f"),
    "a number of many digits for a name": filled(LEAST + "summary = 0x", "f"),
    "a number that is no 64 bits": LEAST + "corpus.limit = " + "9" * 30,
    "below zero": LEAST + "parameters.followers = -1",
    "nothing": LEAST + "parameters.leaders = 0",
    "no share": LEAST + "corpus.sample = nan",
    "an endless weight": LEAST + "corpus.weight = inf",
    "a weight below zero": LEAST + "corpus.weight = -1.0",
    "a limit below zero": LEAST + "corpus.limit = -1",
    "a seed below zero": LEAST + "corpus.seed = -1",
    "pruned to nothing": LEAST + "prune.bytes = 0",
    "pruned to less": LEAST + "prune.bytes = -5",
    "pruned to very much": LEAST + f'prune.bytes = "{"9" * 40}T"',
    "shards of nothing": SHARDS + "parameters.shard_tokens = 0",
    "shards of one token": SHARDS + "parameters.shard_tokens = 1",
    "a wide table": BIGRAM + "parameters.k = 99999999999\nparameters.width = 999999999999",
    "no corpus's name": LEAST.replace("c.jsonl", ""),  # a path of no parts is the working folder
    "no model's name": LEAST.replace('"demo"', '""'),
    "a null in a path": LEAST.replace("c.jsonl", "a\\u0000b"),
    "a null in a model": LEAST.replace('"demo"', '"a\\u0000b"'),
    "a null in a column": LEAST + 'corpus.column = "\\u0000"',
    "a model of elsewhere": LEAST.replace('"demo"', '"../../../etc"'),
    "a device": LEAST.replace("c.jsonl", "/dev/zero"),
    "a file below a device": LEAST.replace("c.jsonl", "/dev/zero/x.txt"),
    "a pipe": LEAST.replace("c.jsonl", "pipe.jsonl"),
    "a pipe to leave out": LEAST + 'exclude = ["pipe.jsonl"]',
    "a device to leave out": LEAST + 'exclude = ["/dev/zero"]',
    "opt-outs of a device": LEAST + 'corpus.exclude = "/dev/zero"',
    "opt-outs of a pipe": LEAST + 'corpus.exclude = "../pipe.jsonl"',
    "licences that are none": LEAST + "corpus.licenses = [1, [2], {a = 1}]",
    "a date": LEAST + "summary = 1979-05-27T07:32:00Z",
    "a year that is none": LEAST + "summary = 0000-00-00",
    "true": LEAST + "parameters.followers = true",
    "no text": LEAST + "\0",
    "nothing at all": "",
    "a kind that drives a terminal": LEAST.replace("frozen-table", "\\u001b[2J\\nerror: x"),
    "a key that drives a terminal": LEAST + '"\\u001b[2J\\nerror: x" = 1',
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_recipes_are_refused(folder, what):
    Path("x.toml").write_text(HOSTILE[what])

    def build():
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        result = run_here(["build", "x.toml", "--out", "out", "--json"])
        assert result.code in (2, 3), (result.code, result.err)
        assert "this is a bug" not in result.err, result.err
        assert "\x1b" not in result.err
        assert len(result.err) < 1000
        assert not Path("out", "x").exists()

    assert in_child(build) == "done"
    tally(ATTACK, "refused")


@pytest.mark.parametrize("name", ["..toml", "...toml", ".toml", "e\x1b[2J\n.toml"])
def test_names_of_recipes(folder, name):
    """The artifact's folder has the recipe's name: one below the output, or none."""
    Path("kept").mkdir()
    Path("kept", "thesis").write_text("mine")
    Path(name).write_text(LEAST)
    result = run_here(["build", f"./{name}", "--out", "kept/out"])
    assert (result.code in (2, 3)) == ("\x1b" not in name), result.err
    assert "this is a bug" not in result.err
    assert "\x1b" not in result.err
    assert Path("kept", "thesis").read_text() == "mine"
    assert {path.name for path in Path("kept").iterdir()} <= {"thesis", "out"}
    tally(ATTACK, "refused, or built below its output")


def test_a_record_that_is_a_pipe(folder):
    """recipe.json of an artifact that is up to date."""
    Path("x.toml").write_text(LEAST)
    build_recipe("x.toml", "out", workers=1)
    Path("out/x/recipe.json").unlink()
    os.mkfifo("out/x/recipe.json")

    def build():
        result = run_here(["build", "x.toml", "--out", "out"])
        assert "this is a bug" not in result.err, result.err

    assert in_child(build) == "done"
    tally(ATTACK, "refused, or built below its output")


@pytest.mark.parametrize(
    "text", [GOOD, filled(LEAST + "exclude = [", '"questions.jsonl",\n', "]")], ids=["good", "long"]
)
def test_what_a_recipe_may_be_is_built(folder, text):
    Path("x.toml").write_text(text)
    assert build_recipe("x.toml", "out", workers=1).status == "built"


VALUES = ('""', '"x"', "-1", "0", "1", "1e400", "nan", "true", "[]", "[[]]", "{}", "[1]", '["x"]',
          '"../.."', '"demo"', '"c.jsonl"', '"/dev/zero"', "1979-05-27", '"\\u0000"',
          *map(str, NUMBERS))  # fmt: skip


def mutated(dice: random.Random) -> bytes:
    """GOOD with other values, lines that are doubled, moved or gone, or other bytes."""
    lines = GOOD.splitlines()
    for _ in range(dice.choice((1, 1, 2, 4))):
        at, chance = dice.randrange(len(lines)), dice.random()
        key, equals, _ = lines[at].partition(" = ")
        if equals and chance < 0.6:
            lines[at] = f"{key} = {dice.choice(VALUES)}"
        elif chance < 0.75:
            lines.insert(dice.randrange(len(lines)), lines[at])
        elif len(lines) > 1:
            del lines[at]
    raw = bytearray("\n".join(lines).encode())
    if dice.random() < 0.3:
        damage(raw, (0, len(raw)), dice)
    return bytes(raw)


def test_mutated_recipes(folder):
    count = 2_000
    Path("x.toml").write_text(GOOD)
    build_recipe("x.toml", "out", workers=1)  # what is imported is there in a child

    def read():
        read_here = 0
        for seed in range(count):
            Path("x.toml").write_bytes(mutated(random.Random(seed)))
            try:
                read_recipe("x.toml")
                read_here += 1
                build_recipe("x.toml", "out", workers=1, check=seed % 20 != 0)
            except NgramkitError:
                pass
        assert read_here > count / 10

    assert in_child(read) == "done"
    tally(ATTACK, "refused, or built below its output", count)
