"""Chains against all paths that there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from twins.acceptance_record import best_chain
from twins.blend import Twin

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.base import NO_TOKENS, DraftTree
from ngramkit.drafters.blend import Blend, load_weights
from ngramkit.drafters.blend_request import Job
from ngramkit.drafters.options import BlendOptions
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines.blend_source import BlendSource
from ngramkit.engines.drafter_requests import DrafterSource

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


def chain_of(workspace, request, length, cost):
    (chain,) = workspace.drafts([Job(request, NO_TOKENS, length)], cost)
    return chain


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    documents=st.lists(texts, min_size=1, max_size=8),
    prompt=texts,
    length=st.integers(1, 3),
    cost=st.sampled_from([0.0, 0.05, 0.2, 0.4]),
)
def test_blends_chain_is_the_best_path(datastore, documents, prompt, length, cost):
    store = datastore(documents)
    shards = [shard.tokens.tolist() for shard in store.shards]
    weights = load_weights()
    twin = Twin([shards], VOCABULARY, weights, 3, 8, 5, EOS)
    workspace = BlendSource(
        Blend([store], options=BlendOptions(scan=3, sample=8, hops=5))
    ).workspace()
    chain = chain_of(workspace, workspace.request(ids(*prompt)), length, cost)
    chain.check()
    floor = max(cost, RARE)

    def chances(path, score):
        return {} if path and path[-1] == EOS else twin.predict(prompt, path, floor / score)

    worth, best = best_chain(chances, length, cost, floor)
    drafted = float((chain.scores.astype(np.float64) - cost).sum())
    # Near ties may be decided either way, so chains are judged by their worth.
    assert drafted == pytest.approx(worth, rel=4e-3, abs=2e-5)
    p, path = 1.0, ()
    for token, score in zip(chain.token_ids.tolist(), chain.scores.tolist(), strict=True):
        p *= chances(path, p)[token]
        assert score == pytest.approx(p, rel=4e-3)
        assert score >= cost
        path = (*path, token)
    assert len(best) <= length


def test_the_greedy_chain_is_not_the_best(datastore):
    # After 0 comes 1 more often, but nothing sure after that; after 2 always 3 4 5.
    documents = [[0, 1, i] for i in range(6, 11) for _ in range(3)] + [[0, 2, 3, 4, 5]] * 12
    workspace = BlendSource(Blend([datastore(documents)])).workspace()
    request = workspace.request(ids(9, 0))
    (tree,) = workspace.drafts([Job(request, NO_TOKENS, 30)])
    first = tree.parents < 0
    roots = dict(zip(tree.token_ids[first].tolist(), tree.scores[first].tolist(), strict=True))
    assert roots[1] > roots[2]
    assert chain_of(workspace, request, 4, 0.0).token_ids.tolist() == [2, 3, 4, 5]
    assert chain_of(workspace, request, 1, 0.0).token_ids.tolist() == [1]
    assert chain_of(workspace, request, 4, 0.99).token_ids.tolist() == []


class OneTree(NoDraft):
    """A drafter that always drafts the same tree."""

    def __init__(self, tree):
        self.tree = tree

    def draft(self, budget):
        return self.tree


@settings(max_examples=200, deadline=None)
@given(data=st.data(), length=st.integers(1, 4), cost=st.sampled_from([0.0, 0.1, 0.3]))
def test_a_chain_is_the_best_path_of_a_drafters_tree(data, length, cost):
    n = data.draw(st.integers(0, min(12, 4 * length)))  # as many as are asked for
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

    worth, _ = best_chain(chances, length, cost, 0.0)
    workspace = DrafterSource(lambda: OneTree(tree), n + 1).workspace()
    chain = chain_of(workspace, workspace.request(ids(n)), length, cost)
    chain.check()
    assert float((chain.scores - np.float32(cost)).sum()) == pytest.approx(worth, abs=1e-5)
    assert len(chain) <= length
    assert len(tree.accepted_nodes(chain.token_ids.tolist())) == len(chain)


def test_accepted_tokens_are_a_path_from_the_root():
    tree = DraftTree(ids(7, 8, 9, 7), ids(-1, 0, -1, 2), np.ones(4, np.float32), np.zeros(4, "u1"))
    assert tree.accepted_nodes([7, 8, 8]) == [0, 1]
    assert tree.accepted_nodes([9, 7]) == [2, 3]
    assert tree.accepted_nodes([8]) == []
