"""blend against its dictionary twin, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_blend import Twin

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import Evidence
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.blend_state import load_weights, save_weights
from ngramkit.errors import ArtifactError, UsageError

VOCABULARY, EOS = 12, 11


def ids(*tokens):
    return np.array(tokens, np.int32)


def scores_by_path(tree):
    paths, found = [], {}
    for token, parent, score in zip(tree.token_ids, tree.parents, tree.scores, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), int(token)))
        found[paths[-1]] = float(score)
    return found


@pytest.fixture
def datastore(tmp_path_factory, token_store):
    def build(documents, vocabulary=VOCABULARY, **options):
        store = token_store(documents, vocabulary, eos=EOS)
        return build_datastore(store, tmp_path_factory.mktemp("datastore") / "d", **options)

    return build


texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    documents=st.lists(texts, min_size=1, max_size=8),
    prompt=texts,
    written=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9), max_size=4),
    budget=st.integers(1, 30),
    scan=st.sampled_from([1, 3, 48]),
    sample=st.sampled_from([8, 13]),
    cut=st.booleans(),
)
def test_the_tree_is_its_twins(datastore, documents, prompt, written, budget, scan, sample, cut):
    store = datastore(documents, **({"shard_tokens": 24} if cut else {}))
    weights = load_weights()
    shards = [shard.tokens.tolist() for shard in store.shards]
    twin = Twin(shards, VOCABULARY, [w.tolist() for w in weights], scan, sample, 5, EOS)
    drafter = Blend([store], scan=scan, sample=sample, hops=5)
    drafter.start(ids(*prompt))
    live = list(prompt)
    for tokens in [[], *written]:
        live += tokens
        if tokens:
            drafter.accept(ids(*tokens))
        tree = drafter.draft(budget)
        tree.check()
        found, wanted = scores_by_path(tree), twin.draft(live, budget)
        # Near ties may come in either order, so paths are judged by their probability.
        assert sorted(found.values()) == pytest.approx(sorted(wanted.values()), rel=2e-3, abs=1e-6)
        for path, score in found.items():
            p = 1.0
            for depth, token in enumerate(path):
                p *= twin.predict(live, path[:depth])[token]
            assert score == pytest.approx(p, rel=2e-3)


def test_what_was_remembered_of_samples_changes_nothing(datastore):
    random = np.random.default_rng(0)
    store = datastore([random.integers(0, VOCABULARY, 300).tolist() for _ in range(9)])
    text = random.integers(0, VOCABULARY, 60).astype(np.int32)
    trees = []
    for _ in range(2):
        drafter = Blend([store], scan=4, sample=16)
        drafter.start(text[:20])
        for i in range(20, 60, 4):
            trees.append(scores_by_path(drafter.draft(20)))
            drafter.accept(text[i : i + 4])
    assert trees[:10] == trees[10:]


def test_a_new_request_knows_nothing_of_the_last(datastore):
    store = datastore([[1, 2, 3, 4, 5]])
    used, fresh = Blend([store]), Blend([store])
    used.start(ids(*range(9), *range(9), *range(9)))
    used.draft(8)
    used.accept(ids(3, 3, 3))
    for drafter in (used, fresh):
        drafter.start(ids(7, 2))
    assert scores_by_path(used.draft(16)) == scores_by_path(fresh.draft(16))


def test_counts_of_several_datastores_and_shards_add_up(datastore):
    halves = [[1, 2, 3], [1, 2, 4]], [[1, 2, 4], [1, 2, 4]]
    both = Blend([datastore(half) for half in halves])
    one = Blend([datastore(halves[0] + halves[1])])
    for drafter in (both, one):
        drafter.start(ids(1, 2))
    assert scores_by_path(both.draft(8)) == pytest.approx(scores_by_path(one.draft(8)), rel=1e-5)
    assert both.draft(1).token_ids.tolist() == [4]


def test_it_copies_from_the_live_context_what_no_datastore_holds(datastore):
    drafter = load_drafter("blend", datastores=[datastore([[1, 1, 1]])])
    phrase = [9, 8, 7, 6, 5, 4, 3, 2]
    drafter.start(ids(*phrase, 10, *phrase, 10, *phrase))
    path = max(scores_by_path(drafter.draft(12)), key=len)
    assert path[:5] == (10, 9, 8, 7, 6)


def test_nothing_is_drafted_after_eos_nor_any_unknown_id(datastore):
    drafter = Blend([datastore([[1, 2, EOS]] * 3)])
    drafter.start(ids(5, 1, 2, EOS, 1, 2, EOS, 6, 40_000, 6, 40_000, 6))
    drafter.draft(20)
    for root in (ids(1), ids(6)):
        drafter.accept(root)
        for path in scores_by_path(drafter.draft(20)):
            assert max(path) < VOCABULARY
            assert EOS not in path[:-1]


def test_an_opinion_of_the_model_is_drafted_and_trusted_as_it_comes_true(datastore):
    drafter = Blend([datastore([[1, 2, 3], [1, 2, 4]])])
    drafter.start(ids(5, 1))

    def opinion(token, likely):
        log_p = np.log(np.array([[0.9, 0.05]], np.float32))
        return Evidence(ids(token), ids(-1), ids(likely, 0)[None], log_p)

    drafter.accept(ids(7), opinion(1, 7))  # after [5 1] the model holds 7 likely: nobody else does
    drafter.accept(ids(5, 1))
    before = scores_by_path(drafter.draft(8))[(7,)]
    assert before > 0.1
    for _ in range(12):
        drafter.accept(ids(7, 9, 9, 8, 5, 1), opinion(1, 7))
    blind = Blend([datastore([[1, 2, 3], [1, 2, 4]])])
    blind.start(ids(5, 1, 7, 5, 1))
    assert scores_by_path(blind.draft(8)).get((7,), 0) < before


def test_bad_parameters_and_artifacts_are_refused(datastore, tmp_path):
    with pytest.raises(UsageError, match="needs a datastore"):
        Blend([])
    with pytest.raises(UsageError, match="scan"):
        Blend([datastore([[1]])], scan=5000)
    with pytest.raises(ArtifactError, match="was built for the tokenizer"):
        Blend([datastore([[1]]), datastore([[1]], vocabulary=20)])
    weights = load_weights()
    save_weights(weights._replace(gate_bias=weights.gate_bias[:-1]), tmp_path / "w.safetensors")
    with pytest.raises(ArtifactError, match="another shape"):
        load_weights(tmp_path / "w.safetensors")
