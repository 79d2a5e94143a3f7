"""`ngramkit.replay` from Python: rows, intervals and representations."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from reporters import Notes

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.drafters.context import Context
from ngramkit.drafters.sources import PastUse, Sources
from ngramkit.evaluate.replay import KeepState
from ngramkit.formats.history import History

SHORT = 'def main(self):\n    """Says it."""\n    return self.name\n'


@pytest.fixture
def answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [
        {"question_id": i, "category": "code", "prompt": "class A:\n", "output": SHORT * (i + 1)}
        for i in range(3)
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_a_replay_has_rows_ratios_and_a_repr(answers):
    results = ngramkit.replay(
        answers,
        model="demo",
        drafters=["context:query=1", "prompt-lookup", Context],
        budgets=[4, 8, 4],
    )
    assert [(r.drafter, r.budget) for r in results][:3] == [
        ("context:query=1", 4), ("context:query=1", 8), ("prompt-lookup", 4),
    ]  # fmt: skip
    rows = list(results.rows())
    assert len(rows) == 3 * 2 * 3
    total = results[0].total
    mine = [row for row in rows if (row["drafter"], row["budget"]) == ("context:query=1", 4)]
    assert [row["question"] for row in mine] == ["0", "1", "2"]
    assert sum(row["tokens"] for row in mine) == total.tokens
    assert sum(row["passes"] for row in mine) == total.passes
    table = results.to_pandas()
    assert len(table) == 3 * 2
    assert table.groupby("drafter").tokens.sum()["Context"] == 2 * total.tokens
    assert table.tokens_per_step[0] == total.tokens_per_step
    assert len(results.questions_to_pandas()) == len(rows)
    pairs = results.ratios()
    assert [(pair.of, pair.to) for pair in pairs] == [
        ("context:query=1", "prompt-lookup"),
        ("context:query=1", "Context"),
        ("prompt-lookup", "Context"),
    ]
    assert all(pair.low is pair.high is None for pair in pairs)  # of three questions
    assert pairs[0].value == pytest.approx(
        results[1].total.tokens_per_step / results[3].total.tokens_per_step
    )
    plain = json.loads(json.dumps(results.to_dict()))
    assert plain["results"][0]["questions"][1] == {
        key: value for key, value in mine[1].items() if key not in ("drafter", "budget")
    }
    assert len(plain["ratios"]) == 6
    assert (plain["template"], plain["records"]) == (None, 3)
    assert repr(results).startswith("<Replays of 3 records; tokens/step at 8 nodes: context:query")
    assert "nodes: " in repr(results[0])


@pytest.fixture(scope="module")
def with_datastore(tmp_path_factory):
    """A working folder in which the first replay builds the datastore that others find."""
    return tmp_path_factory.mktemp("replays")


LIKE = [f"    return self.name_{i}, self.value_{i}\n" * 3 for i in range(4)]


def log(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def steps(answers, drafter="blend", **options):
    """Return {request: tokens/step} in the order replayed."""
    options = {"model": "demo", "drafters": drafter, "budgets": [16], **options}
    (result,) = ngramkit.replay(answers, **options)
    return {row["question"]: row["tokens_per_step"] for row in result.rows()}


def test_a_history_grows_in_the_order_of_time(tmp_path, monkeypatch, with_datastore):
    """For blend, too, which can do without one."""
    monkeypatch.chdir(with_datastore)
    rows = [
        {"id": str(i), "prompt": f"class {chr(65 + i)}:\n", "output": text, "time": 9 - i}
        for i, text in enumerate(LIKE)
    ]
    answers = log(tmp_path / "a.jsonl", *rows)
    alone = steps(answers, artifacts=Sources())
    assert list(alone) == ["3", "2", "1", "0"]
    kept = steps(answers, keep_state=KeepState())
    assert list(kept) == list(alone)
    assert kept["3"] == alone["3"]
    assert all(kept[name] > 1.1 * alone[name] for name in ("1", "0"))
    assert list(steps(answers, keep_state=KeepState(repeat=2))) == list(alone)
    orders = {tuple(steps(answers, "ssd", keep_state=KeepState(seed))) for seed in range(8)}
    assert len(orders) > 1


def test_prompts_join_the_history_by_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": "first", "prompt": LIKE[0], "output": "x\n"},
            {"id": "then", "prompt": "class A:\n", "output": LIKE[0]}]  # fmt: skip
    answers = log(tmp_path / "a.jsonl", *rows)
    outputs = steps(answers, "ssd", keep_state=KeepState())["then"]
    prompts = steps(answers, "ssd", keep_state=KeepState(prompts=True))["then"]
    assert prompts > 1.5 * outputs


def test_a_lines_reference_is_drafted_from(tmp_path, monkeypatch, with_datastore):
    monkeypatch.chdir(with_datastore)
    text = "".join(LIKE)
    plain = {"id": "a", "prompt": "class A:\n", "output": text}
    bare = steps(log(tmp_path / "a.jsonl", plain))["a"]
    answers = log(tmp_path / "b.jsonl", {**plain, "reference": text})
    assert steps(answers)["a"] > 1.5 * bare
    notes = []
    reporter = Reporter()
    reporter.note = notes.append
    steps(answers, "unigram", reporter=reporter)
    assert "unigram drafts without the references of 1 request" in notes


def test_own_drafters_are_compared_on_logs_with_references(tmp_path, with_datastore):
    """One without `references` drafts without them, as rest does."""

    class Own(Context):
        takes_references = False

        def start(self, prompt):
            super().start(prompt)

    notes = []
    reporter = Reporter()
    reporter.note = notes.append
    text = "".join(LIKE)
    answers = log(
        tmp_path / "a.jsonl", {"id": "a", "prompt": "class A:\n", "output": text, "reference": text}
    )
    own = steps(answers, [Own], reporter=reporter)["a"]
    assert "Own drafts without the references of 1 request" in notes
    assert steps(answers, [Context])["a"] > 1.5 * own
    forecast = partial(ngramkit.forecast, answers, model="demo", concurrency=1)
    own, given = (forecast(drafter=each).best.passes_share for each in (Own, Context))
    assert given < own


def test_a_drafter_without_its_source_has_no_figure(answers):
    """It is n/a with the reason, and in no ratio: recycling without evidence is no recycling."""
    drafters = ["context", "recycling", "ssd", "rest", "prompt-lookup"]
    results = ngramkit.replay(answers, model=tokenizer_of_its_own(), drafters=drafters, budgets=[4])
    assert [each.drafter for each in results] == drafters
    plain = json.loads(json.dumps(results.to_dict()))
    for row in plain["results"]:
        name, needs = row["drafter"], row["missing"]
        assert (row["tokens_per_step"] is None) == (needs is not None)
        assert (needs is None) == (name in ("context", "prompt-lookup")), name
    assert [(each["of"], each["to"]) for each in plain["ratios"]] == [("context", "prompt-lookup")]
    assert "recycling n/a" in repr(results)
    assert {row["drafter"] for row in results.rows()} == {"context", "prompt-lookup"}
    learnt = ngramkit.replay(answers, model="demo", drafters="ssd", budgets=[4], keep_state=True)
    assert learnt[0].missing is None
    assert not any(each.interval.startswith("95") for each in learnt.ratios())
    with pytest.raises(UsageError, match=r"ssd: needs past requests"):  # nothing is remembered
        ngramkit.replay(answers, model="demo", drafters="ssd", keep_state=True, store=False)
    with pytest.raises(UsageError, match=r"recycling: needs .*\(evidence\)\n"):
        ngramkit.replay(answers, model="demo", drafters="recycling")
    with pytest.raises(ArtifactError, match="datastore"):
        ngramkit.replay(answers, model=tokenizer_of_its_own(), drafters="rest")


def tokenizer_of_its_own():
    """Return a tokenizer for which there is no artifact, and none is made."""
    tokenizer = load_tokenizer("demo")
    return replace(tokenizer, record=replace(tokenizer.record, id="nobody/knows-it"))


def test_a_result_names_what_was_drafted_from(answers, tmp_path):
    ngramkit.history_import(answers, tmp_path / "past", model="demo")
    (result,) = ngramkit.replay(
        answers, model="demo", drafters="ssd", budgets=[4], history=tmp_path / "past"
    )
    assert result.sources == [str(tmp_path / "past")]
    plain = ngramkit.replay(answers, model="demo", drafters="context", budgets=[4]).to_dict()
    assert [each["path"] for each in plain["provenance"]["files"]] == [str(answers)]
    assert plain["results"][0]["sources"] == []


def test_a_limit_counts_conversations(tmp_path, monkeypatch):
    """Requests of one name are not one conversation; what a conversation said comes with it."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": "x", "prompt": "a = ", "output": f"{i}\n" * 4} for i in range(3)]
    rows += [{"id": "y", "prompt": rows[0]["prompt"] + rows[0]["output"], "output": "b\n" * 4}]
    answers = log(tmp_path / "a.jsonl", *rows)
    one = ngramkit.replay(answers, model="demo", drafters="context", budgets=[4], limit=1)
    all_of_it = ngramkit.replay(answers, model="demo", drafters="context", budgets=[4])
    assert one.leakage.records == 1
    assert all_of_it.leakage.records == 3
    assert (all_of_it.units.name, len(set(all_of_it.units.of))) == ("tasks", 1)


def test_a_kept_state_follows_the_log_across_conversations(tmp_path, monkeypatch):
    """The second turn of a conversation drafts from a request that came between."""
    monkeypatch.chdir(tmp_path)
    text = LIKE[0] + LIKE[1]
    rows = [
        {"id": "a", "prompt": "q = ", "output": "1\n"},
        {"id": "b", "prompt": "c", "output": text},
        {"id": "a", "prompt": "q = 1\nr = ", "output": text},
    ]
    later = [rows[0], rows[2], rows[1]]
    found = [
        steps(log(tmp_path / "a.jsonl", *each), "ssd", keep_state=True) for each in (rows, later)
    ]
    assert found[0]["a"] > 1.5 * found[1]["a"]


def test_answers_in_the_history_are_leaked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": "a = ", "output": LIKE[0] + LIKE[1]}, {"prompt": "b = ", "output": "1\n"}]
    answers, past = log(tmp_path / "a.jsonl", *rows), tmp_path / "past"
    ngramkit.history_import(answers, past, model="demo")
    notes, options = Notes(), {"model": "demo", "artifacts": [], "history": past}
    results = ngramkit.replay(answers, reporter=notes, **options)
    said = "1 of 2 answers (50.0%) occur verbatim in a datastore's corpus or the history"
    assert f"warning: {said}: they flatter the figures; drop_leaked leaves them out" in notes
    assert "corpus or the history<" in results._repr_html_()
    notes = Notes()
    ngramkit.forecast(answers, reporter=notes, **options)
    assert f"warning: {said}: they flatter the figures" in notes
    rest = ngramkit.replay(answers, drop_leaked=True, **options)
    assert (rest.leakage.records, rest.leakage.leaked) == (1, 1)
    assert "verbatim" not in rest._repr_html_()


def test_ssd_needs_requests_that_are_stored(answers):
    options = {"model": "demo", "drafters": ["ssd", "context"], "budgets": [4], "keep_state": True}
    for more in ({"store": False}, {"artifacts": Sources(past=PastUse(store=False))}):
        ssd, _ = ngramkit.replay(answers, **more, **options)
        assert ssd.missing == "needs past requests (history)"
    assert ngramkit.replay(answers, **options)[0].missing is None


def test_a_replay_reads_its_history_once(tmp_path, monkeypatch):
    rows = [{"prompt": f"{n} = ", "output": LIKE[0] + f"{n}\n"} for n in range(3)]
    answers = log(tmp_path / "a.jsonl", *rows)
    ngramkit.history_import(answers, tmp_path / "past", model="demo")
    reads, newest = [], History.newest

    def read(history, capacity):
        reads.append(capacity)
        return newest(history, capacity)

    monkeypatch.setattr(History, "newest", read)
    options = {"model": "demo", "drafters": "ssd", "history": tmp_path / "past"}
    first, _ = results = ngramkit.replay(answers, budgets=[4, 8], **options)
    assert len(reads) == 1
    assert len(results) == 2
    learning = ngramkit.replay(answers, budgets=[4], keep_state=True, **options)
    assert learning[0].total.tokens == first.total.tokens


def test_a_replay_refuses_what_makes_no_sense(answers):
    for options, error, said in (
        ({"drafters": "rest:deep=3"}, UsageError, "unknown option 'deep'"),
        (
            {"drafters": "context", "budgets": [0]},
            UsageError,
            "budget must be 1 to 4096, got 0",
        ),
        ({"drafters": "context", "artifacts": ["nowhere"]}, ArtifactError, "nowhere"),
    ):
        with pytest.raises(error, match=said):
            ngramkit.replay(answers, model="demo", **options)
    with pytest.raises(InputError, match=r"no\.jsonl"):
        ngramkit.replay("no.jsonl", model="demo", drafters="context")


def test_repeated_answers_to_one_prompt_are_one_task(answers):
    kept = ngramkit.replay(
        answers, model="demo", drafters="context", budgets=[4], keep_state=KeepState(repeat=2)
    )
    assert len(list(kept.rows())) == 2 * 3
    assert kept[0].interval.low is None
    assert kept.to_dict()["results"]


@pytest.mark.parametrize("options", [{"format": "vllm"}, {"where": {"model": "a"}}])
def test_options_of_logs_are_refused_where_no_log_is_read(answers, tmp_path, options):
    (tmp_path / "questions.jsonl").write_text('{"question_id": 0, "turns": ["x"]}')
    (name,) = options
    turns = [ngramkit.Turn([1, 2], [3, 4])]
    with pytest.raises(UsageError, match=f"cannot use {name} with Records"):
        ngramkit.replay([ngramkit.Record("a", "b", turns)], model="demo", **options)
    with pytest.raises(UsageError, match=f"cannot use {name} with questions"):
        ngramkit.replay(answers, tmp_path / "questions.jsonl", model="demo", **options)
    with pytest.raises(UsageError, match=f"cannot use {name} with evidence"):
        ngramkit.replay(evidence=tmp_path, **options)


def test_a_template_is_refused_with_evidence(tmp_path):
    with pytest.raises(UsageError, match="cannot use template with evidence"):
        ngramkit.replay(evidence=tmp_path, template="vicuna")
