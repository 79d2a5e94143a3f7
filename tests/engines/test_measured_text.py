"""One text at a time, drafted for by time: made-up engines whose costs are known."""

from __future__ import annotations

import numpy as np
import pytest
from zeros import Zeros

from ngramkit.basics.errors import UsageError
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.pass_timer import PassTimer
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource
from ngramkit.engines.llama_cpp import Drafter

PASS = 0.01  # seconds of one without a draft


class Engine:
    """Passes of 1 + n * cost + begun, where any draft costs `begun`, over a text of which the share
    `zeros` are zeros."""

    def __init__(self, cost, zeros=0.8, begun=0.0, asked=0.0):
        self.now, self.cost, self.begun, self.zeros = 0.0, cost, begun, zeros
        self.asked = asked  # seconds that pass while a drafter is asked
        self.batch = BatchDrafter(
            DrafterSource(Zeros, 9), DraftConfig(threads=1), cost=ModelCost(24), clock=self.clock
        )
        self.random = np.random.default_rng(1)

    def clock(self):
        self.now += self.asked
        return self.now

    def write(self, count, first=1):
        """Return the drafts' lengths, and the time of a token in passes without drafts."""
        text = np.where(self.random.random(count + 9) < self.zeros, 0, first).astype(np.int32)
        self.now += 300 * PASS  # a prompt is read
        lengths, at, time = [], 1, 0.0
        while at < count:
            n = len(self.batch.chain_batch([text[:at]], [8])[0])
            right = int(np.cumprod(text[at : at + n] == 0).sum())
            time += 1 + n * self.cost + (self.begun if n else 0)
            self.now += PASS * (1 + n * self.cost + (self.begun if n else 0))
            lengths.append(n)
            at += right + 1
        return lengths, time / (at - 1)


@pytest.mark.parametrize(("cost", "length", "time"), [(0.03, 6, 0.35), (0.3, 1, 0.85)])
def test_drafts_that_pay_are_drafted(cost, length, time):
    lengths, took = Engine(cost).write(800)
    assert lengths[0] == 0  # nothing is known of passes
    assert np.mean(lengths[50:]) > length
    assert took < time


@pytest.mark.parametrize(
    ("cost", "zeros", "begun"),
    [(0.6, 0.8, 1.0), (1.5, 0.8, 0.0), (0.95, 0.8, 0.0), (0.4, 0.2, 0.0)],  # the last are too few
)
def test_where_no_draft_pays_almost_none_is_tried(cost, zeros, begun):
    engine = Engine(cost, zeros, begun)
    _, first = engine.write(64)
    _, later = engine.write(640, first=2)
    assert first < 1.09
    assert later < 1.02


def test_drafts_whose_scores_are_too_low_are_drafted_too():
    """By its scores a draft pays for one token, by its acceptance for more."""
    lengths, took = Engine(0.5, zeros=0.99).write(800)
    assert np.mean(lengths[-50:]) > 2.5
    assert took < 0.75


def test_time_before_another_text_or_after_a_prompt_is_no_pass():
    now = [0.0]
    timer, found = PassTimer(lambda: now[0]), []
    steps = [  # a text's name, its tokens, seconds until then
        (0, 3, 9.0), (0, 4, 0.01), (0, 24, 7.0), (0, 25, 0.01), (1, 5, 8.0), (1, 6, 0.01),
        (0, 26, 5.0), (0, 27, 0.01), (0, 20, 6.0), (0, 21, 0.01), (0, 21, 4.0), (0, 22, 0.01),
    ]  # fmt: skip
    for text, size, seconds in steps:
        now[0] += seconds
        if (timed := timer.begin({text: size})) is not None:
            found.append(timed.seconds)
        timer.end({text: size}, [0])
    assert found == pytest.approx([0.01] * 6)


def test_verified_tokens_are_counted():
    engine = Engine(0.3)
    lengths, _ = engine.write(400)
    counts = engine.batch.statistics
    assert counts.rows == len(lengths)
    assert counts.draft_tokens == sum(lengths)
    assert 0 < counts.accepted_tokens < counts.draft_tokens
    assert counts.requests == 1


def test_a_pause_updates_the_session_now_and_then():
    engine = Engine(1.5, asked=0.1 * PASS)
    engine.write(900)
    counts = engine.batch.statistics
    assert counts.paused > 0.7 * counts.rows
    assert counts.requests == 1  # the text was found again


def test_the_configuration_turns_timing_off():
    config = {"drafter": "context", "vocabulary": 9}
    for given, by_time in [
        ({}, True), ({"clock": True}, True),
        ({"clock": False}, False), ({"min_probability": 0.2}, False),
    ]:  # fmt: skip
        drafter = Drafter(DraftConfig.parse(config | given))
        assert drafter.timed == by_time, given
    with pytest.raises(UsageError, match="clock of the configuration must be true or false"):
        DraftConfig.parse({"clock": 1})
    with pytest.raises(UsageError, match="cannot use clock with sglang"):
        DraftConfig.parse(config | {"clock": True}).refuse_keys_of_other_engines("sglang")
