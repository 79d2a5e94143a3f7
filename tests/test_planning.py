"""What a recipe is said to take: arithmetic over the table of rates, and what it refuses."""

from __future__ import annotations

import json

import pytest
from command_lines import run_here

from ngramkit import plan
from ngramkit.builders import rates
from ngramkit.errors import UsageError
from ngramkit.machine import parse_count

RECIPE = """
kind = "{kind}"
model.id = "demo"
corpus.name = "{corpus}"
"""


def recipe(tmp_path, kind="datastore", corpus="python-stdlib", more=""):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(kind=kind, corpus=corpus) + more)
    return path


def test_every_stage_has_a_measured_rate():
    assert all(rate > 0 for rate in rates.RATES.values())
    assert set(rates.SERIAL) <= set(rates.RATES)


@pytest.mark.parametrize("kind", ["datastore", "frozen-table"])
def test_hours_are_tokens_by_rates_and_cores(tmp_path, kind):
    one = plan(recipe(tmp_path, kind), 1, tokens=10**9)
    many = plan(recipe(tmp_path, kind), 50, tokens=10**9, price=0.5)
    assert one.hours == pytest.approx(50 * many.hours)
    assert one.core_hours == pytest.approx(many.core_hours) == pytest.approx(one.hours)
    assert many.cost == pytest.approx(many.core_hours / 2)
    for stage in one.stages:
        if stage.name != rates.WRITE:  # which is by bytes
            assert stage.core_hours == pytest.approx(10**9 / rates.RATES[stage.name] / 3600)
    assert one.bottleneck == max(one.stages, key=lambda stage: stage.hours).name


def test_a_datastore_takes_six_bytes_a_token_and_a_table_no_more_than_its_bounds(tmp_path):
    assert plan(recipe(tmp_path), 2, tokens=10**9).bytes == 6 * 10**9
    table = plan(recipe(tmp_path, "frozen-table"), 2, tokens=10**12)
    assert table.bytes < 3 << 30


def test_pruning_is_done_by_one_core(tmp_path):
    whole = plan(recipe(tmp_path), 100, tokens=10**9)
    pruned = plan(recipe(tmp_path, more='prune.bytes = "1G"\n'), 100, tokens=10**9)
    assert [s.name for s in pruned.stages][:4] == [s.name for s in whole.stages]
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
