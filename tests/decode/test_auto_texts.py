"""Texts written with an auto budget: the same as with any other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from calibrated import profile
from scripted import NoisyOracle

from ngramkit.decode.decoder import Decoder
from ngramkit.decode.generate import generate
from ngramkit.decode.kept_costs import profile_path
from ngramkit.decode.options import DecodeOptions
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft


@pytest.mark.parametrize("budget", ["auto", None])
@pytest.mark.parametrize("verify", ["tree", "batch"])
def test_what_is_written_does_not_change(model, budget, verify):
    prompt = np.array([3, 14, 15, 92, 65], np.int32)
    options = DecodeOptions(budget=6, max_new_tokens=30)
    alone = Decoder.settle(model, options)
    plain = alone.decode(alone.request(prompt), NoDraft())
    options = DecodeOptions(budget=budget, verify=verify, max_new_tokens=30)
    decoder = Decoder.settle(model, options)
    assert decoder.shown_budget == "auto"
    for seed in range(4):
        drafter = NoisyOracle(plain.token_ids, 4096, seed)
        drafter.draft = scored_draft(drafter.draft)
        run = decoder.decode(decoder.request(prompt), drafter)
        assert run.token_ids.tolist() == plain.token_ids.tolist()
        assert drafter.accepted == plain.token_ids.tolist()


def test_a_seed_gives_the_same_text_whatever_is_drafted(model):
    """One random number is drawn for each token that is written, none for what was left out."""
    prompt = np.array([3, 14, 15], np.int32)
    options = DecodeOptions(budget=1, max_new_tokens=30, temperature=1.0, seed=5)
    alone = Decoder.settle(model, options)
    plain = alone.decode(alone.request(prompt), NoDraft())
    for budget in (1, 3, 12, "auto"):
        decoder = Decoder.settle(model, replace(options, budget=budget))
        drafter = NoisyOracle(plain.token_ids, 4096, seed=7)
        drafter.draft = scored_draft(drafter.draft)
        run = decoder.decode(decoder.request(prompt), drafter)
        assert run.token_ids.tolist() == plain.token_ids.tolist()
        assert budget in (1, "auto") or run.passes < plain.passes


def test_generate_drafts_what_pays_without_being_asked(model):
    """After a profile by which nodes cost nothing, and without one."""
    ids = torch.tensor([[3, 14, 15, 92, 65]])
    options = {"max_new_tokens": 40, "do_sample": False}
    plain = generate(model, ids, drafter=NoDraft(), budget=1, **options)
    for calibrated in (False, True):
        if calibrated:
            profile(0.0).save(profile_path(model))
        oracle = NoisyOracle(plain[0, 5:].tolist(), 4096)
        oracle.draft = noted(scored_draft(oracle.draft), asked := [])
        assert generate(model, ids, drafter=oracle, **options).tolist() == plain.tolist()
        assert asked
    assert len(asked) < 39


def noted(draft, asked):
    return lambda budget: asked.append(budget) or draft(budget)


def scored_draft(draft):
    def scored(budget):
        tree = draft(budget)
        depth_falls = 0.9 ** np.arange(1, len(tree) + 1)
        return DraftTree(tree.token_ids, tree.parents, depth_falls.astype(np.float32), tree.source)

    return scored
