"""The paired bootstrap against a naive twin, and what it means."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ngramkit.evaluate import statistics
from ngramkit.evaluate.statistics import Units, rate_interval, ratio_with_interval, ratios


def naive(of, to):
    """Draw questions one by one, in plain Python."""
    questions = len(of[0])
    drawn = np.random.default_rng(statistics.RESAMPLING_SEED).integers(
        questions, size=(statistics.RESAMPLES, questions)
    )
    found = []
    for row in drawn.tolist():
        sums = [sum(column[i] for i in row) for column in (*of, *to)]
        found.append(sums[0] / sums[1] / (sums[2] / sums[3]))
    found.sort()

    def percentile(p):
        place = (len(found) - 1) * p / 100
        low = math.floor(place)
        return found[low] + (place - low) * (found[min(low + 1, len(found) - 1)] - found[low])

    whole = sum(of[0]) / sum(of[1]) / (sum(to[0]) / sum(to[1]))
    return whole, percentile(2.5), percentile(97.5)


@pytest.mark.parametrize(("questions", "seed"), [(5, 0), (6, 1), (17, 2)])
def test_as_the_naive_twin(questions, seed):
    random = np.random.default_rng(seed)
    columns = random.integers(1, 90, size=(4, questions)).tolist()
    found = ratio_with_interval(("a", *columns[:2]), ("b", *columns[2:]))
    wanted = naive(columns[:2], columns[2:])
    assert (found.value, found.low, found.high) == pytest.approx(wanted)


def test_pairs_are_surer_than_their_parts():
    """Questions differ tenfold, drafters by a fifth on each: that is what the interval is about."""
    passes = np.random.default_rng(0).integers(10, 100, size=80)
    tokens = (passes * np.linspace(1, 10, 80)).astype(int)
    better = ratio_with_interval(("a", tokens * 6 / 5, passes), ("b", tokens, passes))
    assert better.low == pytest.approx(1.2)
    assert better.high == pytest.approx(1.2)
    alone = ratio_with_interval(("a", tokens, passes), ("one", passes, passes))
    assert alone.high - alone.low > 0.5
    assert str(better) == "a / b: 1.200 (1.200 to 1.200, 95 % over 80 questions)"


def test_nothing_counted_is_no_number_and_no_crash():
    nothing = ratio_with_interval(("a", [0] * 5, [0] * 5), ("b", [2] * 5, [1] * 5))
    assert math.isnan(nothing.value)
    plain = json.loads(json.dumps(nothing.to_dict(), allow_nan=False))
    assert plain == {"of": "a", "to": "b", "value": None, "low": None, "high": None,
                     "interval": "95 % over 5 questions"}  # fmt: skip


def test_of_too_few_questions_there_is_no_interval():
    few = ratio_with_interval(("a", [3.0] * 4, [2.0] * 4), ("b", [1.0] * 4, [1.0] * 4))
    assert (few.value, few.low, few.high) == (1.5, None, None)
    assert "fewer than 5 questions" in str(few)


def test_questions_without_a_pass_do_not_count():
    some = rate_interval([6, 4, 5, 7, 9, 0, 0, 0], [3, 2, 1, 2, 3, 0, 0, 0])
    assert some == rate_interval([6, 4, 5, 7, 9], [3, 2, 1, 2, 3])
    assert some.over == "95 % over 5 questions"
    assert "fewer" in rate_interval([6, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]).over


def test_rows_of_one_task_are_drawn_together():
    """20 samples each of 10 tasks say as much as 10 tasks: calls are not independent."""
    random = np.random.default_rng(1)
    tasks = np.repeat(np.arange(10), 20)
    passes = np.full(200, 50)
    tokens = passes * np.repeat(random.uniform(1, 3, 10), 20)
    alone = ratio_with_interval(("a", tokens, passes), ("b", passes, passes), Units("calls"))
    together = ratio_with_interval(
        ("a", tokens, passes), ("b", passes, passes), Units("tasks", tasks.tolist())
    )
    assert together.value == pytest.approx(alone.value)
    assert together.interval == "95 % over 10 tasks"
    assert together.high - together.low > 3 * (alone.high - alone.low)


def test_rows_that_depend_on_each_other_have_no_interval():
    columns = [2] * 80, [1] * 80
    one = ratio_with_interval(
        ("a", *columns), ("b", *columns), Units("conversations", dependent=True)
    )
    assert (one.value, one.low, one.high) == (1, None, None)
    assert "depend" in str(one)
    pairs = ratios([("a", *columns), ("b", *columns), ("c", *columns)], dependent=[1, 0, 0])
    assert [pair.low is None for pair in pairs] == [True, True, False]
