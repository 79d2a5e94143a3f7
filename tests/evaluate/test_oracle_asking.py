"""What drafters lack is asked in large passes: of every context, what the model says after it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Config

import ngramkit
from ngramkit.decode.load import load_model
from ngramkit.decode.masks import TreeMasks
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.drafters.base import NOTHING, DraftTree
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.recycling import Recycling
from ngramkit.evaluate import record
from ngramkit.evaluate.oracle import UNKNOWN, Branches, Forest, Known, Oracle, by_place, in_parts
from ngramkit.evaluate.record import ask, asked_model
from ngramkit.evaluate.records import Question
from ngramkit.evaluate.simulation import replay_drafter
from ngramkit.formats.evidence import About
from ngramkit.progress import SILENT

QUESTIONS = [Question(1, "code", ["import os\nimport sys\nimport os\nimport", "def f(x):\n"])]
TOKENS, BUDGETS = 16, (3, 9)


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


@pytest.fixture(params=["branches", "small parts", "place by place"])
def oracle(request, model, tmp_path, monkeypatch):
    """Of two turns, answered without drafts; its model is asked in one way of three."""
    if request.param == "small parts":
        monkeypatch.setattr(record, "MOST_ROWS", 7)
    passes = DecodeOptions(budget=4)
    ngramkit.record(QUESTIONS, model, out=tmp_path / "evidence", drafters="none",
                    template="none", max_new_tokens=TOKENS, passes=passes)  # fmt: skip
    found = Oracle.open(tmp_path / "evidence")
    found.model = asked_model(found.folder, model, SILENT)
    if request.param == "place by place":
        monkeypatch.setattr(record, "TreeVerifier", BatchVerifier)
    return found


def test_nothing_is_missing_after_it_was_asked_for(model, oracle):
    makers = [lambda: Blend(tokenizer=model.tokenizer.record), Recycling]
    before, records = oracle.rows, oracle.records()
    (added,) = ask(oracle, records, makers, BUDGETS)
    assert added == oracle.rows - before > 0
    oracle.save()
    again = Oracle.open(oracle.folder.path)
    for make in makers:
        for budget in BUDGETS:
            found = replay_drafter("it", make, records, budget, oracle=again)
            assert found.misses.missing == 0
            assert found.total.tokens == 2 * (TOKENS - 1)
    assert list(ask(oracle, records, makers, BUDGETS)) == [0]


def test_what_is_said_is_what_plain_passes_say(model, oracle):
    list(ask(oracle, oracle.records(), [Recycling], BUDGETS))
    oracle.save()
    checked = 0
    for told in oracle.folder.requests():
        for row in range(0, len(told.tokens), 7):
            path, at = [], row
            while told.parents[at] >= 0:
                path.append(told.tokens[at])
                at = told.parents[at]
            ids = torch.tensor([[*told.prompt.tolist(), *map(int, reversed(path))]])
            with torch.inference_mode():
                logits = model.model(ids).logits[0, -1]
            expected = logits.log_softmax(-1)[torch.from_numpy(told.top_ids[row].astype(np.int64))]
            np.testing.assert_allclose(told.top_log_probs[row], expected, atol=1e-4)
            checked += 1
    assert checked > 10


def test_an_oracle_takes_in_what_others_added(oracle):
    other = Oracle.open(oracle.folder.path)
    list(ask(oracle, oracle.records(), [Recycling], BUDGETS))
    oracle.save()
    assert other.rows < oracle.rows
    other.refresh()
    assert other.rows == oracle.rows
    before = sorted(path.name for path in oracle.folder.path.iterdir())
    other.save()
    oracle.refresh()
    assert sorted(path.name for path in oracle.folder.path.iterdir()) == before


def test_an_oracle_without_a_model_is_not_asked(oracle):
    oracle.model = None
    with pytest.raises(ValueError, match="no model"):
        list(ask(oracle, oracle.records(), [Recycling], BUDGETS))


trees = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=12)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.lists(trees, max_size=6), st.data())
def test_a_forest_asks_once_for_every_context_that_is_missing(text, drafts, data):
    """Tokens of few kinds, so that drafts meet each other and the text."""
    prompt, written = np.array([9], np.int32), np.array(text, np.int32)
    known = Known(About("", "", 0, "", 1), prompt, NOTHING)
    said = np.zeros(1, np.int32), np.zeros(1, np.float32)
    spine = [known.add(UNKNOWN, 9, *said)]
    for token in text:
        spine.append(known.add(spine[-1], token, *said))
    forest, expected = Forest(known, written, spine), set()
    for draft in drafts:
        begin = data.draw(st.integers(1, len(text)))
        tokens, parents = [], []
        for token, parent, _ in draft:
            above = min(parent, len(tokens)) - 1
            if (above, token) not in zip(parents, tokens, strict=True):  # siblings are distinct
                tokens.append(token)
                parents.append(above)
        scores, source = np.zeros(len(tokens), np.float32), np.zeros(len(tokens), np.uint8)
        tree = DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32), scores, source)
        rows = known.rows_of(spine[begin - 1], text[begin - 1], tree)[1:]
        forest.add(begin, tree, rows)
        paths = [tuple(text[:begin])]
        for token, parent, row in zip(tokens, parents, rows, strict=True):
            paths.append((*paths[parent + 1], token))
            expected |= {paths[-1]} if row == UNKNOWN else set()
    branches, order = forest.ordered()
    asked = _contexts(branches, text)
    assert sorted(asked) == sorted(expected)
    for split in (list(in_parts(branches, 4)), list(by_place(branches))):
        assert [path for part in split for path in _contexts(part, text)] == asked
    count = len(asked)
    ids, before = np.arange(count, dtype=np.int32)[:, None], len(known)
    forest.put(order, ids, np.zeros((count, 1), np.float32))
    assert len(known) == before + count
    for number, path in enumerate(asked):
        row = known.root
        for token in path:
            row = known.child(row, token)
        empty = DraftTree.empty()
        assert known.evidence(path[-1], [row], empty, 16).top_ids.tolist() == [[number]]


def _contexts(branches: Branches, text):
    """What stands before and at every wanted node."""
    paths = []
    for token, parent, after in zip(*branches[:3], strict=True):
        paths.append((*(paths[parent] if parent >= 0 else text[:after]), int(token)))
    return [path for path, wanted in zip(paths, branches.wanted, strict=True) if wanted]


def test_a_branch_sees_the_text_before_it_and_itself_within_the_window():
    config = Qwen2Config(
        num_hidden_layers=2, sliding_window=3, use_sliding_window=True,
        layer_types=["full_attention", "sliding_attention"],
    )  # fmt: skip
    masks = TreeMasks(config, torch.float32, torch.device("cpu"))
    parents, after = np.array([-1, 0, -1], np.int32), np.array([2, 2, 4], np.int32)
    positions, both = masks.of_branches(5, parents, after)
    assert positions.tolist() == [[2, 3, 4]]
    seen = {kind: (mask[0, 0] == 0).int().tolist() for kind, mask in both.items()}
    assert seen["full_attention"] == [
        [1, 1, 0, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 0, 1, 1, 0],
        [1, 1, 1, 1, 0, 0, 0, 1],
    ]
    assert seen["sliding_attention"] == [
        [1, 1, 0, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0, 0, 0, 1],
    ]
