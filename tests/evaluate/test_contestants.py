"""Transformers' own ways, drafters with budgets of their own, and Spec-Bench's way to count."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.drafters.spec import split_budget
from ngramkit.evaluate.bench_figures import speedup_as_spec_bench
from ngramkit.evaluate.bench_runs import QuestionRun, TurnRun
from ngramkit.evaluate.records import embedded_questions


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return ngramkit.bench(
        embedded_questions(2),
        "demo",
        drafters=["none", "generate", "generate-lookup", "context:budget=16", "context:budget=2"],
        max_new_tokens=24,
        out=tmp_path_factory.mktemp("bench") / "out",
    )


def test_all_write_the_same_text_in_fewer_passes(measured):
    by_name = {result.drafter: result for result in measured.results}
    assert list(by_name) == [
        "none",
        "generate",
        "generate-lookup",
        "context:budget=16",
        "context:budget=2",
    ]
    assert measured.identical
    none, plain, lookup = (by_name[n] for n in ("none", "generate", "generate-lookup"))
    assert (plain.passes, plain.tokens_per_step) == (none.passes, 1.0)
    assert lookup.passes < none.passes
    assert lookup.tokens == none.tokens
    assert by_name["context:budget=16"].passes < by_name["context:budget=2"].passes < none.passes
    assert all(run.load >= 0 for run in measured.runs)


def test_passes_of_generate_add_up_to_what_it_wrote(measured):
    for run in measured.runs:
        for turn in run.turns:
            assert sum(turn.tokens_per_pass) == len(turn.token_ids) - 1, run.drafter
            assert min(turn.tokens_per_pass) >= 1


def test_both_ways_to_count_are_in_the_results(measured):
    body = json.loads((measured.folder / "results.json").read_text())
    for row in body["results"]:
        assert row["spec_bench"].keys() == {
            "tokens_per_second",
            "baseline_tokens_per_second",
            "speedup",
            "mean_accepted_tokens",
        }
        assert row["spec_bench"]["mean_accepted_tokens"] == pytest.approx(row["tokens_per_step"])


def test_a_bench_has_rows_ratios_and_a_repr(measured):
    rows = [(row["drafter"], row["question"]) for row in measured.rows()]
    names = [result.drafter for result in measured.results]
    assert rows == [(name, q.id) for name in names for q in embedded_questions(2)]
    assert len(measured.questions_to_pandas()) == len(rows) == 10
    table = measured.to_pandas().set_index("drafter")
    assert table.budget["context:budget=16"] == 16
    assert table.tokens_per_step["none"] == 1.0
    pairs = [(pair.of, pair.to) for pair in measured.ratios("tokens/step")]
    assert pairs == list(combinations(names[1:], 2))
    plain = json.loads(json.dumps(measured.to_dict()))
    assert {pair["figure"] for pair in plain["ratios"]} == {"tokens/step", "tokens/s"}
    assert (measured.folder / "answers-context-budget-16.jsonl").exists()
    assert repr(measured).startswith("<BenchResults of demo in ")


def test_the_folder_of_a_benchmark_is_that_of_a_replay_and_more(measured):
    names = {path.name for path in measured.folder.iterdir()}
    assert names > {"results.json", "results.csv", "table.md", "table.tex", "speedups.pdf"}
    body = json.loads((measured.folder / "results.json").read_text())
    assert {"provenance", "machine", "plan", "by_budget", "ratios"} < body.keys()
    assert body["machine"]["torch"]
    assert body["provenance"]["command"] is None  # Question objects
    assert body["provenance"]["options"]["questions"] == "2 Questions"
    assert body["provenance"]["seeds"] == {"intervals": 0, "sampling": 0}
    table = (measured.folder / "table.tex").read_text()
    assert "speed-up" in table
    assert r"context:budget=16 & " in table
    again = ngramkit.bench(
        embedded_questions(2), "demo", drafters=[result.drafter for result in measured.results],
        max_new_tokens=24, out=measured.folder, baseline="context:budget=2",
    )  # fmt: skip
    assert again.to_dict()["results"] == measured.to_dict()["results"]
    assert {each.to for each in again.ratios()} == {"context:budget=2"}
    assert len(again.ratios()) == 3


def test_none_is_named_like_any_other_and_measured_once(tmp_path):
    alone = ngramkit.bench(
        embedded_questions(1), "demo", drafters=["none"], max_new_tokens=2, out=tmp_path / "x"
    )
    assert [result.drafter for result in alone.results] == ["none"]
    with pytest.raises(UsageError, match="must name none without options"):
        ngramkit.bench(embedded_questions(1), "demo", drafters=["none:budget=4"], out="x")


def run(drafter, question, tokens, seconds, text):
    turn = TurnRun(text, list(range(tokens)), [1] * (tokens - 1), seconds, 0, 0, 0)
    return QuestionRun(drafter, question, "x", [turn])


def test_a_benchmark_of_other_passes_or_past_requests_is_not_continued(tmp_path):
    few = {"drafters": "ssd", "max_new_tokens": 4, "out": tmp_path / "out"}
    (tmp_path / "log.jsonl").write_text('{"prompt": "import os", "output": "import sys"}\n')
    past = tmp_path / "past"
    ngramkit.history_import(tmp_path / "log.jsonl", past, model="demo")
    ngramkit.bench(embedded_questions(1), "demo", history=past, **few)
    for other in {"verify": "chain"}, {"store": False}, {"history_tokens": 9}:
        with pytest.raises(UsageError, match=r"benchmark: (verify|history) was"):
            ngramkit.bench(embedded_questions(1), "demo", history=past, **few, **other)
    ngramkit.history_import(tmp_path / "log.jsonl", past, model="demo")
    with pytest.raises(UsageError, match="benchmark: history was"):
        ngramkit.bench(embedded_questions(1), "demo", history=past, **few)


def test_spec_bench_averages_rates_and_counts_anew():
    """speed.py by hand: rates 10 and 1 against (4 - 1) / 2 and (7 - 1) / 4."""
    base = [run("none", 1, 9, 2.0, "a b c d"), run("none", 2, 9, 4.0, "a b c d e f g")]
    mine = [run("x", 1, 10, 1.0, ""), run("x", 2, 10, 10.0, "")]
    found = speedup_as_spec_bench(mine, base, lambda text: len(text.split()))
    assert found["tokens_per_second"] == pytest.approx(5.5)
    assert found["baseline_tokens_per_second"] == pytest.approx((1.5 + 1.5) / 2)
    assert found["speedup"] == pytest.approx(5.5 / 1.5)


@pytest.mark.parametrize("given", ["blend:budget=0", "blend:budget=x", "blend:budget=",
                                   "blend:budget=2,budget=3", "blend:budget=99999"])  # fmt: skip
def test_a_budget_that_is_none_is_refused(given):
    with pytest.raises(UsageError, match="must be one number from 1 to 4,096, or auto"):
        split_budget(given)


def test_what_transformers_ways_are_not_measured_with():
    with pytest.raises(UsageError, match="temperature or stop"):
        ngramkit.bench(embedded_questions(1), "demo", drafters=["generate"], stop=["x"], out="x")
