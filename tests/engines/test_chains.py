"""The best chain is the best: against all paths that there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins.blend import Twin
from twins.budget import best_chain

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.blend import Blend, load_weights
from ngramkit.engines.workspace import BlendSource, best_path, came_true

VOCABULARY, EOS, RARE = 12, 11, 1e-4
texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)


def ids(*tokens):
    return np.array(tokens, np.int32)


@pytest.fixture
def datastore(tmp_path_factory, token_store):
    def build(documents):
        store = token_store(documents, VOCABULARY, eos=EOS)
        return build_datastore(store, tmp_path_factory.mktemp("datastore") / "d")

    return build


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    documents=st.lists(texts, min_size=1, max_size=8),
    prompt=texts,
    length=st.integers(1, 3),
    least=st.sampled_from([0.0, 0.05, 0.2, 0.4]),
)
def test_a_blends_chain_is_its_twins(datastore, documents, prompt, length, least):
    store = datastore(documents)
    shards = [shard.tokens.tolist() for shard in store.shards]
    weights = [w.tolist() for w in load_weights()]
    twin = Twin([shards], VOCABULARY, weights, 3, 8, 5, EOS)
    source = BlendSource(Blend([store], scan=3, sample=8, hops=5))
    desk = source.desk()
    chain = source.request(desk, ids(*prompt)).chain(desk, length, least)
    chain.check()
    floor = max(least, RARE)

    def chances(path, score):
        return {} if path and path[-1] == EOS else twin.predict(prompt, path, floor / score, score)

    worth, path = best_chain(chances, length, least, floor)
    found = float((chain.scores.astype(np.float64) - least).sum())
    # Near ties may be decided either way, so chains are judged by their worth.
    assert found == pytest.approx(worth, rel=4e-3, abs=2e-5)
    p, held = 1.0, ()
    for token, score in zip(chain.token_ids.tolist(), chain.scores.tolist(), strict=True):
        p *= chances(held, p)[token]
        assert score == pytest.approx(p, rel=4e-3)
        assert score >= least
        held = (*held, token)
    assert len(path) <= length


def test_the_greedy_chain_is_not_the_best(datastore):
    # After 0 comes 1 more often, but nothing sure after that; after 2 always 3 4 5.
    documents = [[0, 1, i] for i in range(6, 11) for _ in range(3)] + [[0, 2, 3, 4, 5]] * 12
    source = BlendSource(Blend([datastore(documents)]))
    desk = source.desk()
    request = source.request(desk, ids(9, 0))
    tree = request.tree(desk, 30)
    first = tree.parents < 0
    roots = dict(zip(tree.token_ids[first].tolist(), tree.scores[first].tolist(), strict=True))
    assert roots[1] > roots[2]
    assert request.chain(desk, 4, 0.0).token_ids.tolist() == [2, 3, 4, 5]
    assert request.chain(desk, 1, 0.0).token_ids.tolist() == [1]
    assert request.chain(desk, 4, 0.99).token_ids.tolist() == []


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), length=st.integers(1, 4), least=st.sampled_from([0.0, 0.1, 0.3]))
def test_the_best_path_of_a_tree_is_its_twins(data, length, least):
    n = data.draw(st.integers(0, 12))
    parents = [data.draw(st.integers(-1, i - 1)) for i in range(n)]
    shares = [data.draw(st.sampled_from([0.1, 0.5, 0.9])) for _ in range(n)]
    scores = []
    for parent, share in zip(parents, shares, strict=True):
        scores.append(share * (scores[parent] if parent >= 0 else 1.0))
    tree = DraftTree(
        ids(*range(n)), ids(*parents), np.array(scores, np.float32), np.zeros(n, np.uint8)
    )

    def chances(path, score):
        at = path[-1] if path else -1
        return {i: shares[i] for i in range(n) if parents[i] == at}

    worth, _ = best_chain(chances, length, least, 0.0)
    chain = best_path(tree, length, least)
    chain.check()
    assert float((chain.scores - np.float32(least)).sum()) == pytest.approx(worth, abs=1e-5)
    assert len(chain) <= length
    assert came_true(tree, chain.token_ids) == len(chain)


def test_what_came_true_is_a_path_from_the_root():
    tree = DraftTree(ids(7, 8, 9, 7), ids(-1, 0, -1, 2), np.ones(4, np.float32), np.zeros(4, "u1"))
    assert came_true(tree, ids(7, 8, 8)) == 2
    assert came_true(tree, ids(9, 7)) == 2
    assert came_true(tree, ids(8)) == 0
