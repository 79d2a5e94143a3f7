"""Drafts by measured passes: made-up engines on a fake clock, whose costs are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from zeros import Zeros

from ngramkit.budget.batch import BatchBudget
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.pass_timer import PassTimer, TimedPass
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

PRIOR = ModelCost(24)  # supposed to be nearly free
PASS = 0.01  # seconds of a pass over one token


class Server:
    """An engine of `most` requests at once, each with an answer of `answer` tokens after a prompt.

    A pass takes `seconds(rows, drafted, step)`; the prompts of requests that begin are read in it.
    A drafted token is right with the probability `right` after right ones.
    """

    def __init__(self, seconds, *, most=1, answer=64, right=0.8, wait=0.0, drafting=0.0, **config):
        self.now, self.seconds, self.most, self.answer = 0.0, seconds, most, answer
        self.right, self.wait = right, wait
        self.random = np.random.default_rng(1)

        server = self

        class Slow(Zeros):
            def draft(self, budget):
                server.now += drafting
                return super().draft(budget)

        self.batch = BatchDrafter(
            DrafterSource(Slow, 9), DraftConfig(threads=1, **config),
            cost=PRIOR, clock=lambda: self.now,
        )  # fmt: skip
        self.texts, self.made, self.steps = {}, 0, 0

    def run(self, passes):
        """Return the time over that of the same tokens without drafts, without waits."""
        spent = plain = 0.0
        drafted = []
        for _ in range(passes):
            begun = [n for n in range(self.most) if n not in self.texts]
            if len(begun) == self.most:
                self.now += self.wait
            for n in begun:
                self.made += 1
                self.texts[n] = [self.made % 8 + 1] * 20
            self.now += 30 * PASS * len(begun)
            rows = [np.array(text, np.int32) for text in self.texts.values()]
            before = self.now
            asked = [Asked(20, name=f"request {n}") for n in self.texts]
            chains = self.batch.chain_batch(rows, [8] * len(rows), asked=asked)
            asking = self.now - before
            tokens = sum(map(len, chains))
            drafted.append(tokens / len(rows))
            took = self.seconds(len(rows), tokens, self.steps)
            self.now += took
            spent += took + asking
            written = 0
            for (n, text), chain in zip(list(self.texts.items()), chains, strict=True):
                right = min(int(self.random.geometric(1 - self.right)) - 1, len(chain))
                text += [0] * right + [1]
                written += right + 1
                if len(text) > 20 + self.answer:
                    del self.texts[n]
                    self.batch.sessions.end(f"request {n}")
            plain += self.seconds(len(rows), 0, self.steps) * written / len(rows)
            self.steps += 1
        return spent / plain, float(np.mean(drafted[passes // 2 :]))


def passes(token, *, begun=0.0, noise=0.0, bursts=0, seed=3):
    """Passes of 1 + token * (tokens - 1), and `begun` more with a draft.

    They vary by `noise`, and every other `bursts` passes take four times as long.
    """
    random = np.random.default_rng(seed)

    def seconds(rows, drafted, step):
        took = 1 + token * (rows + drafted - 1) + (begun if drafted else 0)
        varied = float(np.exp(noise * random.standard_normal() - noise**2 / 2))
        return PASS * took * varied * (4 if bursts and step // bursts % 2 else 1)

    return seconds


@pytest.mark.parametrize(("rows", "count", "share"), [(1, 120, 0.4), (8, 60, 0.6), (32, 40, 0.8)])
@pytest.mark.parametrize("how", ["plain", "noise", "bursts", "waits"])
def test_cheap_tokens_are_drafted(rows, count, share, how):
    noise, bursts = {"noise": (0.1, 0), "bursts": (0.05, 17)}.get(how, (0.0, 0))
    seconds = passes(0.02, noise=noise, bursts=bursts)
    server = Server(seconds, most=rows, wait=5.0 if how == "waits" else 0.0)
    server.run(count)
    took, drafted = server.run(count)
    assert took < share
    assert drafted > 0.5


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("of_each_size", [False, True])
def test_passes_in_which_kernels_compile_do_not_end_drafts(rows, of_each_size):
    cheap, compiled = passes(0.02), set()

    def seconds(rows, drafted, step):
        size = drafted.bit_length() if of_each_size else drafted > 0
        compiles = drafted > 0 and size not in compiled
        compiled.add(size)
        return cheap(rows, drafted, step) * (20 if compiles else 1)

    server = Server(seconds, most=rows)
    server.run(30)
    took, drafted = server.run(60)
    assert took < 0.6
    assert drafted > 2


@pytest.mark.parametrize(("rows", "count"), [(1, 200), (8, 100), (32, 50)])
@pytest.mark.parametrize("how", ["plain", "begun", "bursts", "waits"])
def test_dear_tokens_are_not_drafted(rows, count, how):
    seconds = passes(
        1.2 if how != "begun" else 0.6, begun=how == "begun", bursts=17 * (how == "bursts")
    )
    server = Server(seconds, most=rows, wait=5.0 if how == "waits" else 0.0)
    first, _ = server.run(count)
    later, drafted = server.run(count)
    assert first < 1.06
    assert later < 1.04  # of a short run; in a long one trials cost 2 %
    assert drafted < 0.1


def test_more_requests_are_not_supposed_to_share_what_a_draft_costs():
    server = Server(lambda rows, drafted, step: PASS * (1 + 0.9 * rows * (drafted > 0)))
    server.run(200)
    server.most = 8
    took, _ = server.run(60)
    assert took < 1.03


def test_smaller_drafts_are_supposed_to_cost_as_much_as_larger_ones():
    server = Server(passes(0.02, begun=3, noise=0.1), most=8)
    took, _ = server.run(200)
    assert took < 1.04


def test_looking_up_stops_where_it_takes_more_time_than_it_saves():
    server = Server(passes(0.01), right=0.05, drafting=0.2 * PASS)
    server.run(200)
    took, _ = server.run(200)
    assert took < 1.03
    assert server.batch.statistics.paused > 200


def test_a_price_that_changes_is_learnt_again():
    """Tokens become free: the machine was busy, or another kernel serves."""
    dear, free = passes(1.2), passes(0.02)
    server = Server(lambda rows, drafted, step: (dear if step < 300 else free)(rows, drafted, step))
    server.run(300)
    server.run(600)
    took, drafted = server.run(200)
    assert took < 0.5
    assert drafted > 2


def test_a_given_price_or_probability_is_not_learnt():
    seconds = passes(1.5)
    assert Server(seconds, min_probability=0.1).run(40)[1] > 5


def test_rows_that_are_not_drafted_for_count_in_a_pass():
    """vLLM's pass has a row that switched drafts off, or reads its prompt."""
    now, learnt = [0.0], []
    drafter = BatchDrafter(
        DrafterSource(Zeros, 9), DraftConfig(threads=1), cost=PRIOR, clock=lambda: now[0]
    )
    drafter.budget.learn = learnt.append
    asked = [Asked(1, name="drafts"), Asked(0, name="off")]
    for step, read in enumerate((True, True, False, False)):
        now[0] += PASS
        rows = [np.arange(1, 5 + step, dtype=np.int32), np.empty(0, np.int32)]
        sizes = {"drafts": len(rows[0]), "off": 0 if read else 10 + step}
        drafter.chain_batch(rows, [8, 0], asked=asked, sizes=sizes)
    assert [(timed.requests, timed.drafted) for timed in learnt] == [(2, 0)]
    assert learnt[0].seconds == pytest.approx(PASS)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), max_size=12))
def test_only_passes_of_continuing_rows_are_timed(steps):
    """The naive twin: a pass counts if each of its rows wrote 1 to draft + 1 tokens in it."""
    now, drafts = [0.0], [2, 0, 1]
    timer, sizes, last = PassTimer(lambda: now[0]), {}, {}
    for step in steps:
        rows = {n: sizes.get(n, 10) + grown for n, grown in enumerate(step) if grown >= 0}
        now[0] += 1.0
        timed = timer.begin(rows)
        known = [n in last and 1 <= rows[n] - last[n] <= drafts[n] + 1 for n in rows]
        assert (timed is not None) == (bool(rows) and all(known))
        if timed is not None:
            assert timed == (len(rows), sum(drafts[n] for n in rows), 1.0)
        now[0] += 0.5
        assert timer.end(rows, [drafts[n] for n in rows]) == 0.5
        sizes, last = sizes | rows, rows


def test_learnt_times_keep_the_shape_of_the_formula():
    """A machine that is slower by one factor changes nothing; a draft's own cost is found."""
    for factor in (1.0, 7.0):
        budget = BatchBudget(PRIOR, learns=True)
        for drafted, begun in [(0, 0.0), (4, 1.0), (8, 1.0)] * 3:
            budget.least_score_to_draft([8])
            times = PRIOR.times(np.array([1.0, 1.0 + drafted]))
            budget.learn(TimedPass(1, drafted, factor * (times[1] / times[0] + begun)))
        assert budget.least_score_to_draft([8]) >= 0
        budget.account.judge(0.0, 9.0)  # no credit for trials
        assert budget.cut_chains([np.full(8, 0.1, np.float32)]) == [0]
        budget.least_score_to_draft([8])
        assert budget.cut_chains([np.full(8, 0.9, np.float32)]) == [8]


def passes_with_drafts(budget, requests, passes, seconds, chance=0.8, seed=0):
    """Serve requests that write until `passes` are over; return which passes had drafts.

    `seconds(i, drafted)`: the time of the i-th pass. Scores are right: `chance` for each token
    after right ones.
    """
    random, found = np.random.default_rng(seed), []
    scores = (chance ** np.arange(1, 9)).astype(np.float32)
    for i in range(passes):
        budget.least_score_to_draft([8] * requests, 100.0, requests)
        sizes = budget.cut_chains([scores] * requests)
        found.append(sum(sizes) > 0)
        accepted = [min(int(random.geometric(1 - chance)) - 1, size) for size in sizes]
        budget.observe([scores[:size] for size in sizes], accepted)
        took = seconds(i, sum(sizes)) * (1 + 0.05 * random.standard_normal())
        budget.learn(TimedPass(requests, sum(sizes), took))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_drafts_that_pay_for_one_request_stop_for_eight_where_they_are_dear(seed):
    budget = BatchBudget(PRIOR, learns=True)
    alone = passes_with_drafts(
        budget, 1, 60, lambda _, drafted: 0.36 + (0.1 if drafted else 0.0), seed=seed
    )
    assert sum(alone) > 40
    together = passes_with_drafts(
        budget, 8, 120, lambda _, drafted: 0.7 + (2.3 if drafted else 0.0), seed=seed
    )
    assert not together[0]
    assert sum(together) < 10


@pytest.mark.parametrize("seed", range(6))
def test_drafts_stop_when_they_become_dear_and_go_on_when_the_machine_becomes_slow(seed):
    for dearer, slower, stops in ((9.0, 0.0, True), (0.0, 9.0, False)):
        budget = BatchBudget(PRIOR, learns=True)

        def seconds(i, drafted, dearer=dearer, slower=slower):
            return 1.0 + (i >= 60) * (slower + (dearer if drafted else 0.0))

        drafts = passes_with_drafts(budget, 2, 160, seconds, seed=seed)
        assert sum(drafts[:60]) > 50
        assert (sum(drafts[60:]) < 20) == stops
