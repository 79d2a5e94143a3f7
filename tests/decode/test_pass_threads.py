"""PassThreads of passes: fewer where others keep cores busy, all again when they do not."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import NoisyOracle

from ngramkit.decode import decoder
from ngramkit.decode.compare import compare
from ngramkit.decode.decoder import Decoder
from ngramkit.decode.options import DecodeOptions
from ngramkit.decode.pass_threads import (
    MAX_PAUSE,
    MAX_SHARE_FOR_TRIALS,
    MIN_PAUSE,
    SLOW_PASS,
    PassThreads,
    seconds_with_threads,
)
from ngramkit.drafters.registry import NoDraft

QUIET, BUSY = {1: 2.0, 2: 1.0, 3: 0.7, 4: 0.5}, {1: 2.0, 2: 1.0, 3: 9.0, 4: 9.0}


@pytest.fixture
def four():
    """A process with four threads, a clock and a machine; the trials that were made."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    made = SimpleNamespace(at=0.0, takes=0.0, machine=QUIET, trials=[])

    def trial(count, most, limit):
        made.at += made.takes
        made.trials.append(count)
        return made.machine[count]

    made.threads = PassThreads(lambda: made.at, trial)
    yield made
    torch.set_num_threads(before)


def test_a_quiet_machine_gets_all(four):
    four.threads.begin()
    assert four.trials == [2, 3, 4]
    for _ in range(100):
        four.threads.adapt(0.05)
    assert torch.get_num_threads() == 4
    assert len(four.trials) == 3


def test_a_busy_one_gets_fewer_and_torch_has_all_between_requests(four):
    four.machine = BUSY
    four.threads.begin()
    assert torch.get_num_threads() == 2
    four.threads.end()
    assert torch.get_num_threads() == 4
    four.threads.begin()  # what was chosen a moment ago still holds
    assert torch.get_num_threads() == 2
    assert len(four.trials) == 3
    four.machine, four.at = QUIET, MAX_PAUSE
    four.threads.adapt(0.05)
    assert torch.get_num_threads() == 4


def test_a_slow_pass_is_time_for_a_look(four):
    four.threads.begin()
    four.threads.adapt(0.05)
    four.at = MIN_PAUSE
    four.threads.adapt(0.05)
    four.machine, four.at = BUSY, MIN_PAUSE * 1.9
    four.threads.adapt(0.05 * SLOW_PASS * 1.5)  # the last one was a moment ago
    assert torch.get_num_threads() == 4
    four.at = MIN_PAUSE * 2
    four.threads.adapt(0.05)
    assert torch.get_num_threads() == 4
    four.threads.adapt(0.05 * SLOW_PASS * 2)
    assert torch.get_num_threads() == 2


def test_looks_become_rare_while_nothing_changes(four):
    four.threads.begin()
    for step in range(1000):
        four.at = step * MIN_PAUSE / 10
        four.threads.adapt(0.05)
    assert len(four.trials) / 3 < 100 * MIN_PAUSE / MAX_PAUSE + 4


def test_dear_looks_are_rarer_still(four):
    four.takes = 0.1
    four.threads.begin()
    four.at += 0.3 / MAX_SHARE_FOR_TRIALS - 0.1
    four.threads.adapt(0.05)
    assert len(four.trials) == 3
    four.at += 0.2
    four.threads.adapt(0.05)
    assert len(four.trials) == 6


def test_a_small_gain_changes_nothing(four):
    four.machine = {2: 0.9, 3: 1.0, 4: 1.0}
    four.threads.begin()
    assert torch.get_num_threads() == 4


def test_somebody_elses_choice_is_the_most_from_then_on(four):
    four.threads.begin()
    four.threads.end()
    torch.set_num_threads(1)
    four.threads.begin()
    four.at = 100.0
    four.threads.adapt(9.0)
    four.threads.end()
    assert torch.get_num_threads() == 1
    assert len(four.trials) == 3


def test_a_number_that_was_tried_is_somebody_elses_choice_too(four):
    four.machine = BUSY
    four.threads.begin()
    four.threads.end()
    torch.set_num_threads(2)  # what a busy machine was given a moment ago
    four.threads.begin()
    four.threads.end()
    assert torch.get_num_threads() == 2
    four.threads.begin()
    torch.set_num_threads(3)  # while a request is answered
    four.threads.adapt(0.05)
    four.threads.end()
    assert torch.get_num_threads() == 3


def test_a_trial_takes_time():
    before = torch.get_num_threads()
    whole, part = seconds_with_threads(1, 1, inf), seconds_with_threads(1, 1, 0.0)
    assert 0 < part < whole
    torch.set_num_threads(before)


def test_runs_are_the_same_and_leave_torch_its_threads(monkeypatch, four, demo):
    monkeypatch.setattr(decoder, "pass_threads", lambda: four.threads)
    task = Decoder.settle(demo, DecodeOptions(max_new_tokens=6))
    prompt = np.arange(20, 28, dtype=np.int32)
    text = task.undrafted().decode(task.request(prompt), NoDraft()).token_ids
    four.machine, four.at = BUSY, 100.0
    found = compare(task, prompt, lambda: NoisyOracle(text, 4096, seed=0), rounds=2)
    assert found.identical
    assert torch.get_num_threads() == 4
    assert len(four.trials) == 6
