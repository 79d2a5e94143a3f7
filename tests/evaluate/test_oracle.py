"""What was recorded of a model tells drafters what the model itself would have told them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from reporters import Notes
from typer.testing import CliRunner

import ngramkit
from ngramkit.decode.load import load_model
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.session import Session
from ngramkit.drafters.base import TOPS
from ngramkit.drafters.blend import Blend
from ngramkit.errors import ArtifactError, UsageError
from ngramkit.evaluate.oracle import Oracle
from ngramkit.evaluate.record import asked_model
from ngramkit.evaluate.records import Question
from ngramkit.evaluate.simulation import replay_turn
from ngramkit.formats.evidence import NAME
from ngramkit.progress import SILENT

QUESTIONS = [
    Question(1, "two turns", ["def f(x):\n", "    return\n"]),
    Question("imports", "one", ["import os\nimport sys\nimport os\nimport"]),
]
TOKENS, BUDGET = 24, 12


class Heard(Blend):
    """blend that keeps every draft and all that it was told."""

    def start(self, prompt, references=()):
        super().start(prompt, references)
        self.drafts, self.heard = [], []

    def draft(self, budget):
        tree = super().draft(budget)
        self.drafts.append((budget, tree))
        return tree

    def accept(self, tokens, evidence=None):
        super().accept(tokens, evidence)
        self.heard.append((tokens.tolist(), evidence))


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


@pytest.fixture(scope="module")
def make(model):
    return lambda: Heard(tokenizer=model.tokenizer.record)


def record(model, make, out, **changed):
    options = {"max_new_tokens": TOKENS, "passes": DecodeOptions(budget=BUDGET), **changed}
    return ngramkit.record(QUESTIONS, model, out=out, drafters=make, template="none", **options)


@pytest.fixture(scope="module")
def folder(model, make, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle") / "evidence"
    found = record(model, make, folder)
    assert (found.questions, found.answers) == (2, 3)
    assert found.rows > found.tokens > 0
    return folder


def live(model, drafter, turn, budget):
    task = Session.settle(model, DecodeOptions(budget=budget, max_new_tokens=TOKENS))
    return task.complete(turn.prompt, drafter)


def assert_same_request(one, other):
    """Draft for draft, and told the same of every node."""
    assert len(one.drafts) == len(other.drafts)
    for (budget, a), (same, b) in zip(one.drafts, other.drafts, strict=True):
        assert budget == same
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_array_equal(a.parents, b.parents)
    for (tokens, a), (same, b) in zip(one.heard, other.heard, strict=True):
        assert tokens == same
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a.token_ids, b.token_ids)
            np.testing.assert_array_equal(a.parents, b.parents)
            np.testing.assert_array_equal(a.top_ids, b.top_ids)
            np.testing.assert_allclose(a.top_log_probs, b.top_log_probs, atol=1e-4)


def test_a_replay_takes_the_passes_of_a_live_run(model, make, folder):
    oracle = Oracle.open(folder)
    turns = [turn for each in oracle.records() for turn in each.turns]
    assert len(turns) == 3
    for turn in turns:
        told, heard = make(), make()
        done = live(model, heard, turn, BUDGET)
        witness = oracle.witness(turn)
        tally = replay_turn(told, turn, BUDGET, witness=witness)
        assert done.token_ids.tolist() == turn.answer.tolist()
        assert (tally.passes, tally.tokens) == (done.passes, len(done.token_ids) - 1)
        assert sorted(tally.accepted.elements()) == sorted(done.accepted_per_pass)
        assert witness.misses.missing == 0
        assert_same_request(told, heard)


def test_the_evidence_matters(make, folder):
    """Else the test above would show nothing."""
    oracle = Oracle.open(folder)
    told, alone = make(), make()
    turn = oracle.records()[0].turns[0]
    replay_turn(told, turn, BUDGET, witness=oracle.witness(turn))
    replay_turn(alone, turn, BUDGET)
    drafts = [[tree.token_ids.tolist() for _, tree in each.drafts] for each in (told, alone)]
    assert drafts[0] != drafts[1]


def test_what_is_not_on_record_is_counted_and_not_told(make, folder):
    oracle = Oracle.open(folder)
    turn = oracle.records()[0].turns[0]
    drafter, witness = make(), oracle.witness(turn)
    replay_turn(drafter, turn, 4 * BUDGET, witness=witness)
    nodes = sum(len(tree) + 1 for _, tree in drafter.drafts) + 1
    heard = [evidence for _, evidence in drafter.heard if evidence is not None]
    assert witness.misses.rows == nodes
    assert 0 < witness.misses.missing == nodes - sum(len(e.token_ids) for e in heard)
    for evidence in heard:
        assert evidence.parents[0] == -1
        assert np.all(evidence.parents[1:] < np.arange(1, len(evidence.parents)))
        assert evidence.top_ids.shape == (len(evidence.token_ids), TOPS)


def test_the_model_is_asked_for_what_is_missing_and_that_is_kept(model, make, folder, tmp_path):
    copied = tmp_path / "evidence"
    copied.mkdir()
    for path in folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    oracle = Oracle.open(copied)
    oracle.model = asked_model(oracle.folder, model, SILENT)
    turns = [turn for each in oracle.records() for turn in each.turns]
    for turn in turns:
        told, heard = make(), make()
        replay_turn(told, turn, 3 * BUDGET, witness=oracle.witness(turn))
        live(model, heard, turn, 3 * BUDGET)
        assert_same_request(told, heard)
    before = oracle.rows
    oracle.save()
    again = Oracle.open(copied)
    assert again.rows == before > Oracle.open(folder).rows
    for turn in turns:
        witness = again.witness(turn)
        replay_turn(make(), turn, 3 * BUDGET, witness=witness)
        assert witness.misses.missing == 0


def test_a_record_without_drafts_holds_the_answers_and_the_model_the_rest(model, make, tmp_path):
    found = record(model, "none", tmp_path / "plain")
    assert found.rows == found.tokens  # the prompt's row each, and all but the last token's
    plain, budgets = tmp_path / "plain", [4, BUDGET]
    without = ngramkit.replay(oracle=plain, drafters=make, budgets=budgets)
    assert without[1].misses.missing > 0
    said = Notes()
    asked = ngramkit.replay(
        oracle=plain, model=model, drafters=make, budgets=budgets, reporter=said
    )
    assert "contexts that were not on record" in said
    again = ngramkit.replay(oracle=plain, drafters=make, budgets=budgets)
    for one, other in zip(asked, again, strict=True):
        assert one.misses.missing == other.misses.missing == 0
        assert one.total.passes == other.total.passes


def test_a_record_goes_on_where_it_was(model, make, folder, tmp_path):
    out = tmp_path / "evidence"
    record(model, make, out, limit=1)
    (out / "000009.tmp").write_bytes(b"a killed process was here")
    added = record(model, make, out)
    assert added.answers == 1
    assert Oracle.open(out).rows == Oracle.open(folder).rows
    nothing = record(model, make, out)
    assert (nothing.answers, nothing.rows) == (0, 0)


def test_another_record_is_not_added_to(model, make, folder):
    with pytest.raises(UsageError, match="recorded with max_new_tokens=24, not 25"):
        record(model, make, folder, max_new_tokens=25)
    with pytest.raises(UsageError, match="passes of one size"):
        record(model, make, folder, passes=DecodeOptions(budget="auto"))


def test_another_model_is_not_asked(model, folder):
    oracle = Oracle.open(folder)
    with pytest.raises(UsageError, match="was recorded of demo, not of other"):
        asked_model(oracle.folder, replace(model, name="other"), SILENT)


def test_replays_with_an_oracle_have_its_answers(folder):
    with pytest.raises(UsageError, match="has its own answers"):
        ngramkit.replay("answers.jsonl", oracle=folder)
    with pytest.raises(UsageError, match="nothing to replay"):
        ngramkit.replay()
    with pytest.raises(ArtifactError, match="no recorded evidence"):
        ngramkit.replay(oracle=folder.parent)


def test_a_replay_without_an_oracle_says_who_hears_nothing(tmp_path):
    answers = tmp_path / "a.jsonl"
    answers.write_text(json.dumps({"prompt": "def f(x):", "output": " return x"}) + "\n")
    said = Notes()
    drafters = ["recycling", "prompt-lookup"]
    results = ngramkit.replay(answers, drafters=drafters, budgets=[4], reporter=said)
    assert "without an oracle recycling hears nothing of what the model says" in said.lines
    assert results[0].total.tokens_per_step == 1


def test_the_commands(tmp_path):
    from ngramkit_cli.main import app

    out = tmp_path / "evidence"
    line = ["record", "--out", str(out), "--drafter", "blend", "--budget", "8", "--limit", "1",
            "--max-new-tokens", "12", "--json"]  # fmt: skip
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout.splitlines()[-1])["answers"] == 1
    assert (out / NAME).exists()
    line = ["replay", "--oracle", str(out), "--drafter", "blend", "--budget", "8,16", "--json"]
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 0, run.output
    small, large = json.loads(run.stdout.splitlines()[-1])["results"]
    assert small["oracle"]["missing"] == 0
    assert large["oracle"]["rows"] > small["oracle"]["rows"]
    assert "were not on record" in run.stderr
