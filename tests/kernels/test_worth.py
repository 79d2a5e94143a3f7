"""What passages are worth, against naive twins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import reference_worth as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramkit.kernels.worth import choose, new_wanted, text_table, want, wanted_rows

FEW = settings(max_examples=80, deadline=None)
ORDERS = (1, 2, 3)
SHARES = [[60, 15, 6, 3], [120, 30, 13, 7], [240, 60, 26, 15]]
texts = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=5)


def rows_of(arrays, first=0):
    return np.array([(first + i, 0, len(a)) for i, a in enumerate(arrays)], np.int64)


@FEW
@given(texts, texts, st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 40))
def test_choose(given_texts, passages, joins, budget):
    for dtype in (np.uint16, np.uint32):
        arrays = [np.array(t, dtype) for t in [*given_texts, *passages]]
        where = text_table(arrays)
        table = new_wanted(sum(map(len, given_texts)), ORDERS)
        rows = rows_of(arrays)
        want(table, where, rows[: len(given_texts)], 3)
        joined = [i > 0 and join for i, join in enumerate(joins[: len(passages)])]
        found = choose(
            table,
            where,
            rows[len(given_texts) :],
            np.array(joined, bool),
            np.array(SHARES, np.int64),
            budget,
        )
        wanted = Counter()
        for text in given_texts:
            for gram, times in reference.grams(text, ORDERS).items():
                wanted[gram] += 3 * times
        expected = reference.choose(wanted, passages, joined, list(ORDERS), SHARES, budget)
        assert found.tolist() == expected


@FEW
@given(texts, st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1))
def test_wanted_rows(given_texts, grams):
    arrays = [np.array(t, np.uint16) for t in given_texts]
    table = new_wanted(sum(map(len, given_texts)), (2,))
    want(table, text_table(arrays), rows_of(arrays), 1)
    wanted = Counter()
    for text in given_texts:
        wanted += reference.grams(text, (2,))
    found = wanted_rows(table, np.array(grams, np.uint16))
    assert found.tolist() == [wanted[tuple(gram)] for gram in grams]
