"""What a recipe is said to take: arithmetic over the table of rates, and what it refuses."""

from __future__ import annotations

import json

import pytest
from command_lines import run_here
from reporters import Notes

from ngramkit import plan
from ngramkit.builders import rates
from ngramkit.errors import UsageError
from ngramkit.machine import parse_count

RECIPE = """
kind = "{kind}"
model.id = "demo"
corpus.name = "{corpus}"
"""


@pytest.fixture(autouse=True)
def _slow(monkeypatch):
    """To find out whether gigatoken takes a tokenizer takes seconds: tests/corpus does."""
    monkeypatch.setattr("ngramkit.corpus.encoders.is_fast", lambda backend: False)


def recipe(tmp_path, kind="datastore", corpus="python-stdlib", more=""):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(kind=kind, corpus=corpus) + more)
    return path


def test_every_stage_has_a_measured_rate():
    assert all(rate > 0 for rate in rates.RATES.values())
    assert rates.CORES.keys() == rates.RATES.keys()


def test_a_price_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(UsageError, match="price must be at least 0, is nan"):
        plan(recipe(tmp_path), 1, tokens=10**6, price=float("nan"))


@pytest.mark.parametrize("kind", ["datastore", "frozen-table"])
def test_hours_are_tokens_by_rates_and_cores(tmp_path, kind):
    tokens = 10**11
    one = plan(recipe(tmp_path, kind), 1, tokens=tokens)
    many = plan(recipe(tmp_path, kind), 50, tokens=tokens, price=0.5)
    assert one.core_hours == pytest.approx(many.core_hours) == pytest.approx(one.hours)
    assert many.cost == pytest.approx(many.core_hours / 2)
    assert many.hours == pytest.approx(sum(s.core_hours / s.cores for s in many.stages))
    for stage in many.stages:
        if stage.name != rates.WRITE:  # which is by bytes
            assert stage.core_hours == pytest.approx(tokens / rates.RATES[stage.name] / 3600)
        alone = kind == "frozen-table" and stage.name == rates.WRITE  # it is one file
        assert stage.cores == (1 if alone else 50)
    assert one.bottleneck == max(one.stages, key=lambda stage: stage.hours).name


def test_no_more_cores_sort_than_there_are_shards(tmp_path):
    notes = Notes()
    more = "parameters.shard_tokens = 1000000\n"
    found = plan(recipe(tmp_path, more=more), 16, tokens=9_500_000, reporter=notes)
    cores = {stage.name: stage.cores for stage in found.stages}
    assert (cores[rates.READ], cores[rates.SORT], cores[rates.WRITE]) == (16, 10, 10)
    (note,) = notes.lines
    assert note.startswith("10 of 16 cores can sort: a smaller shard_tokens")
    plan(recipe(tmp_path, more=more), 10, tokens=9_500_000, reporter=notes)
    assert len(notes.lines) == 1


@pytest.mark.parametrize("taken", [True, False])
def test_gigatoken_is_planned_with_where_it_takes_the_tokenizer(tmp_path, monkeypatch, taken):
    monkeypatch.setattr("ngramkit.corpus.encoders.is_fast", lambda backend: taken)
    found = plan(recipe(tmp_path), 1, tokens=10**9)
    assert found.stages[1].name == (rates.TOKENIZE_FAST if taken else rates.TOKENIZE)


def test_of_a_tokenizer_that_is_not_here_the_worse_is_planned(tmp_path):
    path, notes = recipe(tmp_path), Notes()
    path.write_text(path.read_text().replace('"demo"', f'"{tmp_path}/none"'))
    found = plan(path, 1, tokens=10**9, reporter=notes)
    assert found.stages[1].name == rates.TOKENIZE
    assert found.bytes == 8 * 10**9
    assert "is not here: as if gigatoken did not take it" in notes.lines[0]


def test_a_datastore_takes_six_bytes_a_token_and_a_table_no_more_than_its_bounds(tmp_path):
    assert plan(recipe(tmp_path), 2, tokens=10**9).bytes == 6 * 10**9
    table = plan(recipe(tmp_path, "frozen-table"), 2, tokens=10**12)
    assert table.bytes < 3 << 30


def test_pruning_is_done_by_one_core(tmp_path):
    whole = plan(recipe(tmp_path), 100, tokens=10**9)
    pruned = plan(recipe(tmp_path, more='prune.bytes = "1G"\n'), 100, tokens=10**9)
    assert [s.name for s in pruned.stages][:4] == [s.name for s in whole.stages]
    assert [s.cores for s in pruned.stages][4:] == [1, 1, 1]  # choose, sort, write
    choosing = next(s for s in pruned.stages if s.name == rates.CHOOSE)
    assert (choosing.cores, pruned.bottleneck) == (1, rates.CHOOSE)
    assert pruned.bytes == 1 << 30


def test_tokens_are_guessed_from_local_files(tmp_path):
    (tmp_path / "text.txt").write_text("word " * 7600)
    found = plan(recipe(tmp_path, corpus=f"{tmp_path}/text.txt"), 1)
    assert found.tokens == 10_000
    assert "guessed" in found.tokens_from
    half = plan(recipe(tmp_path, corpus=f"{tmp_path}/text.txt", more="corpus.sample = 0.5\n"), 1)
    assert half.tokens == 5_000


def test_the_column_of_a_table_is_what_counts(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"text": [f"{i} words" for i in range(5000)], "other": ["x" * 400] * 5000}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = plan(recipe(tmp_path, corpus=f"{tmp_path}/t.parquet", more='corpus.column = "text"'), 1)
    text = sum(map(len, columns["text"]))
    assert 0.5 * text < found.tokens * rates.TEXT_BYTES < 2.5 * text


def test_what_cannot_be_planned(tmp_path):
    with pytest.raises(UsageError, match="made from a model"):
        plan(write_bigram(tmp_path), 1)
    with pytest.raises(UsageError, match="shard_tokens"):
        plan(recipe(tmp_path, more="parameters.shard_tokens = 0\n"), 1, tokens=9)
    with pytest.raises(UsageError, match="cores"):
        plan(recipe(tmp_path), 0, tokens=1)
    with pytest.raises(UsageError, match="tokens"):
        plan(recipe(tmp_path), 1, tokens=0)


def write_bigram(tmp_path):
    path = tmp_path / "b.toml"
    path.write_text('kind = "model-bigram"\nmodel.id = "demo"\n')
    return path


def test_the_command(tmp_path):
    line = ["plan", str(recipe(tmp_path)), "--cores", "64", "--tokens", "100B", "--price", "0.05"]
    done = run_here([*line, "--json"])
    assert done.code == 0, done.err
    assert "the bottleneck" in done.err
    assert "100,000,000,000 tokens (as given) on 64 cores" in done.err
    assert json.loads(json.dumps(done.json))["tokens"] == 10**11
    wrong = run_here([*line[:-3], "many"])
    assert (wrong.code, "'many' is not a count" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("40M", 40_000_000), ("1.5k", 1500), ("2 T", 2 * 10**12)]
)
def test_counts(text, count):
    assert parse_count(text) == count
    with pytest.raises(UsageError):
        parse_count("-" + text)
