"""The paired bootstrap against a naive twin, and what it means."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ngramkit.evaluate import statistics
from ngramkit.evaluate.statistics import ratio


def naive(of, to, seed):
    """Draw questions one by one, in plain Python."""
    questions = len(of[0])
    drawn = np.random.default_rng(seed).integers(questions, size=(statistics.RESAMPLES, questions))
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
    found = ratio(("a", *columns[:2]), ("b", *columns[2:]), seed=seed)
    wanted = naive(columns[:2], columns[2:], seed)
    assert (found.value, found.low, found.high) == pytest.approx(wanted)


def test_pairs_are_surer_than_their_parts():
    """Questions differ tenfold, drafters by a fifth on each: that is what the interval is about."""
    passes = np.random.default_rng(0).integers(10, 100, size=80)
    tokens = (passes * np.linspace(1, 10, 80)).astype(int)
    better = ratio(("a", tokens * 6 / 5, passes), ("b", tokens, passes))
    assert better.low == pytest.approx(1.2)
    assert better.high == pytest.approx(1.2)
    alone = ratio(("a", tokens, passes), ("one", passes, passes))
    assert alone.high - alone.low > 0.5
    assert str(better) == "a / b: 1.200 (1.200 to 1.200)"


def test_nothing_counted_is_no_number_and_no_crash():
    nothing = ratio(("a", [0] * 5, [0] * 5), ("b", [2] * 5, [1] * 5))
    assert math.isnan(nothing.value)
    plain = json.loads(json.dumps(nothing.to_dict(), allow_nan=False))
    assert plain == {"of": "a", "to": "b", "value": None, "low": None, "high": None}


def test_of_too_few_questions_there_is_no_interval():
    few = ratio(("a", [3.0] * 4, [2.0] * 4), ("b", [1.0] * 4, [1.0] * 4))
    assert (few.value, few.low, few.high) == (1.5, None, None)
    assert str(few) == "a / b: 1.500 (fewer than 5 questions)"
