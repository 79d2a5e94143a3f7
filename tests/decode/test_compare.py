"""Two runs in turns: each writes what it writes alone, and pays for its own passes only."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import NoisyOracle
from test_loop import Chain, TableVerifier, run
from transformers import GenerationConfig

import ngramkit.decode.compare as compare_module
from ngramkit.decode.answer import Answer
from ngramkit.decode.compare import (
    Comparison,
    Parting,
    compare,
    in_lockstep,
    parting_of,
    plain_model,
)
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.loop import Run
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.request import Request
from ngramkit.decode.result import Clock, Decoded
from ngramkit.drafters.registry import NoDraft
from ngramkit_cli.decode_cmd import show_comparison

PROMPT = np.array([7, 8, 9], np.int32)
PASS = 10.0  # what a clock says that every look at a model takes


class Timed(TableVerifier):
    """Every pass takes PASS of the shared time, and is noted."""

    def __init__(self, name, time, order):
        super().__init__()
        self.name, self.time, self.order = name, time, order

    def prefill(self, prompt):
        self.passed()
        return super().prefill(prompt)

    def verify(self, root, tree):
        self.passed()
        return super().verify(root, tree)

    def passed(self):
        self.time[0] += PASS
        self.order.append(self.name)


def two(new_tokens):
    time, order = [0.0], []
    runs = [
        Run(Timed("drafted", time, order), Chain(), Request(PROMPT, new_tokens, 4)),
        Run(Timed("alone", time, order), NoDraft(), Request(PROMPT, new_tokens, 4)),
    ]
    for each in runs:
        each.clock = Clock(lambda: time[0])
    return runs, order


def test_both_write_what_they_write_alone():
    runs, _ = two(20)
    drafted, alone = in_lockstep(runs)
    one, other = run(Chain()), run(NoDraft())
    assert drafted.token_ids.tolist() == alone.token_ids.tolist() == one.token_ids.tolist()
    assert drafted.nodes_per_pass == one.nodes_per_pass
    assert alone.nodes_per_pass == other.nodes_per_pass


def test_the_one_that_has_written_less_goes_on():
    runs, order = two(12)
    in_lockstep(runs)
    # Prefills; five tokens at once against one by one, until both have as many.
    assert order == ["drafted", "alone", "drafted", *["alone"] * 5, "drafted", *["alone"] * 5,
                     "drafted", "alone"]  # fmt: skip


def test_a_clock_stands_while_it_is_the_others_turn():
    runs, order = two(20)
    for each, done in zip(("drafted", "alone"), in_lockstep(runs), strict=True):
        assert done.seconds == PASS * order.count(each)
        assert done.prefill_seconds == PASS
        assert done.verify_seconds == PASS * done.passes


def test_ctrl_c_is_raised_and_drafters_are_told():
    drafter = Chain()
    runs = [
        Run(TableVerifier(), drafter, Request(PROMPT, 20, 4)),
        Run(TableVerifier(interrupt_after=2), NoDraft(), Request(PROMPT, 20, 4)),
    ]
    with pytest.raises(KeyboardInterrupt):
        in_lockstep(runs)
    assert drafter.finished == 1
    assert drafter.heard == list(range(10, 10 + len(drafter.heard)))


def test_a_comparison_is_of_one_round_and_of_the_same_text(demo):
    task = Decoder.settle(demo, DecodeOptions(budget=4, max_new_tokens=12))
    prompt = np.arange(20, 28, dtype=np.int32)
    text = task.undrafted().decode(task.request(prompt), NoDraft()).token_ids
    found = compare(task, prompt, lambda: NoisyOracle(text, 4096, seed=0), rounds=2)
    assert found.identical
    assert found.baseline.passes == 11
    assert found.drafted.passes < 11
    assert found.speedup == found.baseline.seconds / found.drafted.seconds
    assert len(found.rounds) == 2
    assert found.speedup in found.rounds
    low, high = sorted(found.rounds)
    assert found.shown_speedup == f"{found.speedup:.2f} ({low:.2f} to {high:.2f})"
    alone = compare(task, prompt, lambda: NoisyOracle(text, 4096, seed=0), rounds=1)
    assert alone.shown_speedup == f"{alone.speedup:.2f}"


def test_sampled_texts_may_part_where_rounding_decides_the_draw(demo, monkeypatch):
    task = Decoder(demo, DecodeOptions(temperature=0.7, seed=4, max_new_tokens=6), "tree", 4)
    prompt = np.arange(20, 28, dtype=np.int32)
    run = task.undrafted().decode(task.request(prompt), NoDraft())
    text = run.token_ids.copy()
    text[3] = 9 if text[3] == 8 else 8
    found = Comparison(replace(run, token_ids=text), run)
    parting = parting_of(found, task, prompt)
    assert (parting.index, parting.near_tie) == (3, False)
    monkeypatch.setattr(compare_module, "NEAR_TIE", 1e9)
    found = replace(found, parting=parting_of(found, task, prompt))
    assert found.parting.near_tie
    assert found.speedup == 1
    assert "rounding decides" in " ".join(show_comparison(found, greedy=False))


class Tied:
    """Logits after every text, in bfloat16."""

    dtype = torch.bfloat16
    device = torch.device("cpu")
    generation_config = GenerationConfig()

    def __init__(self, logits):
        self.logits = torch.tensor(logits).to(self.dtype)

    def __call__(self, input_ids, **_):
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


@pytest.mark.parametrize(
    ("logits", "dtype", "near"),
    [
        ([20.0, 20.25, 1.0], torch.bfloat16, True),  # two units in the last place
        ([20.0, 22.0, 1.0], torch.bfloat16, False),  # many
        ([20.0, 20.0, 30.0], torch.bfloat16, False),  # alike, but neither is the likeliest
        ([20.0, 20.0, 1.0], torch.float32, False),
    ],
)
def test_texts_may_part_only_at_a_near_tie_of_a_16_bit_model(demo, logits, dtype, near):
    model = Tied(logits)
    model.dtype = dtype
    task = Decoder(LanguageModel("tied", model, demo.tokenizer), DecodeOptions(), "tree", 4)
    run = Decoded(3, np.array([2, 2, 0, 2], np.int32), [0, 0, 0], "length", 1.0, 0.1, 0.0, 0.9, [1])
    other = replace(run, token_ids=np.array([2, 2, 1, 1], np.int32), seconds=2.0)
    found = Comparison(run, other, generate=replace(run, seconds=3.0))
    parting = parting_of(found, task, PROMPT)
    assert (parting.index, parting.of, parting.near_tie) == (2, "no drafts", near)
    assert parting.ours != parting.theirs
    found = replace(found, parting=parting)
    assert not found.identical
    ratios = found.speedup, found.over_generate, found.undrafted_over_generate
    assert ratios == ((2.0, 3.0, 1.5) if near else (None, None, None))
    assert (found.shown_speedup == "n/a") is not near
    choice = SimpleNamespace(label="rest", names=())
    facts = Answer("", run, "tied", choice, None, 4, None, found).to_dict()
    assert facts["lossless"] is facts["identical"] is False
    said = " ".join(show_comparison(found, greedy=True))
    assert ("speed-up 2.00, texts differ" in said) is near
    assert ("--dtype float32" in said) is near


def test_speed_ups_are_of_tokens_if_a_near_tie_ends_one_text_early():
    run = Decoded(3, np.arange(9, dtype=np.int32), [0] * 8, "length", 3.0, 0.1, 0.0, 2.9)
    short = replace(run, token_ids=np.array([0, 1, 5], np.int32), ended_by="eos", seconds=2.0)
    parting = Parting(2, "a", "b", "no drafts", near_tie=True)
    found = Comparison(run, short, generate=short, parting=parting)
    assert found.speedup == found.over_generate == 2.0
    assert found.undrafted_over_generate == 1.0


def test_a_near_tie_is_judged_by_the_length_that_the_answer_may_have(demo, monkeypatch):
    monkeypatch.setattr(demo.model.generation_config, "forced_eos_token_id", 5)
    monkeypatch.setattr(compare_module, "NEAR_TIE", 1e9)
    task = Decoder(demo, DecodeOptions(temperature=0.7, max_new_tokens=6), "tree", 4)
    prompt = np.arange(20, 28, dtype=np.int32)
    run = task.undrafted().decode(task.request(prompt), NoDraft())
    assert run.token_ids[-1] == 5
    text = run.token_ids.copy()
    text[3] = 9 if text[3] == 8 else 8
    assert parting_of(Comparison(replace(run, token_ids=text), run), task, prompt).near_tie


def test_generate_takes_turns_with_the_same_threads(demo):
    task = Decoder.settle(demo, DecodeOptions(budget=4, max_new_tokens=8))
    prompt = np.arange(20, 28, dtype=np.int32)
    order = []
    plain = plain_model(task)
    hooks = [
        model.register_forward_hook(
            lambda *_, name=name: order.append((name, torch.get_num_threads()))
        )
        for name, model in (("ours", demo.model), ("generate", plain.model))
    ]
    try:
        found = compare(task, prompt, NoDraft, rounds=1, plain=plain)
    finally:
        for hook in hooks:
            hook.remove()
    assert found.identical
    assert found.generate.same_tokens(found.drafted)
    passes = "".join(name[0] for name, _ in order)
    assert passes.endswith("ooggoo" + "goo" * 6) or passes.endswith("oog" + "goo" * 6 + "goo")
    assert len({threads for _, threads in order}) == 1
