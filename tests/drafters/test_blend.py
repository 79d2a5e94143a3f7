"""blend against its dictionary twin, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_blend import Twin

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import Evidence, Source
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.blend_weights import load_weights, save_weights
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.errors import ArtifactError, UsageError
from ngramkit.evaluate.records import Turn
from ngramkit.evaluate.replay import replay_turn
from ngramkit.formats.history import History
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.writer import ArtifactWriter

VOCABULARY, EOS = 12, 11


def ids(*tokens):
    return np.array(tokens, np.int32)


def remembering(store):
    return PastRequests(tokenizer=store.tokenizer, background=False)


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


@pytest.fixture
def frozen(tmp_path_factory, token_store):
    def build(documents, leader_len, follower_len):
        store = token_store(documents, VOCABULARY, eos=EOS)
        path = tmp_path_factory.mktemp("frozen") / "f"
        return build_frozen(store, path, leader_len=leader_len, follower_len=follower_len)

    return build


def as_dictionary(table):
    """{leader: (count, {follower: count})}"""
    found = {}
    for i, leader in enumerate(table.leaders.tolist()):
        rows = slice(int(table.follower_offsets[i]), int(table.follower_offsets[i + 1]))
        followers = map(tuple, table.followers[rows].tolist())
        counts = dict(zip(followers, table.follower_counts[rows].tolist(), strict=True))
        found[tuple(leader)] = (int(table.leader_counts[i]), counts)
    return found


@pytest.fixture
def bigram(tmp_path_factory):
    """(ModelBigram, {token: {next: p}}) of random bigrams."""

    def build(seed):
        random = np.random.default_rng(seed)
        p = random.dirichlet(np.full(VOCABULARY, 0.5), VOCABULARY)
        order = np.argsort(-p, axis=1, kind="stable")[:, :4]
        log_p = np.log(np.take_along_axis(p, order, 1)).astype(np.float16)
        record = TokenizerRecord(f"none-{VOCABULARY}", VOCABULARY, f"f{VOCABULARY}", EOS)
        parameters = {"k": 4, "width": 1, "extend": "bigram"}
        path = tmp_path_factory.mktemp("bigram") / "b"
        with ArtifactWriter(path, "model-bigram", parameters) as writer:
            tokens = order.astype(np.uint16)
            arrays = {"next_tokens": tokens, "log_probs": log_p, "extended": tokens[:, :, None]}
            writer.write("table.safetensors", arrays)
            counts = {"rows": VOCABULARY, "drafts": 4 * VOCABULARY}
            writer.commit(record, parameters=parameters, corpus={}, counts=counts)
        rounded = np.exp(log_p.astype(np.float64))
        pairs = zip(order.tolist(), rounded.tolist(), strict=True)
        known = {x: dict(zip(*row, strict=True)) for x, row in enumerate(pairs)}
        return ModelBigram.open(path), known

    return build


texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)
some_texts = st.lists(texts, min_size=1, max_size=8)


def assert_twins(drafter, twin, prompt, written, budget):
    drafter.start(ids(*prompt))
    live = list(prompt)
    for tokens in [[], *written]:
        for token in tokens:
            twin.judge(live, token)
            live.append(token)
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
                p *= twin.predictions[path[:depth]][token]
            assert score == pytest.approx(p, rel=2e-3)


twins = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
continued = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9), max_size=4)


@twins
@given(
    documents=some_texts,
    prompt=texts,
    written=continued,
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
    assert_twins(drafter, twin, prompt, written, budget)


@twins
@given(
    documents=some_texts,
    others=some_texts,
    requests=st.lists(texts, max_size=3),
    earlier=st.lists(texts, max_size=3),
    prompt=texts,
    written=continued,
    lengths=st.sampled_from([(1, 3), (2, 2)]),
    seed=st.integers(0, 9),
)
def test_the_tree_of_all_sources_is_its_twins(
    datastore, frozen, bigram, tmp_path_factory,
    documents, others, requests, earlier, prompt, written, lengths, seed,
):  # fmt: skip
    store, table = datastore(documents), frozen([*others, [0] * 99], *lengths)
    pairs, known = bigram(seed)
    past = History.at(tmp_path_factory.mktemp("history") / "h", store.tokenizer)
    for request in earlier:
        past.append(ids(*request), len(request))
    known_past = PastRequests(past, background=False)
    drafter = Blend([store], table, pairs, known_past, scan=3, sample=8, hops=5)
    for request in requests:
        drafter.start(ids(*request))
        drafter.finish()
    shards = [shard.tokens.tolist() for shard in store.shards]
    weights = [w.tolist() for w in load_weights()]
    streams = [[[t for r in part for t in (*r, VOCABULARY)]] for part in (earlier, requests)]
    twin = Twin(
        shards, VOCABULARY, weights, 3, 8, 5, EOS, as_dictionary(table), known, streams
    )  # fmt: skip
    assert_twins(drafter, twin, prompt, written, 20)


def test_a_frozen_table_of_the_datastores_corpus_says_nothing_new(datastore, frozen):
    documents = [[1, 2, 3, 4], [2, 3, 5]]
    alone, both = (
        Blend([datastore(documents)]),
        Blend([datastore(documents)], frozen(documents, 1, 3)),
    )
    for drafter in (alone, both):
        drafter.start(ids(1, 2))
    assert scores_by_path(both.draft(16)) == scores_by_path(alone.draft(16))


def test_it_drafts_from_the_context_alone(datastore):
    drafter = Blend(tokenizer=datastore([[1]]).tokenizer)
    drafter.start(ids(1, 2, 3, 4, 1, 2))
    assert max(scores_by_path(drafter.draft(8)), key=len)[:2] == (3, 4)


def test_every_node_says_who_held_it_first(datastore, frozen, bigram):
    store, table = datastore([[1, 2]]), frozen([[1, 3, 3, 3, 3]], 1, 3)
    drafter = Blend([store], table, bigram(0)[0], remembering(store))
    drafter.start(ids(1, 4))
    drafter.finish()
    drafter.start(ids(1, 5, 1))
    tree = drafter.draft(40)
    roots = tree.parents == -1
    named = dict(zip(tree.token_ids[roots].tolist(), tree.source[roots].tolist(), strict=True))
    held = {2: Source.DATASTORE, 3: Source.FROZEN, 5: Source.CONTEXT, 4: Source.HISTORY}
    assert {token: named[token] for token in held} == held
    assert Source.MODEL in named.values()


def test_a_stale_history_costs_next_to_nothing(datastore):
    random = np.random.default_rng(3)
    phrases = random.integers(0, 300, (20, 12))
    text = np.concatenate([phrases[i] for i in random.integers(0, 20, 60)]).astype(np.int32)
    store = datastore([phrases[i].tolist() for i in range(10)], vocabulary=300)
    steps = {}
    for stale in (False, True):
        drafter = Blend([store], past=remembering(store))
        if stale:
            drafter.start(random.permutation(text))
            drafter.finish()
        steps[stale] = replay_turn(drafter, Turn(text[:20], text[20:]), 8).tokens_per_step
    assert steps[True] > 0.98 * steps[False]


def test_it_learns_from_past_requests(datastore, tmp_path):
    random = np.random.default_rng(4)
    request = random.integers(0, VOCABULARY - 1, 60).astype(np.int32)
    past = History.at(tmp_path / "h", datastore([[1]]).tokenizer)
    steps = []
    for _ in range(2):  # two processes
        drafter = Blend(past=PastRequests(past, background=False))
        steps.append(replay_turn(drafter, Turn(request[:8], request[8:]), 8).tokens_per_step)
    assert steps[1] > 2 * steps[0]


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
    with pytest.raises(UsageError, match="needs an artifact or a tokenizer"):
        Blend([])
    with pytest.raises(UsageError, match="scan"):
        Blend([datastore([[1]])], scan=5000)
    with pytest.raises(ArtifactError, match="was built for the tokenizer"):
        Blend([datastore([[1]]), datastore([[1]], vocabulary=20)])
    weights = load_weights()
    save_weights(weights._replace(gate_bias=weights.gate_bias[:-1]), tmp_path / "w.safetensors")
    with pytest.raises(ArtifactError, match="another shape"):
        load_weights(tmp_path / "w.safetensors")
