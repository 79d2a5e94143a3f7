"""Replay counts passes as decode does."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from ngramkit.basics.progress import SILENT
from ngramkit.builders.datastore import build_datastore
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.context import Context, PromptLookup
from ngramkit.evaluate.bench_contest import tokens_as_spec_bench_counts
from ngramkit.evaluate.leakage import leaked_share, without_leaks
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.replay_loop import draft_chain, replay_drafter, replay_turn
from ngramkit.evaluate.statistics import Reliability
from ngramkit.kernels.suffix.search import shard_table

EOS = 0


def ids(*tokens):
    return np.array(tokens, np.int32)


class Script:
    """A model that goes on as its own last two tokens say; deterministic and repetitive."""

    def __init__(self, seed, vocabulary=12):
        random = np.random.default_rng(seed)
        self.table = random.integers(1, vocabulary, (vocabulary, vocabulary))
        self.vocabulary, self.context = vocabulary, []

    def after(self, context):
        if len(context) >= self.end:
            return EOS
        return int(self.table[context[-2], context[-1]])

    def logits(self, contexts):
        import torch

        rows = torch.zeros(len(contexts), self.vocabulary)
        for row, context in enumerate(contexts):
            rows[row, self.after(context)] = 1
        return rows

    def prefill(self, prompt):
        self.context = prompt.tolist()
        self.end = len(prompt) + 60
        return self.logits([self.context])

    def verify(self, root, tree):
        paths = [[*self.context, root]]
        for token, parent in zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True):
            paths.append([*paths[parent + 1], token])
        self.paths = paths
        return self.logits(paths)

    def keep(self, nodes):
        self.context = self.paths[nodes[-1] + 1 if nodes else 0]

    @property
    def length(self):
        return len(self.context)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("budget", [1, 7, 40])
def test_a_decode_replayed_takes_the_same_passes(token_store, tmp_path, seed, budget):
    random = np.random.default_rng(seed)
    documents = [random.integers(1, 12, 30).tolist() for _ in range(8)]
    datastore = build_datastore(token_store(documents, 12, eos=EOS), tmp_path / "d")

    class Deaf(Blend):
        wants_evidence = False

    for make in (lambda: Deaf([datastore]), Context, PromptLookup):
        prompt = ids(3, 4, 5, 6)
        request = Request(prompt, max_new_tokens=200, budget=budget, eos=frozenset({EOS}))
        done = decode(Script(seed), make(), request)
        assert done.ended_by == "eos"
        tally = replay_turn(make(), Turn(prompt, done.token_ids), budget)
        assert tally.passes == done.passes
        assert tally.tokens == len(done.token_ids) - 1
        assert sorted(tally.lengths.elements()) == sorted(tokens_as_spec_bench_counts(done))
        assert tally.tokens_per_step == pytest.approx(done.tokens_per_step)


class Echo:
    """Drafts what it was told, and counts what it hears."""

    def __init__(self, tree):
        self.tree, self.heard, self.started, self.finished = tree, [], 0, 0

    def start(self, prompt):
        self.started += 1

    def draft(self, budget):
        return self.tree

    def accept(self, tokens, evidence=None):
        self.heard.append(tokens.tolist())

    def finish(self):
        self.finished += 1


def chain(*tokens):
    n = len(tokens)
    return DraftTree(
        ids(*tokens), np.arange(-1, n - 1, dtype=np.int32), np.ones(n, np.float32),
        np.zeros(n, np.uint8),
    )  # fmt: skip


def test_one_bonus_token_per_pass_and_the_first_belongs_to_the_prefill():
    drafter = Echo(chain(7, 8))
    tally = replay_turn(drafter, Turn(ids(1), ids(5, 7, 8, 9, 7, 3, 7)), 4)
    assert drafter.heard == [[5], [7, 8, 9], [7, 3], [7]]
    assert (tally.tokens, tally.passes, tally.empty) == (6, 3, 0)
    assert tally.lengths == {3: 1, 2: 1, 1: 1}  # with the bonus token; the answer ends in a path
    assert (drafter.started, drafter.finished) == (1, 1)


def test_a_chain_is_the_path_that_most_is_expected_of():
    tree = DraftTree(
        ids(7, 8, 9, 5), ids(-1, 0, -1, 2), np.array([0.6, 0.2, 0.5, 0.4], np.float32),
        np.zeros(4, np.uint8),
    )  # fmt: skip
    drafter = Echo(tree)
    assert draft_chain(drafter.draft, 2).token_ids.tolist() == [9, 5]
    assert draft_chain(drafter.draft, 1).token_ids.tolist() == [7]
    tally = replay_turn(drafter, Turn(ids(1), ids(4, 9, 5, 3)), 2, chain=True)
    assert (tally.passes, tally.tokens) == (1, 3)
    assert replay_turn(Echo(tree), Turn(ids(1), ids(4, 7, 8, 3)), 2, chain=True).passes == 3


def test_accepted_nodes_follow_the_record_through_branches():
    tree = DraftTree(
        ids(7, 8, 9, 5), ids(-1, 0, -1, 2), np.ones(4, np.float32), np.zeros(4, np.uint8)
    )
    for written, nodes in (([7, 8, 5], [0, 1]), ([9, 5, 1], [2, 3]), ([4], [])):
        assert tree.accepted_nodes(written) == nodes


def test_state_is_per_question_unless_kept():
    made = []

    def make():
        made.append(Echo(DraftTree.empty()))
        return made[-1]

    turn = Turn(ids(1), ids(2, 3))
    records = [Record("a", "x", [turn, turn]), Record("b", "y", [turn])]
    result = replay_drafter("echo", make, records, 4)
    assert [d.started for d in made if d.started > 1] == [2]
    assert result.total.empty == result.total.passes == 3
    assert {c: t.passes for c, t in result.by_category.items()} == {"x": 2, "y": 1}
    made.clear()
    replay_drafter("echo", make, records, 4, keep_state=True)
    assert [d.started for d in made if d.started > 1] == [3]


def test_reliability_sets_predictions_beside_what_came_true():
    table = Reliability()
    table.add(np.array([0.05, 0.95, 1.0], np.float32), [1])
    low, high = table.rows()
    assert (low["nodes"], low["observed"]) == (1, 0)
    assert (high["nodes"], high["observed"]) == (2, 0.5)
    assert high["predicted"] == pytest.approx(0.975)


def test_an_answer_that_stands_in_the_corpus_is_found(token_store, tmp_path):
    random = np.random.default_rng(0)
    documents = [random.integers(1, 50, 100).tolist() for _ in range(3)]
    datastore = build_datastore(token_store(documents, 50), tmp_path / "d")
    copied, fresh = ids(*documents[1][10:90]), ids(*random.integers(1, 50, 80).tolist())
    shards = shard_table(datastore.shards)
    assert leaked_share(copied, shards) == 1
    assert leaked_share(fresh, shards) == 0
    assert leaked_share(copied[:20], shards) == 0  # too short to tell
    records = [Record("a", "x", [Turn(ids(1), a)]) for a in (fresh, copied)]
    choice = SimpleNamespace(artifacts={"datastores": [datastore]}, recorded_past=None)
    assert without_leaks(records, [choice], True, SILENT)[0] == records[:1]


def test_the_command_prints_one_table_and_the_promised_keys(tmp_path):
    from ngramkit_cli.main import app

    answers = tmp_path / "a.jsonl"
    repeated = "x = x + 1\n" * 12
    asked = [{"prompt": repeated, "output": repeated, "category": kind} for kind in "ab"]
    answers.write_text("".join(json.dumps(each) + "\n" for each in asked))
    picture = tmp_path / "p.png"
    run = CliRunner().invoke(
        app,
        ["replay", "--answers", str(answers), "--drafter", "context", "--drafter", "prompt-lookup",
         "--budget", "4,16", "--json"],
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    results = json.loads(run.stdout.splitlines()[-1])["results"]
    assert [(r["drafter"], r["budget"]) for r in results] == [
        ("context", 4), ("context", 16), ("prompt-lookup", 4), ("prompt-lookup", 16)
    ]  # fmt: skip
    keys = {"tokens", "passes", "tokens_per_step", "draft_us_p50", "draft_us_p99", "by_category"}
    assert keys <= set(results[0])
    assert all(r["tokens_per_step"] > 2 for r in results)
    assert all(sum(r["accepted_lengths"].values()) == r["passes"] for r in results)
    for r in results:  # as Spec-Bench counts: with the bonus token
        assert sum(int(n) * passes for n, passes in r["accepted_lengths"].items()) == r["tokens"]
    run = CliRunner().invoke(
        app,
        ["replay", "--answers", str(answers), "--drafter", "context", "--drafter", "prompt-lookup",
         "--budget", "4,16", "--plot", str(picture)],
    )  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "tokens/step by draft nodes" in run.stdout
    head, *rows = run.stdout.split("by category\n")[1].splitlines()[:3]
    assert head.split() == ["context", "prompt-lookup"]
    assert [row.split()[0] for row in rows] == ["a", "b"]
    answers.write_text(json.dumps(asked[0]))
    alone = CliRunner().invoke(app, ["replay", "--answers", str(answers), "--drafter", "context"])
    assert "by category" not in alone.stdout


def test_a_union_takes_turns_and_merges_what_its_drafters_share():
    from research.union import Union

    other = DraftTree(ids(7, 9), ids(-1, -1), np.full(2, 0.5, np.float32), np.zeros(2, np.uint8))
    union = Union([Echo(chain(7, 8, 6)), Echo(other)])
    tree = union.draft(3)
    tree.check()
    assert (tree.token_ids.tolist(), tree.parents.tolist()) == ([7, 8, 9], [-1, 0, -1])
    assert tree.scores.tolist() == [1, 1, 0.5]
    assert len(Union([Echo(DraftTree.empty())]).draft(5)) == 0
