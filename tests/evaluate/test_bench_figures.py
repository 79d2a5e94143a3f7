"""What bench makes of its runs: rates, speed-ups, their spread; and which folders it writes to."""

from dataclasses import replace

import numpy as np
import pytest

from ngramkit.basics.errors import UsageError
from ngramkit.decode.result import Decoded
from ngramkit.evaluate.bench_contest import tokens_as_spec_bench_counts
from ngramkit.evaluate.bench_figures import speedup_with_interval, summarize
from ngramkit.evaluate.bench_runs import QuestionRun, Runs, TurnRun
from ngramkit.evaluate.bench_tables import BenchResults


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bench"


def decoded(written, accepted_per_pass):
    return Decoded(3, np.array(written, np.int32), accepted_per_pass, "eos", 2.0, 0.5, 0.1, 1.0)


def test_tokens_per_pass_counts_what_was_written():
    assert tokens_as_spec_bench_counts(decoded([5, 6, 7, 8, 9], [2, 0])) == [3, 1]
    assert tokens_as_spec_bench_counts(decoded([5, 6, 7, 8, 9], [1, 2])) == [
        2,
        2,
    ]  # EOS inside the path
    assert tokens_as_spec_bench_counts(decoded([5], [])) == []


def _turn(tokens, seconds):
    return TurnRun("", tokens, [1] * (len(tokens) - 1), seconds, 0.0, 0.0, 0.0)


def test_differing_answers_are_named_and_rates_decide_the_speed_up(folder):
    runs = Runs(folder, {})
    for name, seconds in (("none", 4.0), ("fast", 2.0)):
        for question in (1, 2):
            tokens = [7, 8, 9 if name == "none" or question == 1 else 3]
            runs.add(QuestionRun(name, question, "all", [_turn(tokens, seconds)]))
    runs.add(QuestionRun("none", 3, "all", [_turn([1, 2], 100.0)]))  # not yet answered by both
    base, fast = summarize(runs, ["fast"])
    assert base.tokens == 4
    assert (fast.speedup, fast.speedup_low, fast.speedup_high) == (2.0, None, None)
    assert (fast.identical, fast.differing) == (False, ["2"])
    written = [run for run in runs.found.values() if run.question != 3]
    results = BenchResults([base, fast], written, {"model": "m"}, folder, baseline="none")
    assert [each.value for each in results.ratios()] == [2.0]
    fast.drop_speedups_if_texts_differ([])
    assert (fast.speedup, fast.speedup_interval) == (None, "no interval: answers differ")
    assert results.ratios() == []  # it would be the speed-up
    assert [each.value for each in results.ratios("tokens/step")] == [1.0]
    assert repr(results).endswith(": fast n/a>")


def test_answers_of_one_token_have_no_speed_up_as_spec_bench_counts(folder):
    runs = Runs(folder, {})
    for name in ("none", "fast"):
        runs.add(QuestionRun(name, 1, "all", [_turn([7], 1.0)]))
    for result in summarize(runs, ["fast"], count=lambda text: 1):
        assert result.spec_bench == {}


def test_the_spread_follows_the_questions():
    slow = [QuestionRun("none", i, "all", [_turn([1] * 10, 1.0)]) for i in range(40)]
    mixed = [
        QuestionRun("d", i, "all", [_turn([1] * 10, 0.5 if i % 2 else 1.0)]) for i in range(40)
    ]
    found = speedup_with_interval(mixed, slow)
    assert 1.2 < found.low < 4 / 3 < found.high < 1.5
    assert found.interval == "95 % over 40 questions"
    assert speedup_with_interval(mixed, slow) == found


def test_a_drafter_that_learns_from_earlier_questions_has_no_interval(folder):
    runs = Runs(folder, {})
    for question in range(9):
        for name in ("none", "ssd", "rest"):
            runs.add(QuestionRun(name, question, "all", [_turn([7, 8, 9], 1.0 + question)]))
    _, ssd, rest = summarize(runs, ["ssd", "rest"], learning={"ssd"})
    assert (ssd.speedup_low, ssd.speedup_high) == (None, None)
    assert "depend" in ssd.speedup_interval
    assert rest.speedup_low is not None
    results = BenchResults([ssd, rest], [], {}, folder, {"<b>": "needs <i>"})
    assert [each.low for each in results.ratios()] == [None]
    assert "<td>rest</td>" in (shown := results._repr_html_())
    assert "&lt;b&gt;: n/a, needs &lt;i&gt;" in shown


@pytest.mark.parametrize("left", [b"", b'{"pl', b'{"plan": {"model"'])
def test_a_benchmark_killed_in_its_first_write_begins_again(tmp_path, left):
    (tmp_path / "runs.jsonl").write_bytes(left)
    assert Runs(tmp_path, {"model": "a"}).found == {}
    assert Runs(tmp_path, {"model": "a"}).found == {}  # now it is that benchmark's


@pytest.mark.parametrize("name", ["runs.jsonl", "results.json", "report.html", "notes.md"])
def test_a_benchmark_does_not_write_over_what_is_none(tmp_path, name):
    (tmp_path / name).write_text("my own\n")
    for force in (False, True):
        with pytest.raises(UsageError, match=name):
            Runs(tmp_path, {"model": "a"}, force=force)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["my own\n"]


@pytest.mark.parametrize(
    ("nodes", "drafted", "remark"),
    [([0, 0], 0, "drafted nothing: its speed-up is noise"), ([0, 5], 5, ""), ([0, None], None, "")],
)
def test_a_drafter_that_drafted_nothing_is_said_to(folder, nodes, drafted, remark):
    runs = Runs(folder, {})
    for question, count in enumerate(nodes):
        for name, of_run in (("none", 0), ("fast", count), ("generate", 0)):
            turn = replace(_turn([7, 8, 9], 1.0), drafted=of_run)
            runs.add(QuestionRun(name, question, "all", [turn]))
    base, fast, theirs = summarize(Runs(folder, {}), ["fast", "generate"])  # as it reads back
    assert (fast.drafted, fast.remarks) == (drafted, remark)
    assert base.remarks == theirs.remarks == ""


@pytest.mark.parametrize(("wrong", "remark"), [(1, "1 answer differs"), (2, "2 answers differ")])
def test_answers_that_differ_are_counted(folder, wrong, remark):
    runs = Runs(folder, {})
    for question in range(3):
        runs.add(QuestionRun("none", question, "all", [_turn([7, 8, 9], 1.0)]))
        other = 1 if question < wrong else 9
        runs.add(QuestionRun("fast", question, "all", [_turn([7, 8, other], 1.0)]))
    (_, fast) = summarize(runs, ["fast"])
    assert fast.remarks == remark
    assert fast.speedup
    fast.drop_speedups_if_texts_differ(fast.differing)
    assert fast.speedup
    assert "near tie" in fast.remarks
    fast.drop_speedups_if_texts_differ(fast.differing[1:])  # one parts for another reason
    assert fast.to_dict()["speedup"] is None
    assert fast.by_category["all"]["speedup"] is None
    assert "no speed-up" in fast.remarks
