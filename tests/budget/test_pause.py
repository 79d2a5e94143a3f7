"""Pauses of a drafter whose drafts do not pay."""

from __future__ import annotations

import itertools

import pytest

from ngramkit.budget.pause import CAUTION, FIRST_ASKED, FIRST_LOSS, LONGEST, MOST_CREDIT, Pause


def passes(pause, outcome, count):
    """The tokens lost by drafting, and in which of `count` passes there was a draft."""
    lost, drafted = 0.0, []
    for i in range(count):
        if pause.opens():
            gained, spent, drafting = outcome(i)
            pause.judge(gained, spent, drafting)
            lost += spent - gained
            drafted.append(i)
    return lost, drafted


@pytest.mark.parametrize("drafting", [0.001, 0.01, 0.05, 0.3])
def test_drafting_for_nothing_costs_little(drafting):
    lost, drafted = passes(Pause(), lambda i: (0, drafting, drafting), 3000)
    assert lost < FIRST_ASKED + 0.011 * 3000
    assert len(drafted) > 10


def test_pauses_are_as_long_as_a_trial_is_dear_and_grow_while_trials_fail():
    _, drafted = passes(Pause(), lambda i: (0, 0.1, 0.1), 190)
    pauses = [after - before - 1 for before, after in itertools.pairwise(drafted)]
    assert pauses == [*[0] * 3, 4, 8, *[16] * 10]
    _, drafted = passes(Pause(), lambda i: (0, 99.0, 99.0), 5000)
    assert drafted[1] == LONGEST + 1


def test_drafts_that_failed_must_promise_more():
    pause = Pause()
    found = [pause.caution]
    for _ in range(3):
        pause.judge(0, FIRST_LOSS + 1, 0.0)
        found.append(pause.caution)
    pause.judge(FIRST_LOSS + 1, 0.5, 0.0)
    assert [*found, pause.caution] == [1, 1 + CAUTION, 1 + 2 * CAUTION, 1 + 2 * CAUTION, 1]


def test_one_that_helps_always_drafts():
    _, drafted = passes(Pause(), lambda i: (1.0, 0.3, 0.1), 100)
    assert len(drafted) == 100


def test_what_was_earned_outlasts_a_bad_spell_but_not_a_long_one():
    spell = int(MOST_CREDIT / 0.5)
    _, drafted = passes(Pause(), lambda i: (5.0 if i < 10 else 0.0, 0.5, 0.01), 10 + 3 * spell)
    assert drafted[: 10 + spell] == list(range(10 + spell))
    assert len(drafted) < 10 + 2 * spell


def test_one_that_helps_again_drafts_again():
    pause = Pause()
    passes(pause, lambda i: (0, 0.5, 0.05), 400)
    _, drafted = passes(pause, lambda i: (2.0, 0.3, 0.05), 200)
    assert drafted[0] <= 80
    assert drafted == list(range(drafted[0], 200))


def test_a_new_request_drafts_at_once():
    pause = Pause()
    passes(pause, lambda i: (0, 2.0, 0.5), 100)
    assert not pause.opens()
    pause.begin()
    assert pause.opens()
