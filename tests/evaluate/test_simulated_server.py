"""A log is served as an engine would: who runs beside whom, what is drafted from, what it costs."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from reporters import Notes

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.budget.pass_times import cost_shown, pass_times
from ngramkit.budget.profile import Pass, Profile
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.sources import PastUse, Sources
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.evaluate.forecast import counted_passes
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.simulated_server import simulate_server
from ngramkit.formats.history import History


@pytest.fixture(scope="module", autouse=True)
def working_folder(tmp_path_factory):
    """One folder for all forecasts: the first builds the datastore that the others find."""
    with contextlib.chdir(tmp_path_factory.mktemp("forecasts")):
        yield


LIKE = [f"    return self.name_{i}, self.value_{i}\n" * 3 for i in range(8)]


def ids(*tokens):
    return np.array(tokens, np.int32)


def record(name, *answers, prompt=(1,), **how):
    return Record(name, "x", [Turn(ids(*prompt), ids(*answer)) for answer in answers], **how)


class Oracle:
    """A drafter of a batch that knows what is written, and notes what it was asked."""

    def __init__(self, records):
        self.texts = [
            np.concatenate([turn.prompt, turn.answer]).tolist() for r in records for turn in r.turns
        ]
        self.calls = []
        self.statistics = type("Statistics", (), {"seconds": 0.0})()
        self.sessions = self
        self.finished = []

    def end(self, name):
        pass

    def finish(self, request):
        self.finished.append((request.tokens.tolist(), request.prompt))

    def chain_batch(self, rows, lengths, asked):
        self.calls.append([row.tolist() for row in rows])
        self.lengths, self.asked = list(lengths), [each.prompt for each in asked]
        self.statistics.seconds += 1e-3
        return [self.chain(row.tolist(), n) for row, n in zip(rows, lengths, strict=True)]

    def chain(self, row, n):
        (text, *_) = [t for t in self.texts if t[: len(row)] == row]
        tokens = ids(*text[len(row) :][: max(n, 0)])
        from ngramkit.drafters.base import DraftTree

        count = len(tokens)
        return DraftTree(tokens, np.arange(-1, count - 1, dtype=np.int32),
                         np.ones(count, np.float32), np.zeros(count, np.uint8))  # fmt: skip


def served(records, concurrency=2, tokens=2):
    drafter = Oracle(records)
    return simulate_server(records, drafter, concurrency=concurrency, tokens=tokens), drafter


def test_requests_run_beside_each_other_in_their_order():
    records = [record(str(i), range(10 * i + 10, 10 * i + 16)) for i in range(3)]
    result, drafter = served(records)
    firsts = [[row[1] for row in call] for call in drafter.calls]
    assert firsts == [[10, 20], [10, 20], [30], [30]]  # the first token is the prefill's
    assert result.batches == [2, 2, 1, 1]
    assert result.drafted == [2] * 6  # after the end, too: who serves does not know it
    assert result.written == [3, 3, 2, 2, 3, 2]
    assert result.accepted == [2] * 6  # the model adds no token after an end
    assert result.ended == [0, 1, 2]
    assert drafter.finished == [([1, *range(n, n + 6)], 1) for n in (10, 20, 30)]
    assert counted_passes(result).tolist() == [True, True, False, False]
    assert sum(result.draft_seconds) == pytest.approx(4e-3)
    assert drafter.asked == [1]


def test_a_turn_waits_for_the_one_before():
    """Of a record, and of records that continue each other; others run meanwhile."""
    one = [record("a", (10, 11), (20, 21)), record("b", (30, 31))]
    _, drafter = served(one, concurrency=3)
    assert [[row[1] for row in call] for call in drafter.calls] == [[10, 30], [20]]
    branches = [
        Record(
            str(i), "x", [Turn(ids(1), ids(10 * i, 10 * i + 1), place=i, after=0 if i else None)]
        )
        for i in range(3)
    ]
    assert [len(call) for call in served(branches)[1].calls] == [1, 2]


def test_only_a_repeated_prompt_was_asked_before():
    turns = [Turn(ids(*range(n, n + 4)), ids(*range(n, n + 9)), place=n) for n in range(3)]
    records = [Record("talk", "x", turns), Record("again", "x", [replace(turns[0], place=3)])]
    (found,) = ngramkit.forecast(
        records, model=load_tokenizer("demo").record, concurrency=1, artifacts=Sources()
    )
    assert found.replay.asked_before == [False, False, False, True]


def test_requests_that_the_prefill_ends_take_no_pass():
    records = [record("a", (10,)), record("b", ()), record("c", (20, 21))]
    result, _ = served(records, concurrency=1)
    assert len(result.batches) == 1
    result, _ = served(records[:2])
    assert result.batches == []
    assert counted_passes(result).tolist() == []


def test_an_engine_drafts_from_what_it_has_served():
    """The real one: its history grows, and is given nothing that it could not have."""
    tokenizer = load_tokenizer("demo")
    turns = [tokenizer.encode("class A:\n"), tokenizer.encode("".join(LIKE[:2]))]
    records = [Record(str(i), "x", [Turn(*turns)]) for i in range(3)]

    def steps(**options):
        config = DraftConfig(pause=False, min_probability=0.1, log_steps=0, **options)
        drafter = BatchDrafter.open(
            config, vocabulary=4096, tokenizer=tokenizer.record, writes=False
        )
        result = simulate_server(records, drafter, concurrency=1, tokens=8)
        request = np.array(result.request)
        return [np.mean(np.array(result.written)[request == n]) for n in range(3)]

    alone, grows = steps(), steps(history=True)
    assert alone[0] == alone[1] == alone[2] == grows[0]
    assert grows[1] > 1.5 * alone[1]
    assert grows[2] >= grows[1]


@pytest.fixture
def log(tmp_path):
    rows = [
        {"id": f"{i}", "category": "ab"[i % 2], "prompt": f"class {chr(65 + i)}:\n",
         "output": LIKE[i % 4] * 2, "run": i // 4}
        for i in range(12)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_forecast_says_what_it_comes_to(log):
    options = {"model": "demo", "concurrency": 2, "pass_cost": 1.1}
    results = ngramkit.forecast(log, budgets=[4, 16], artifacts=Sources(), **options)
    best, plain = results.best, results.to_dict()
    assert [each.budget for each in results] == [4, 16]
    assert best.budget == 16
    assert best.passes_share < best.time_share < 0.7
    assert best.batch == 2
    assert best.warning is None
    for shown in (best.passes_share, best.time_share):
        assert f"{shown:.2f}" in results.sentence
    assert set(best.by_kind()) == {"a", "b"}
    assert list(best.by_run()) == ["0", "1", "2"]
    assert len(best.over_time()) >= 9
    assert best.over_time()[-1] > best.over_time()[0]  # its history has warmed up
    assert json.loads(json.dumps(plain))["results"][1]["by_kind"]["a"]["output_tokens"] > 0
    assert {row["kind"] for row in results.rows()} == {"a", "b"}
    shown = results._repr_html_()
    assert shown.count("<tr>") == 1 + len(results)
    assert results.sentence.partition(" of the passes")[0] in shown
    assert results.sentence in repr(results)
    assert f"at most {best.budget} nodes" in best._repr_html_()
    assert "<td>time_share</td>" in best._repr_html_()
    forgetful = ngramkit.forecast(log, artifacts=Sources(past=PastUse(store=False)), **options)
    assert forgetful.best.passes_share > 1.1 * best.passes_share


def made_up_log(requests, seed, last=0):
    """Return records of texts that repeat each other in part, of very different lengths."""
    random = np.random.default_rng(seed)
    phrases = [random.integers(5, 4000, 12) for _ in range(20)]

    def text(tokens):
        parts = [
            phrases[random.integers(20)] if random.random() < 0.6 else random.integers(5, 4000, 6)
            for _ in range(tokens // 6 + 2)
        ]
        return np.concatenate(parts)[:tokens].astype(np.int32)

    lengths = np.minimum(random.lognormal(3.5, 0.8, requests) + 4, 400).astype(int).tolist()
    return [
        Record(str(i), "x", [Turn(text(8), text(n))])
        for i, n in enumerate([*lengths, *[last] * (last > 0)])
    ]


def best_of(records, concurrency):
    return ngramkit.forecast(
        records, model=load_tokenizer("demo").record, concurrency=concurrency, budgets=[8],
        artifacts=Sources(),
    ).best  # fmt: skip


def test_requests_are_drafted_for_from_their_references(tmp_path):
    """Their answers are drawn tokens, which nothing else predicts."""
    random = np.random.default_rng(3)
    answers = random.integers(1000, 4000, (6, 40)).astype(np.int32)
    turns = [Turn(ids(5, 6, i), answer, references=[answer]) for i, answer in enumerate(answers)]
    records = [Record(str(i), "x", [turn]) for i, turn in enumerate(turns)]

    def steps(records, drafter="blend"):
        config = DraftConfig(drafter=drafter, pause=False, min_probability=0.1, log_steps=0)
        engine = BatchDrafter.open(config, vocabulary=4096, writes=False)
        return len(simulate_server(records, engine, concurrency=2, tokens=8).batches)

    bare = [replace(each, turns=[replace(each.turns[0], references=())]) for each in records]
    assert steps(records) < 0.4 * steps(bare)
    assert steps(records, "context") < 0.4 * steps(bare, "context")


def test_a_forecast_counts_the_references_of_a_log(tmp_path):
    def share(name, drafter, **more):
        rows = [{"prompt": f"edit {i}", "output": LIKE[i], **more} for i in range(4)]
        path, notes = tmp_path / name, Notes()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = ngramkit.forecast(
            path, model="demo", drafter=drafter, budgets=[8], artifacts=Sources(), pass_cost=1.1,
            reporter=notes,
        )  # fmt: skip
        assert ("cacheback drafts without the references of 4 requests" in notes) == bool(
            more and drafter == "cacheback"
        )
        return found.best.passes_share

    reference = "".join(LIKE)
    assert share("a", "context", reference=reference) < 0.7 * share("b", "context")
    assert share("c", "cacheback", reference=reference) == share("d", "cacheback")


def test_a_drafter_without_past_requests_has_no_history(log, caplog):
    notes = Notes()
    ngramkit.forecast(log, model="demo", drafter="context", reporter=notes, limit=2)
    assert not [text for text in [*notes.lines, caplog.text] if "history" in text]
    ngramkit.forecast(log, model="demo", drafter="context", history=log.parent, limit=2)


def test_more_requests_at_once_promise_no_fewer_passes_while_each_writes_less():
    records = made_up_log(48, 0)
    found = [best_of(records, concurrency) for concurrency in (2, 6, 12, 48, 200)]
    for each in found:
        total = each.replay.total
        assert each.passes_share * total.tokens_per_step == pytest.approx(1)
        assert each.output_share >= 0.5
        assert each.time_share >= each.passes_share
        kinds = [tally.passes for tally in each.by_kind().values()]
        assert sum(kinds) == total.passes == pytest.approx(each.passes * each.batch)
    assert [each.warning is None for each in found] == [True, True, True, False, False]
    assert found[2].batch == 12
    assert found[3].batch == found[4].batch < 48  # the same server: the log has no more requests
    assert found[3].passes_share == found[4].passes_share


def test_one_long_last_answer_does_not_decide():
    alone, beside = (best_of(made_up_log(48, 3, last), 8).passes_share for last in (0, 400))
    assert beside == pytest.approx(alone, rel=0.02)


def test_a_log_of_empty_answers_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i}", "output": ""}) + "\n" for i in range(6)))
    with pytest.raises(InputError, match="answer"):
        ngramkit.forecast(path, model="demo")


@pytest.mark.parametrize("drafter", ["recycling", "automaton", "ssd"])
def test_a_drafter_without_its_source_is_not_forecast(log, drafter):
    with pytest.raises(UsageError, match=f"{drafter}.*needs"):
        ngramkit.forecast(log, model="demo", drafter=drafter, store=False)


@pytest.mark.parametrize(
    "sources", [{"store": False}, {"artifacts": Sources(past=PastUse(store=False))}]
)
def test_prompts_are_not_remembered_without_a_store(log, sources):
    with pytest.raises(UsageError, match="no request is remembered"):
        ngramkit.forecast(log, model="demo", prompts=True, **sources)


def test_a_forecast_leaves_a_history_alone(log, tmp_path):
    ngramkit.history_import(log, tmp_path / "past", model="demo")
    (tmp_path / "more.jsonl").write_text(
        "".join(json.dumps({"prompt": "", "output": f"{i} " * 999}) + "\n" for i in range(40))
    )
    ngramkit.history_import(tmp_path / "more.jsonl", tmp_path / "past", model="demo")
    before = {path: path.read_bytes() for path in (tmp_path / "past").iterdir()}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError):
        ngramkit.forecast(log, model="demo", history=tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    past = Sources(past=PastUse(tmp_path / "past"))
    options = {"model": "demo", "concurrency": 2, "pass_cost": 1.05, "limit": 4}
    cold = ngramkit.forecast(log, artifacts=Sources(), **options).best
    warm = ngramkit.forecast(log, artifacts=past, **options).best
    assert warm.passes_share < 0.8 * cold.passes_share
    after = {path: path.read_bytes() for path in (tmp_path / "past").iterdir()}
    assert after == before  # no index is written either
    assert len(History.open(tmp_path / "past").log.read().requests) == 12 + 40


def test_a_forecast_refuses_what_makes_no_sense(log, tmp_path):
    for options, error, said in (
        ({"concurrency": 0}, UsageError, "concurrency must be"),
        ({"budgets": []}, UsageError, "budgets must be"),
        ({"budgets": [65]}, UsageError, "budget must be 1 to 64"),
        ({"pass_cost": 0.5}, UsageError, "pass_cost must be"),
        ({"pass_cost": 9.0}, UsageError, "pass_cost must be"),
        ({"pass_cost": tmp_path / "none.json"}, InputError, "no such profile"),
    ):
        with pytest.raises(error, match=said):
            ngramkit.forecast(log, model="demo", **options)


def relative(times, tokens, context):
    return (times.times(tokens, 1, context) / times.times(np.ones(1))).tolist()


def test_what_a_pass_costs(tmp_path, monkeypatch):
    assert cost_shown(pass_times()) == pytest.approx((1 + 9 / 128) / (1 + 1 / 128))
    for cost in (1.0, 1.5, 4.0):
        times = pass_times(cost)
        assert cost_shown(times) == pytest.approx(cost)
        assert relative(times, np.array([1.0, 9.0]), 0.0) == pytest.approx([1, cost])
    passes = [
        Pass(size, context, (1 + size / 8) * (1 + context / 1000))
        for size in (0, 8, 16) for context in (0, 1000)
    ]  # fmt: skip
    path = tmp_path / "profile.json"
    Profile("m", "cpu", "float32", passes).save(path)
    times = pass_times(path)
    assert cost_shown(times) == pytest.approx(2)
    read = np.array([1.0, 9.0, 33.0, 1.0]), np.array([0.0, 10.0, 0.0, 990.0])
    assert relative(times, *read) == pytest.approx([1, 2, 5, 2])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cost_shown(pass_times("~/profile.json")) == cost_shown(times)
    curve = pass_times({1: 50, 9: 100, 17: 110})
    assert cost_shown(curve) == pytest.approx(2)
    assert relative(curve, *read) == pytest.approx([1, 2, 2.6, 1])
    long = ",".join(f"{tokens}:{50 + tokens}.25" for tokens in range(1, 80))  # no file's name
    assert cost_shown(pass_times(long)) == pytest.approx(59.25 / 51.25)
    Profile("m", "cpu", "float32", passes[:2]).save(path)
    for cost, said in (
        (path, "must have two times"),
        ({1: 50}, "the curve must have two times"),
        ({1: 0, 9: 4}, "the curve must have two times"),
        ({1: float("nan"), 9: 4}, "the curve must have two times"),
        ({0: 1, 9: 4}, "pass_cost must be"),
        (float("nan"), "pass_cost must be"),
    ):
        with pytest.raises(UsageError, match=said):
            pass_times(cost)
