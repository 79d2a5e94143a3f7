"""Cacheback against OrderedDicts: the same trees after any sequence of accepted tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from twins.cacheback import Cacheback as Twin, frozen_table

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.frozen import build_frozen
from ngramkit.drafters.base import Source
from ngramkit.drafters.cacheback import Cacheback, DynamicTable
from ngramkit.drafters.options import CachebackOptions

TOKENS = st.lists(st.integers(0, 4), max_size=30)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 5, 12, 64]), st.lists(st.integers(0, 4), min_size=1, max_size=6)
    ),
    max_size=25,
)
NAMES = {"dynamic": Source.DYNAMIC, "frozen": Source.FROZEN}


def frozen_of(token_store, path, documents, leader_len, follower_len):
    """(FrozenTable or None, the twin's)"""
    try:
        table = build_frozen(
            token_store(documents, 5), path, leader_len=leader_len, follower_len=follower_len
        )
    except InputError:
        return None, {}
    return table, frozen_table(documents, leader_len, 1 << 20, follower_len, 128)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(TOKENS, min_size=1, max_size=3),
    st.lists(TOKENS, min_size=1, max_size=2),
    STEPS,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 1 << 20]),
    st.sampled_from([1, 2, 128]),
    st.sampled_from([0, 2, 16]),
)
def test_grows_the_twins_trees(
    token_store, tmp_path_factory, documents, prompts, steps, ll, fl, leaders, followers, deeper
):
    path = tmp_path_factory.mktemp("frozen") / "table"
    frozen, as_dict = frozen_of(token_store, path, documents, ll, fl)
    ours = Cacheback(
        frozen,
        options=CachebackOptions(
            leader_len=ll, follower_len=fl, leaders=leaders, followers=followers, deeper=deeper
        ),
    )
    twin = Twin(as_dict, ll, fl, leaders, followers, deeper)
    for prompt in prompts:
        ours.start(np.array(prompt, np.int32))
        twin.start(list(prompt))
        for budget, accepted in steps:
            tree = ours.draft(budget)
            tree.check()
            expected = [(t, p, NAMES[s]) for t, p, s in twin.draft(budget)]
            found = zip(tree.token_ids, tree.parents, tree.source, strict=True)
            assert list(found) == expected
            check_scores(tree)
            ours.accept(np.array(accepted, np.int32))
            twin.accept(list(accepted))
        ours.finish()


def check_scores(tree):
    """Probabilities: a node's children together are no likelier than the node."""
    below = np.zeros(len(tree) + 1)
    np.add.at(below, tree.parents, tree.scores)  # -1 is the last
    assert np.all(tree.scores >= 0)
    assert np.all(below <= np.append(tree.scores, 1) + 1e-5)


def test_a_large_capacity_costs_nothing_until_it_is_used():
    table = DynamicTable(1, 3, 1 << 20, 128)
    table.make_room(1000)
    pools = [table.leader_pool, table.follower_pool]
    assert sum(array.nbytes for pool in pools for array in pool) < 1 << 20


def test_keep_outlives_a_request_and_nothing_else_does():
    prompt, other = np.array([1, 2, 3, 4, 5], np.int32), np.array([9, 1], np.int32)
    for keep, found in [(False, []), (True, [2, 3, 4])]:
        drafter = Cacheback(options=CachebackOptions(keep=keep))
        drafter.start(prompt)
        drafter.start(other)
        assert drafter.draft(3).token_ids.tolist() == found


def test_refuses_what_makes_no_table(token_store, tmp_path):
    frozen = build_frozen(token_store([[1, 2, 3, 4]], 5), tmp_path / "t")
    assert Cacheback(frozen).leader_len == 1
    with pytest.raises(UsageError, match="must be 1 and 3"):
        Cacheback(frozen, options=CachebackOptions(follower_len=2))
    for wrong in ({"leaders": 0}, {"followers": 0}, {"deeper": -1}, {"leader_len": -1}):
        with pytest.raises(UsageError):
            Cacheback(options=CachebackOptions(**wrong))
