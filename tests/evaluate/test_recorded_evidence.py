"""A replay with a top-k record gives drafters the evidence that the model would give them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import doc_pages
import numpy as np
import pytest
import torch
from reporters import Notes
from typer.testing import CliRunner

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.progress import SILENT
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.drafters.base import MAX_EVIDENCE_TOKENS
from ngramkit.drafters.blend import Blend
from ngramkit.evaluate.bench_contest import tokens_as_spec_bench_counts
from ngramkit.evaluate.record import RECORDED_BUDGET as NODES, verifying_model
from ngramkit.evaluate.recorded_evidence import Misses, RecordedEvidence
from ngramkit.evaluate.records import Question
from ngramkit.evaluate.replay_figures import Replay
from ngramkit.evaluate.replay_loop import replay_turn
from ngramkit.evaluate.statistics import Units
from ngramkit.formats.evidence import NAME, read_batch

QUESTIONS = [
    Question(1, "two turns", ["def f(x):\n", "    return\n"]),
    Question("imports", "one", ["import os\nimport sys\nimport os\nimport"]),
]
TOKENS, BUDGET = 24, 12


class Logged(Blend):
    """blend that keeps every draft and all evidence that it was given."""

    def start(self, prompt, references=()):
        super().start(prompt, references)
        self.drafts, self.accepted = [], []

    def draft(self, budget):
        tree = super().draft(budget)
        self.drafts.append((budget, tree))
        return tree

    def accept(self, tokens, evidence=None):
        super().accept(tokens, evidence)
        self.accepted.append((tokens.tolist(), evidence))


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


@pytest.fixture(scope="module")
def make(model):
    return lambda: Logged(tokenizer=model.tokenizer.record)


def record(model, make, out, **changed):
    options = {"max_new_tokens": np.int64(TOKENS), "budget": BUDGET, **changed}
    return ngramkit.record(QUESTIONS, model, out=out, drafters=make, template="none", **options)


@pytest.fixture(scope="module")
def folder(model, make, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "evidence"
    recording = record(model, make, folder)
    assert (recording.questions, recording.answers) == (2, 3)
    assert recording.rows > recording.tokens > 0
    return folder


def test_the_command_s_help_names_the_size_of_its_passes():
    options = {option.name: option for option in dict(doc_pages.leaves())["record"].params}
    assert options["budget"].metavar == "N"
    assert f"Default: {NODES}." in options["budget"].help


def live(model, drafter, turn, budget):
    task = Decoder.settle(model, DecodeOptions(budget=budget, max_new_tokens=TOKENS))
    return task.decode(task.request(turn.prompt), drafter)


def assert_same_request(one, other):
    """Assert the same drafts, and the same evidence of every node."""
    assert len(one.drafts) == len(other.drafts)
    for (budget, a), (same, b) in zip(one.drafts, other.drafts, strict=True):
        assert budget == same
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_array_equal(a.parents, b.parents)
    for (tokens, a), (same, b) in zip(one.accepted, other.accepted, strict=True):
        assert tokens == same
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a.token_ids, b.token_ids)
            np.testing.assert_array_equal(a.parents, b.parents)
            np.testing.assert_array_equal(a.top_ids, b.top_ids)
            np.testing.assert_allclose(a.top_log_probs, b.top_log_probs, atol=1e-4)


def test_a_replay_takes_the_passes_of_a_live_run(model, make, folder):
    recorded = RecordedEvidence.open(folder)
    turns = [turn for each in recorded.answers() for turn in each.turns]
    assert len(turns) == 3
    for turn in turns:
        replayed, decoded = make(), make()
        done = live(model, decoded, turn, BUDGET)
        evidence = recorded.evidence_of(turn)
        tally = replay_turn(replayed, turn, BUDGET, recorded=evidence)
        assert done.token_ids.tolist() == turn.answer.tolist()
        assert (tally.passes, tally.tokens) == (done.passes, len(done.token_ids) - 1)
        assert sorted(tally.lengths.elements()) == sorted(tokens_as_spec_bench_counts(done))
        assert evidence.misses.missing == 0
        assert_same_request(replayed, decoded)


def test_evidence_changes_drafts(make, folder):
    """Else the test above would show nothing."""
    recorded = RecordedEvidence.open(folder)
    replayed, alone = make(), make()
    turn = recorded.answers()[0].turns[0]
    replay_turn(replayed, turn, BUDGET, recorded=recorded.evidence_of(turn))
    replay_turn(alone, turn, BUDGET)
    drafts = [[tree.token_ids.tolist() for _, tree in each.drafts] for each in (replayed, alone)]
    assert drafts[0] != drafts[1]


def test_contexts_that_are_not_on_record_are_counted_and_give_no_evidence(make, folder):
    recorded = RecordedEvidence.open(folder)
    turn = recorded.answers()[0].turns[0]
    drafter, evidence = make(), recorded.evidence_of(turn)
    replay_turn(drafter, turn, 4 * BUDGET, recorded=evidence)
    nodes = sum(len(tree) + 1 for _, tree in drafter.drafts) + 1
    given = [each for _, each in drafter.accepted if each is not None]
    assert evidence.misses.rows == nodes
    assert 0 < evidence.misses.missing == nodes - sum(len(e.token_ids) for e in given)
    for each in given:
        assert each.parents[0] == -1
        assert np.all(each.parents[1:] < np.arange(1, len(each.parents)))
        assert each.top_ids.shape == (len(each.token_ids), MAX_EVIDENCE_TOKENS)


def test_the_model_verifies_what_is_missing_and_that_is_saved(model, make, folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "evidence")
    recorded = RecordedEvidence.open(copied)
    recorded.model = verifying_model(recorded.folder, model, SILENT)
    turns = [turn for each in recorded.answers() for turn in each.turns]
    for turn in turns:
        replayed, decoded = make(), make()
        replay_turn(replayed, turn, 3 * BUDGET, recorded=recorded.evidence_of(turn))
        live(model, decoded, turn, 3 * BUDGET)
        assert_same_request(replayed, decoded)
    before = recorded.rows
    recorded.save()
    again = RecordedEvidence.open(copied)
    assert again.rows == before > RecordedEvidence.open(folder).rows
    for turn in turns:
        evidence = again.evidence_of(turn)
        replay_turn(make(), turn, 3 * BUDGET, recorded=evidence)
        assert evidence.misses.missing == 0


def test_rows_that_the_model_adds_are_those_of_plain_passes(model, make, folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "evidence")
    recorded = RecordedEvidence.open(copied)
    recorded.model = verifying_model(recorded.folder, model, SILENT)
    batches = set(copied.iterdir())
    for turn in [turn for each in recorded.answers() for turn in each.turns]:
        replay_turn(make(), turn, 3 * BUDGET, recorded=recorded.evidence_of(turn))
    recorded.save()
    checked = 0
    (added,) = set(copied.iterdir()) - batches
    for stored in read_batch(added):
        for row in range(0, len(stored.tokens), 7):
            path, at = [], row
            while stored.parents[at] >= 0:
                path.append(int(stored.tokens[at]))
                at = stored.parents[at]
            ids = torch.tensor([[*stored.prompt.tolist(), *reversed(path)]])
            with torch.inference_mode():
                logits = model.model(ids).logits[0, -1]
            top_ids = torch.from_numpy(stored.top_ids[row].astype(np.int64))
            expected = logits.log_softmax(-1)[top_ids]
            np.testing.assert_allclose(stored.top_log_probs[row], expected, atol=1e-4)
            checked += 1
    assert checked > 10


def test_a_record_without_drafts_holds_the_answers_and_the_model_the_rest(model, make, tmp_path):
    found = record(model, "none", tmp_path / "plain")
    assert found.rows == found.tokens  # the prompt's row each, and all but the last token's
    plain, budgets = tmp_path / "plain", [4, BUDGET]
    without = ngramkit.replay(evidence=plain, drafters=make, budgets=budgets)
    assert without[1].misses.missing > 0
    notes = Notes()
    asked = ngramkit.replay(
        evidence=plain, model=model, drafters=make, budgets=budgets, reporter=notes
    )
    assert "contexts that were not on record" in notes
    again = ngramkit.replay(evidence=plain, drafters=make, budgets=budgets)
    for one, other in zip(asked, again, strict=True):
        assert one.misses.missing == other.misses.missing == 0
        assert one.total.passes == other.total.passes


def test_a_record_goes_on_where_it_was(model, make, folder, tmp_path):
    out = tmp_path / "evidence"
    record(model, make, out, limit=1)
    (out / "000009.tmp").write_bytes(b"a killed process was here")
    added = record(model, make, out)
    assert added.answers == 1
    assert RecordedEvidence.open(out).rows == RecordedEvidence.open(folder).rows
    notes = Notes()
    nothing = record(model, make, out, reporter=notes)
    assert f"resuming: 3 answers in {out}" in notes  # of 2 questions, one with 2 turns
    assert (nothing.answers, nothing.rows) == (0, 0)
    verified = Notes()
    ngramkit.replay(
        evidence=out, model=model, drafters=make, budgets=[4 * BUDGET], reporter=verified
    )
    assert "contexts that were not on record" in verified  # more files of the same answers
    notes = Notes()
    record(model, make, out, reporter=notes)
    assert f"resuming: 3 answers in {out}" in notes


def test_a_drafter_over_other_artifacts_is_another_one(model, tmp_path):
    for name, text in (("one", "import os\nimport sys\n"), ("other", "import re\n")):
        ngramkit.build_datastore([20 * text], tmp_path / name, model="demo")
        for again in (False, True):
            added = record(model, "rest", tmp_path / "out", datastores=[tmp_path / name])
            assert added.answers == 3 * (not again)
    moved = (tmp_path / "other").rename(tmp_path / "moved")
    assert record(model, "rest", tmp_path / "out", datastores=[moved]).answers == 0


def test_drafts_from_a_history_are_for_the_owner_only(model, tmp_path):
    few = {"limit": 1, "max_new_tokens": 1}
    for _ in range(2):
        record(model, "none", tmp_path / "plain", **few)
        assert (tmp_path / "plain").stat().st_mode & 0o077
    record(model, "none", tmp_path / "plain", history=tmp_path / "past", **few)
    assert not (tmp_path / "plain").stat().st_mode & 0o077


def test_another_record_is_not_added_to(model, make, folder):
    with pytest.raises(UsageError, match="recorded with max_new_tokens=24, not 25"):
        record(model, make, folder, max_new_tokens=25)
    with pytest.raises(UsageError, match="budget must be"):
        record(model, make, folder, budget="auto")


def test_questions_with_one_text_are_all_replayed(model, tmp_path):
    twice = [QUESTIONS[1], Question(7, "both", [QUESTIONS[1].turns[0], "    return\n"])]
    out = tmp_path / "twice"
    ngramkit.record(twice, model, out=out, template="none", max_new_tokens=8, drafters="none")
    records = RecordedEvidence.open(out).answers()
    assert [(each.name, each.category) for each in records] == [("imports", "one"), ("7", "both")]
    assert [len(each.turns) for each in records] == [1, 2]
    first, second = (each.turns[0] for each in records)
    assert np.array_equal(first.answer, second.answer)


def test_another_question_with_a_recorded_id_is_refused(model, folder):
    other = [QUESTIONS[0], Question("imports", "one", ["import re\n"])]
    with pytest.raises(UsageError, match="its question imports has another text"):
        ngramkit.record(other, model, out=folder, template="none", max_new_tokens=TOKENS)


def test_another_model_is_refused(model, folder):
    recorded = RecordedEvidence.open(folder)
    with pytest.raises(UsageError, match="demo, got other"):
        verifying_model(recorded.folder, replace(model, name="other"), SILENT)


def test_a_top_k_record_has_its_own_answers(folder):
    with pytest.raises(UsageError, match="with evidence"):
        ngramkit.replay("answers.jsonl", evidence=folder)
    with pytest.raises(UsageError, match="answers must be given"):
        ngramkit.replay()
    with pytest.raises(ArtifactError, match="no recorded evidence"):
        ngramkit.replay(evidence=folder.parent)


def test_a_tokenizer_verifies_nothing(model, folder):
    for tokenizer in (model.tokenizer, model.tokenizer.record):
        with pytest.raises(UsageError, match="must be the recorded model") as caught:
            ngramkit.replay(evidence=folder, model=tokenizer, drafters="context")
        assert type(tokenizer).__name__ in str(caught.value)


def test_answers_are_read_by_a_tokenizer_or_a_model_that_has_one(model, folder, tmp_path):
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"prompt": "import os\\n", "output": "import sys\\nimport re\\n"}\n')
    by_model, by_tokenizer = (
        ngramkit.replay(answers, model=each, drafters="context", budgets=[4])
        for each in (model, model.tokenizer)
    )
    assert by_model[0].total.tokens == by_tokenizer[0].total.tokens > 0
    with pytest.raises(UsageError, match="model must have a tokenizer to read answers"):
        ngramkit.replay(answers, model=model.tokenizer.record)


def test_figures_without_much_of_the_evidence_are_marked_and_in_no_ratio():
    found = Replay("recycling", 8, misses=Misses(1000, 620))
    found.total.count(2, empty=False)
    assert not found.comparable
    assert "62%" in found.incomplete
    assert found.to_dict()["incomplete"] == found.incomplete
    found.units, found.by_record, found.categories = Units("x"), [found.total] * 9, ["a"] * 9
    assert found.interval_of("a").low is None
    found = replace(found, misses=Misses(1000, 10))
    assert found.interval_of("a").low == 2
    assert found.incomplete is None
    assert found.comparable


def test_the_commands(tmp_path):
    from ngramkit_cli.main import app

    out = tmp_path / "evidence"
    line = ["record", "--out", str(out), "--drafter", "blend", "--budget", "8", "--limit", "1",
            "--max-new-tokens", "12", "--json"]  # fmt: skip
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout.splitlines()[-1])["answers"] == 1
    assert (out / NAME).exists()
    line = ["replay", "--evidence", str(out), "--drafter", "blend", "--budget", "8,16", "--json"]
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 0, run.output
    small, large = json.loads(run.stdout.splitlines()[-1])["results"]
    assert small["evidence"]["missing"] == 0
    assert large["evidence"]["rows"] > small["evidence"]["rows"]
    assert large["incomplete"] is not None
