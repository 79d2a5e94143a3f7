"""Pauses of a drafter whose drafts do not pay."""

from __future__ import annotations

import pytest

from ngramkit.budget.pause import INITIAL_CREDIT, TRIAL_SHARE, Pause


def passes(pause, outcome, count):
    """The tokens lost by drafting, and in which of `count` passes there was a draft."""
    lost, drafted = 0.0, []
    for i in range(count):
        if pause.opens():
            gained, spent = outcome(i)
            pause.judge(gained, spent)
            lost += spent - gained
            drafted.append(i)
    return lost, drafted


@pytest.mark.parametrize("spent", [0.001, 0.05, 0.5, 5.0])
def test_drafting_for_nothing_costs_little(spent):
    lost, drafted = passes(Pause(), lambda i: (0, spent), 3000)
    assert lost <= INITIAL_CREDIT + spent + TRIAL_SHARE * 3000
    assert len(drafted) > 10


def test_a_dearer_trial_is_followed_by_a_longer_pause():
    _, drafted = passes(Pause(), lambda i: (0, 3.0), 400)
    assert drafted[1] == 1 + int((3.0 - INITIAL_CREDIT) / TRIAL_SHARE)
    assert drafted[2] - drafted[1] == 1 + int(3.0 / TRIAL_SHARE)


def test_a_drafter_that_helps_always_drafts():
    _, drafted = passes(Pause(), lambda i: (1.0, 0.3), 100)
    assert len(drafted) == 100


def test_earned_credit_outlasts_a_bad_spell_but_not_a_long_one():
    spell = int(4 * INITIAL_CREDIT / 0.5)
    _, drafted = passes(Pause(), lambda i: (5.0 if i < 10 else 0.0, 0.5), 10 + 3 * spell)
    assert drafted[: 10 + spell] == list(range(10 + spell))
    assert len(drafted) < 10 + 2 * spell


def test_a_drafter_that_helps_again_drafts_again():
    pause = Pause()
    passes(pause, lambda i: (0, 0.5), 400)
    _, drafted = passes(pause, lambda i: (2.0, 0.3), 200)
    assert drafted[0] <= 0.5 / TRIAL_SHARE
    assert drafted == list(range(drafted[0], 200))


def test_a_new_request_drafts_at_once():
    pause = Pause()
    passes(pause, lambda i: (0, 2.5), 100)
    assert not pause.opens()
    pause.begin()
    assert pause.opens()
