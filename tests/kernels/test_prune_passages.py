"""What passages are worth, against naive twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from twins import passages as reference

from ngramkit.kernels.prune_passages import (
    choose_best_per_token,
    new_wanted,
    raise_worth,
    text_table,
    wanted_rows,
)

FEW = settings(max_examples=80, deadline=None)
ORDERS = (1, 2, 4)
texts = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=5)


def rows_of(arrays, first=0):
    return np.array([(first + i, 0, len(a)) for i, a in enumerate(arrays)], np.int64)


@FEW
@given(texts, texts, texts, st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 40))
def test_choose(some, dearer, passages, joins, budget):
    for dtype in (np.uint16, np.uint32):
        arrays = [np.array(t, dtype) for t in [*some, *dearer, *passages]]
        where = text_table(arrays)
        table = new_wanted(sum(map(len, [*some, *dearer])), ORDERS)
        rows, first = rows_of(arrays), len(some) + len(dearer)
        raise_worth(table, where, rows[len(some) : first], 3, False)
        raise_worth(table, where, rows[: len(some)], 1, False)
        joined = [i > 0 and join for i, join in enumerate(joins[: len(passages)])]
        found = choose_best_per_token(table, where, rows[first:], np.array(joined, bool), budget)
        worths = reference.wanted(some, ORDERS, 1, False)
        worths |= reference.wanted(dearer, ORDERS, 3, False)
        assert found.tolist() == reference.choose(worths, passages, joined, ORDERS, budget)


@FEW
@given(texts, st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1))
def test_wanted_rows(given_texts, grams):
    arrays = [np.array(t, np.uint16) for t in given_texts]
    table = new_wanted(sum(map(len, given_texts)), (2,))
    raise_worth(table, text_table(arrays), rows_of(arrays), 1, True)
    worths = reference.wanted(given_texts, (2,), 1, True)
    found = wanted_rows(table, np.array(grams, np.uint16))
    assert found.tolist() == [worths.get(tuple(gram), 0) for gram in grams]
