"""Two runs in turns: each writes what it writes alone, and pays for its own passes only."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import NoisyOracle
from test_loop import Chain, TableVerifier, run

from ngramkit.decode.compare import compare, in_lockstep
from ngramkit.decode.loop import Request, Run
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.result import Clock
from ngramkit.decode.session import Session
from ngramkit.drafters.registry import NoDraft

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
    task = Session.settle(demo, DecodeOptions(budget=4, max_new_tokens=12))
    prompt = np.arange(20, 28, dtype=np.int32)
    text = task.undrafted().complete(prompt, NoDraft()).token_ids
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
