"""bench from end to end: contestants in turn, interrupted, sampled; results and report."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from reporters import Notes

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.corpus.chat import KNOWN, Template
from ngramkit.decode import compare
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.drafters.context import Context
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.sources import Sources
from ngramkit.drafters.ssd import Ssd
from ngramkit.evaluate import bench_contest
from ngramkit.evaluate.bench_contest import Bench, Contestant, plan_of
from ngramkit.evaluate.bench_figures import summarize
from ngramkit.evaluate.bench_runs import BASELINE_DRAFTER, RUNS_FILE, Runs, TurnRun, plan_difference
from ngramkit.evaluate.bench_tables import near_ties, write_results
from ngramkit.evaluate.provenance import provenance_of
from ngramkit.evaluate.records import Question
from ngramkit.evaluate.replay_loop import replay_drafter

QUESTIONS = [
    Question(1, "short", ["def f(x):\n", "    return\n"]),
    Question(2, "short", ["import os\nimport sys\nimport os\nimport"]),
    Question("three", "loops", ["for i in range(10):\n"]),
    Question(4, "classes", ["class A:\n    def __init__(self):\n"]),
]
PLAIN = Template("none", KNOWN["none"])
NAMES = [BASELINE_DRAFTER, "ssd", "context"]


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


@pytest.fixture
def contest(model):
    return new_contest(model)


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """The finished runs of a contest."""
    runs = Runs(tmp_path_factory.mktemp("whole") / "bench", {})
    new_contest(model).run(runs)
    return runs


def new_contest(model):
    record = model.tokenizer.record
    made = []

    def ssd(remember):
        made.append(PastRequests(tokenizer=record, forgetful=not remember, background=False))
        return Ssd(made[-1])

    contestants = [
        Contestant("ssd", ssd, learns=True),
        Contestant("context", lambda remember: Context()),
    ]
    task = Decoder.settle(model, DecodeOptions(budget=6, max_new_tokens=16))
    bench = Bench(task, contestants, QUESTIONS, PLAIN)
    bench.made = made
    return bench


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bench"


def test_a_benchmark_end_to_end(contest, folder):
    plan = plan_of(contest, {"model": "demo", "questions": "made-up", "drafters": NAMES[1:]})
    runs = Runs(folder, plan)
    contest.run(runs)
    made_by = provenance_of(
        "bench", {}, {}, files=[], tokenizer=contest.model.tokenizer.record, sources=Sources(),
        choices=[], seeds={},
    )  # fmt: skip
    results = write_results(contest, runs, plan, folder, made_by).results
    assert [result.drafter for result in results] == NAMES
    base, ssd, context = results
    assert base.tokens_per_step == 1.0
    assert (base.speedup, base.speedup_low) == (1.0, None)  # of three questions
    for result in (ssd, context):
        assert result.identical
        assert result.tokens == base.tokens
        assert result.passes < base.passes
        assert result.tokens_per_step == result.tokens / result.passes
        assert sum(c["tokens"] for c in result.by_category.values()) == result.tokens
        assert sum(result.accepted_lengths.values()) == result.passes
    assert list(base.by_category) == ["short", "loops", "classes"]
    told = json.loads((folder / "results.json").read_text())
    assert [row["drafter"] for row in told["results"]] == NAMES
    assert told["machine"]["torch"]
    assert {point["drafter"] for point in told["by_budget"]} == {"ssd", "context"}

    for name, result in zip(NAMES, results, strict=True):
        _spec_bench_agrees(folder / f"answers-{name}.jsonl", result)
    page = (folder / "report.html").read_text()
    assert page.count("<img ") == 4  # speed-up, categories, budgets, lengths
    for drafter in ("ssd", "context"):
        assert f'<th scope="row">{drafter}</th>' in page


def _spec_bench_agrees(path, result):
    """Assert the figures that Spec-Bench's evaluation/speed.py would compute."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["question_id"] for line in lines] == [1, 2, "three", 4]
    choices = [line["choices"][0] for line in lines]
    lengths = [length for choice in choices for length in choice["accept_lengths"]]
    assert np.mean(lengths) == pytest.approx(result.tokens_per_step)
    assert [len(choice["turns"]) for choice in choices] == [2, 1, 1, 1]
    for choice in choices:
        assert set(choice) == {
            "index", "turns", "decoding_steps", "new_tokens", "wall_time", "accept_lengths"
        }  # fmt: skip
        assert sum(choice["decoding_steps"]) == len(choice["accept_lengths"])
        assert len(choice["wall_time"]) == len(choice["new_tokens"]) == len(choice["turns"])
    seconds = sum(sum(choice["wall_time"]) for choice in choices)
    tokens = sum(sum(choice["new_tokens"]) for choice in choices)
    assert tokens / seconds == pytest.approx(result.tokens_per_second)


def test_contestants_take_turns_and_the_first_one_changes(contest, folder, monkeypatch):
    order, real = [], Decoder.decode

    def spying(task, prompt, drafter):
        order.append(type(drafter).__name__)
        return real(task, prompt, drafter)

    monkeypatch.setattr(Decoder, "decode", spying)
    monkeypatch.setattr(compare, "warm_up", lambda *a: None)
    contest.run(Runs(folder, {}))
    none, ssd, context = "NoDraft", "Ssd", "Context"
    assert order[:6] == [none] * 2 + [ssd] * 2 + [context] * 2  # two turns
    assert order[6:] == [ssd, context, none, context, none, ssd, none, ssd, context]


@pytest.mark.parametrize("ending", ["raised", "returned"])
def test_an_interrupted_benchmark_goes_on(contest, whole, folder, monkeypatch, ending):
    monkeypatch.setattr(compare, "warm_up", lambda *a: None)
    calls, real = [], Decoder.decode

    def interrupted(*args):
        calls.append(1)
        if len(calls) < 9:
            return real(*args)
        if ending == "raised":
            raise KeyboardInterrupt
        return replace(real(*args), ended_by="interrupt")

    monkeypatch.setattr(Decoder, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        contest.run(Runs(folder, {"x": (1,)}))
    with (folder / RUNS_FILE).open("a") as file:
        file.write('{"drafter": "ssd", "quest')
    monkeypatch.setattr(Decoder, "decode", lambda *args: calls.append(2) or real(*args))
    runs = Runs(folder, {"x": [1]})
    known, answers = len(runs.found), runs.answers
    contest.run(runs)
    assert known == 5  # three answers of two turns each, and two
    assert answers == 8
    assert calls.count(2) == 15 - 8
    assert list(runs.found) == list(whole.found)
    for key, run in runs.found.items():
        assert run.same_text(whole.found[key])
        assert run.tokens_per_pass == whole.found[key].tokens_per_pass
    assert Runs(folder, {"x": [1]}).found == runs.found
    monkeypatch.setattr(Decoder, "decode", None)
    contest.run(Runs(folder, {"x": [1]}))  # nothing is left to do


def test_a_benchmark_that_goes_on_knows_that_the_machine_was_busy(contest, folder, monkeypatch):
    monkeypatch.setattr(bench_contest, "OtherPrograms", lambda: SimpleNamespace(cores=1.5))
    contest.run(Runs(folder, {}))
    assert Runs(folder, {}).others == pytest.approx(1.5)
    lines = (folder / RUNS_FILE).read_text().replace(', "others": 1.5}', "}")
    (folder / RUNS_FILE).write_text(lines)  # as earlier versions wrote it
    assert Runs(folder, {}).others is None


def test_other_plans_and_damaged_runs_are_refused(folder):
    Runs(folder, {"model": "a"})
    with pytest.raises(UsageError, match=r'another benchmark: model was "a", is "b"'):
        Runs(folder, {"model": "b"})
    with (folder / RUNS_FILE).open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(InputError, match="line 2"):
        Runs(folder, {"model": "a"})
    Runs(folder, {"model": "b"}, force=True)
    with (folder / RUNS_FILE).open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(InputError, match="line 2"):
        Runs(folder, {"model": "b"})
    assert Runs(folder, {"model": "b"}, force=True).found == {}


def test_a_benchmark_that_starts_over_deletes_the_results_before(folder):
    Runs(folder, {"drafters": ["rest:max_match=8"]})
    written = ["answers-none.jsonl", "answers-rest-max_match-8.jsonl", "results.json",
               "speedups.pdf", "report.html"]  # fmt: skip
    for name in (*written, "answers-mine.jsonl"):
        (folder / name).touch()
    Runs(folder, {"drafters": ["rest:max_match=8"]})
    assert len(list(folder.iterdir())) == 7
    Runs(folder, {"drafters": []}, force=True)
    assert sorted(path.name for path in folder.iterdir()) == ["answers-mine.jsonl", RUNS_FILE]


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ({"count": 1, "questions_sha256": "a" * 64}, {"count": 2, "questions_sha256": "b" * 64},
         "the number of questions was 1, is 2"),
        ({"questions_sha256": "a" * 64}, {"questions_sha256": "b" * 64},
         "the text of the questions differs"),
        ({"budget": 8, "stop": []}, {"budget": "auto", "stop": ["x"]},
         'budget was 8, is "auto", and 1 more'),
        ("no plan", {"model": "a"}, 'model was null, is "a"'),
    ],
)  # fmt: skip
def test_what_differs_is_named(there, here, said):
    assert plan_difference(there, here) == said


def test_the_drafter_that_learns_learns_in_a_benchmark_and_forgets_the_warm_up(contest, folder):
    contest.run(Runs(folder, {}))
    living, warmed = contest.made
    assert warmed.tokens == 0
    assert living.tokens > 5 * 16


def test_a_drafter_that_learns_from_evidence_starts_over(model, folder):
    record = model.tokenizer.record
    make = lambda remember: load_drafter("automaton", tokenizer=record)  # noqa: E731
    contestant = Contestant("automaton", make, learns=True, wants_evidence=True)
    task = Decoder.settle(model, DecodeOptions(budget=6, max_new_tokens=32))
    contest = Bench(task, [contestant], QUESTIONS, PLAIN)
    contest.run(runs := Runs(folder, {}))
    lines = (folder / RUNS_FILE).read_text().splitlines(keepends=True)
    (folder / RUNS_FILE).write_text("".join(lines[:3]))  # of the first question
    notes = Notes()
    contest.run(resumed := Runs(folder, {}), notes)
    assert "automaton starts over" in notes
    for each in (resumed, Runs(folder, {})):
        for question in QUESTIONS:
            one, other = (found.answered("automaton", question.id) for found in (runs, each))
            assert one.tokens_per_pass == other.tokens_per_pass


def test_replays_take_the_passes_that_were_recorded(contest, whole):
    for contestant in contest.contestants[1:]:
        name = contestant.name
        records = contest.records(whole, name)
        result = replay_drafter(
            name, lambda c=contestant: c.make(True), records, 6, keep_state=contestant.learns
        )
        passes = sum(run.passes for run in whole.found.values() if run.drafter == name)
        assert result.total.passes == passes


def test_sampling_has_a_seed_per_question_and_the_same_text_for_all(model, contest, folder):
    sampled = replace(contest.decoder.options, temperature=1.0, seed=7)
    task = replace(contest.decoder, options=sampled)
    twice = [Question(1, "a", ["def f("]), Question(2, "a", ["def f("])]
    sampled = Bench(task, contest.contestants[1:], twice, PLAIN)
    runs = Runs(folder, {})
    sampled.run(runs)
    assert all(result.identical for result in summarize(runs, NAMES[1:]))
    assert not runs.found[BASELINE_DRAFTER, "1"].same_text(runs.found[BASELINE_DRAFTER, "2"])


def test_a_near_tie_of_sampled_text_is_judged_by_its_questions_seed(
    model, contest, folder, monkeypatch
):
    options = replace(contest.decoder.options, temperature=1.0, seed=7)
    sampled = replace(contest.decoder, options=options)
    bench = Bench(sampled, contest.contestants[1:], QUESTIONS[2:], PLAIN)
    runs = Runs(folder, {})
    bench.run(runs)
    (turn,) = runs.found["ssd", "4"].turns
    other = replace(turn, token_ids=[turn.token_ids[0] ^ 1, *turn.token_ids[1:]])
    runs.found["ssd", "4"] = replace(runs.found["ssd", "4"], turns=[other])
    seeds = []

    def judge(decoder, *_):
        seeds.append(decoder.options.sampling.seed)
        return compare.Parting(0, "a", "b", "no drafts", near_tie=True)

    monkeypatch.setattr(compare, "where_answers_part", judge)
    assert near_ties(bench, runs, summarize(runs, NAMES[1:])[1]) == ["4"]
    assert seeds == [7 + 1]


def test_questions_longer_than_the_context_are_left_out(model, contest):
    long = Question(9, "long", ["x = 1\n" * 1000])
    bench = Bench(contest.decoder, contest.contestants[1:], [long, *QUESTIONS], PLAIN)
    assert bench.too_long == 1
    assert bench.questions == QUESTIONS
    with pytest.raises(InputError, match="shorter than the"):
        Bench(contest.decoder, [], [long], PLAIN)
    grows = Question(8, "long", ["def f():\n", "x = 1\n" * 1000])
    bench = Bench(contest.decoder, [], [grows], PLAIN)
    assert len(list(bench.conversation(grows, [TurnRun("", [1], [], 1.0, 0.0, 0.0, 0.0)]))) == 1
