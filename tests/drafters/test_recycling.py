"""recycling and automaton: published methods over evidence and repetition."""

from __future__ import annotations

import numpy as np
import pytest

from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.base import Evidence, Source
from ngramkit.drafters.create import load_drafter


def ids(*tokens):
    return np.array(tokens, np.int32)


def evidence(**tops):
    """The top-k by token: t7=[8, 9] after token 7."""
    rows = [(int(name[1:]), likely) for name, likely in tops.items()]
    width = len(rows[0][1])
    parents = np.arange(-1, len(rows) - 1, dtype=np.int32)
    log_probs = np.full((len(rows), width), -1, np.float32)
    tokens, likely = zip(*rows, strict=True)
    return Evidence(ids(*tokens), parents, np.array(likely, np.int32), log_probs)


def drafted(drafter, budget=8):
    tree = drafter.draft(budget)
    tree.check()
    assert len(tree) <= budget
    assert np.all((tree.scores > 0) & (tree.scores <= 1))
    return list(zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True)), tree


@pytest.fixture
def recycling():
    drafter = load_drafter("recycling")
    drafter.start(ids(1, 7))
    return drafter


def test_the_top_k_is_drafted_best_first(recycling):
    assert drafted(recycling)[0] == []
    recycling.accept(ids(7), evidence(t7=[8, 9], t8=[5, 6]))
    found, tree = drafted(recycling)
    assert found[:3] == [(8, -1), (5, 0), (9, -1)]
    assert (6, 0) in found
    assert len(found) == 4  # nothing is known after 5, 6 and 9
    assert np.all(np.diff(tree.scores) <= 0)
    assert set(tree.source.tolist()) == {Source.MODEL}


def test_the_newest_row_of_a_token_counts(recycling):
    recycling.accept(ids(7), evidence(t7=[8, 9]))
    recycling.accept(ids(7), evidence(t7=[3, 2]))
    assert [token for token, _ in drafted(recycling)[0]] == [3, 2]


@pytest.mark.parametrize(("keep", "left"), [(True, 2), (False, 0)])
def test_the_matrix_outlives_a_request_with_keep(keep, left):
    drafter = load_drafter("recycling", keep=keep)
    drafter.start(ids(1))
    drafter.accept(ids(7), evidence(t7=[8, 9]))
    drafter.finish()
    drafter.start(ids(4, 7))
    assert len(drafted(drafter)[0]) == left


def test_ids_out_of_any_bounds_are_met_with_no_draft(recycling):
    recycling.accept(ids(1 << 30), evidence(t1073741824=[8, 9], t3=[1 << 30, 2]))
    assert drafted(recycling)[0] == []
    recycling.accept(ids(3))
    assert drafted(recycling)[0] == [(1 << 30, -1), (2, -1)]


def test_a_budget_beyond_the_first_shape(recycling):
    every = {f"t{token}": [(token + i) % 16 for i in range(1, 9)] for token in range(16)}
    recycling.accept(ids(7), evidence(**every))
    assert len(drafted(recycling, 200)[0]) == 200
    assert len(drafted(recycling, 3)[0]) == 3
    assert drafted(recycling, 0)[0] == []


def automaton(text, *datastores, **options):
    drafter = load_drafter("automaton", datastores=datastores, **options)
    drafter.start(ids(*text))
    return drafter


TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5]


def test_a_long_match_gives_one_chain():
    drafter = automaton(TEXT)
    found, tree = drafted(drafter, 3)
    assert found == [(6, -1), (7, 0), (8, 1)]
    assert set(tree.source.tolist()) == {Source.CONTEXT}
    assert drafted(automaton(TEXT, width=2))[0] == [(6, -1), (7, 0)]
    drafter.accept(ids(6, 0))
    assert drafted(drafter)[0] == []


def test_a_short_match_is_left_to_the_matrix():
    drafter = automaton(TEXT, threshold=6)
    assert drafted(drafter)[0] == []
    drafter.accept(ids(0), evidence(t0=[3, 2]))
    assert drafted(drafter)[0] == [(3, -1), (2, -1)]


def test_a_match_in_a_corpus_must_be_longer_by_the_bias(token_store, tmp_path):
    store = build_datastore(token_store([[9, 1, 2, 3, 4, 5, 9, 9]], 12), tmp_path / "d")
    assert drafted(automaton(TEXT, store, bias=0), 1)[0] == [(9, -1)]  # six tokens to five
    found, tree = drafted(automaton(TEXT, store, bias=1), 1)
    assert (found, tree.source.tolist()) == ([(6, -1)], [Source.CONTEXT])
    alone = automaton([9, 1, 2, 3, 4, 5], store, bias=1)
    found, tree = drafted(alone)
    assert (found, set(tree.source.tolist())) == ([(9, -1), (9, 0)], {Source.DATASTORE})


def test_a_text_longer_than_the_first_room():
    line = list(range(100, 3100))
    drafter = automaton(line[:10])
    for begin in range(10, len(line), 500):
        drafter.accept(ids(*line[begin : begin + 500]))
    drafter.accept(ids(*line[:6]))
    assert drafted(drafter, 2)[0] == [(line[6], -1), (line[7], 0)]


def test_along_a_text_the_match_in_a_corpus_is_the_longest(token_store, tmp_path):
    """Its bound falls and rises as tokens come."""
    corpus = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    store = build_datastore(token_store([corpus], 12), tmp_path / "d")
    drafter = automaton([11, 10], store, threshold=3, bias=0, max_match=4)
    for token, following in [(2, None), (3, None), (4, 5), (5, 6), (6, 7), (0, None), (7, None),
                             (8, None), (9, 10)]:  # fmt: skip
        drafter.accept(ids(token))
        found = drafted(drafter, 1)[0]
        assert found == ([] if following is None else [(following, -1)])


def test_options_that_make_no_sense_are_refused():
    for options in ({"threshold": 0}, {"width": 0}, {"bias": -1}, {"keep": 3}):
        with pytest.raises(UsageError):
            load_drafter("automaton", **options)
