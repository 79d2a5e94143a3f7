"""What passes cost is kept between processes, for the same model on the same machine."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from tiny_models import tiny_model

from ngramkit.budget.costs import PassCosts
from ngramkit.budget.profile import Pass, Profile
from ngramkit.decode.kept_costs import KEPT_AFTER, keep_costs, learnt_costs


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def learn(model, passes=KEPT_AFTER) -> PassCosts:
    costs = learnt_costs(model, "tree")
    for i in range(passes):
        rows = (0, 4, 16)[i % 3]
        costs.learn(rows, 100, 0.01 * (1 + rows))
    keep_costs(model, "tree", costs)
    return costs


def test_another_process_begins_with_what_was_learnt():
    costs = learn(tiny_model("llama"))
    again = learnt_costs(tiny_model("llama"), "tree")
    np.testing.assert_allclose(again.at(100)[[0, 4, 16]], costs.at(100)[[0, 4, 16]], rtol=0.02)
    assert again.unit(100) == pytest.approx(0.01)


def test_a_few_passes_are_not_written():
    learn(tiny_model("llama"), KEPT_AFTER - 1)
    assert learnt_costs(tiny_model("llama"), "tree").unit(100) == 0.0


def test_other_threads_or_another_way_to_verify_know_nothing(monkeypatch):
    learn(tiny_model("llama"))
    assert learnt_costs(tiny_model("llama"), "chain").unit(100) == 0.0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert learnt_costs(tiny_model("llama"), "tree").unit(100) == 0.0


@pytest.mark.parametrize("text", ["", "[", "[]", '{"3": {"0": 1e999}}', '{"3": 1}', "\x00"])
def test_a_damaged_file_is_as_none(text, tmp_path):
    learn(tiny_model("llama"))
    (file,) = (tmp_path / "ngramkit" / "costs").iterdir()
    file.write_text(text)
    assert learnt_costs(tiny_model("llama"), "tree").unit(100) == 0.0


def test_the_file_holds_seconds_by_context_and_rows(tmp_path):
    learn(tiny_model("llama"))
    (file,) = (tmp_path / "ngramkit" / "costs").iterdir()
    ((_, sizes),) = json.loads(file.read_text()).items()
    assert {int(size) for size in sizes} == {0, 4, 16}


def test_costs_live_as_long_as_the_model():
    model, profile = tiny_model("llama"), Profile("", "", "", [Pass(0, 10, 0.01)])
    costs = learnt_costs(model, "tree")
    assert learnt_costs(model, "tree") is costs
    assert learnt_costs(model, "batch") is not costs
    assert learnt_costs(model, "batch").most > costs.most
    assert learnt_costs(model, "tree", profile) is not costs
    assert learnt_costs(tiny_model("llama"), "tree") is not costs
    assert learnt_costs(model.to(torch.bfloat16), "tree") is not costs
    held = weakref.ref(costs)
    del costs, model
    gc.collect()
    assert held() is None
