"""blend against its dictionary twin: the same trees, from every source."""

from __future__ import annotations

import numpy as np
import pytest
from blend_sources import EOS, VOCABULARY, ids, remembering, scores_by_path
from hypothesis import HealthCheck, given, settings, strategies as st
from twins.blend import Twin

from ngramkit.drafters.base import Evidence
from ngramkit.drafters.blend import Blend, load_weights
from ngramkit.drafters.options import BlendOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.formats.history import History


def as_dictionary(table):
    """{leader: (count, {follower: count})}"""
    found = {}
    for i, leader in enumerate(table.leaders.tolist()):
        rows = slice(int(table.follower_offsets[i]), int(table.follower_offsets[i + 1]))
        followers = map(tuple, table.followers[rows].tolist())
        counts = dict(zip(followers, table.follower_counts[rows].tolist(), strict=True))
        found[tuple(leader)] = (int(table.leader_counts[i]), counts)
    return found


def as_evidence(nodes, parents, tops):
    likely = np.array([list(top) for top in tops], np.int32)
    p = np.array([list(top.values()) for top in tops], np.float32)
    return Evidence(ids(*nodes), ids(*parents), likely, np.log(p))


texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)
some_texts = st.lists(texts, min_size=1, max_size=8)


def assert_twins(
    drafter, twin, prompt, written, budget, evidence_of=None, answer=None, references=()
):
    """`evidence_of`(text, tokens written next) returns what `learn_evidence` takes; `answer` is the
    last to this prompt."""
    drafter.start(ids(*prompt), references=references)
    twin.begin(prompt, answer, references)
    live = list(prompt)
    for tokens in [[], *written]:
        before = list(live)
        for token in tokens:
            if drafter.request.learns or evidence_of is not None:
                twin.judge(live, token)
            live.append(token)
            twin.step_copies(live, token)
        if tokens and evidence_of is None:
            drafter.accept(ids(*tokens))
        elif tokens:
            nodes, parents, tops = evidence_of(before, tokens)
            twin.learn_evidence(before, tokens, nodes, parents, tops)
            drafter.accept(ids(*tokens), as_evidence(nodes, parents, tops))
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
    max_examples=30,
    deadline=None,
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
    shards = [shard.tokens.tolist() for shard in store.shards]
    twin = Twin([shards], VOCABULARY, load_weights(), scan, sample, 5, EOS)
    drafter = Blend([store], options=BlendOptions(scan=scan, sample=sample, hops=5))
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
    drafter = Blend(
        [store], table, pairs, known_past, options=BlendOptions(scan=3, sample=8, hops=5)
    )
    for request in requests:
        drafter.start(ids(*request))
        drafter.finish()
    shards = [shard.tokens.tolist() for shard in store.shards]
    weights = load_weights()
    streams = [[[t for r in part for t in (*r, VOCABULARY)]] for part in (earlier, requests)]
    twin = Twin(
        [shards], VOCABULARY, weights, 3, 8, 5, EOS, as_dictionary(table), known, streams
    )  # fmt: skip
    assert_twins(drafter, twin, prompt, written, 20)


@twins
@given(
    corpora=st.lists(some_texts, min_size=2, max_size=3),
    prompt=texts,
    written=continued,
    budget=st.integers(1, 30),
    scan=st.sampled_from([1, 3, 48]),
    tables=st.booleans(),
)
def test_the_tree_of_several_corpora_is_its_twins(
    datastore, frozen, corpora, prompt, written, budget, scan, tables
):  # fmt: skip
    stores = [datastore(documents) for documents in corpora]
    table = frozen([[1, 2, 3, 1, 2, 4], [0] * 99], 1, 3) if tables else None
    shards = [[shard.tokens.tolist() for shard in store.shards] for store in stores]
    weights = load_weights()
    held = as_dictionary(table) if table else None
    twin = Twin(shards, VOCABULARY, weights, scan, 8, 5, EOS, held)
    drafter = Blend(stores, table, options=BlendOptions(scan=scan, sample=8, hops=5))
    assert_twins(drafter, twin, prompt, written, budget)


@twins
@given(
    documents=some_texts,
    prompt=texts,
    written=continued,
    budget=st.integers(1, 30),
    seed=st.integers(0, 1 << 16),
    few=st.integers(2, VOCABULARY - 1),
    greedy=st.booleans(),
)
def test_the_tree_with_evidence_is_its_twins(
    datastore, bigram, documents, prompt, written, budget, seed, few, greedy
):
    """Passes over what was written and nodes beside it; of few tokens, so that contexts meet. Where
    the model is greedy, what was written is what it held likeliest."""
    store, (pairs, known) = datastore(documents), bigram(seed % 10)
    random = np.random.default_rng(seed)
    prompt, written = [t % few for t in prompt], [[t % few for t in each] for each in written]

    def evidence_of(before, tokens):
        nodes, parents = [before[-1], *tokens[:-1]], list(range(-1, len(tokens) - 1))
        likeliest = tokens if greedy else []
        places = set(zip(parents[1:], nodes[1:], strict=True)) | {(len(tokens) - 1, tokens[-1])}
        for token, at in zip(random.integers(0, few, 24), random.random(24), strict=True):
            place = int(at * len(nodes)), int(token)
            if place not in places:  # siblings are distinct
                places.add(place)
                parents.append(place[0])
                nodes.append(place[1])
        tops = []
        for row in range(len(nodes)):
            p = np.sort(random.dirichlet([1.0, 1.0, 1.0]).astype(np.float32))[::-1] * 0.9
            others = random.permutation(VOCABULARY).tolist()
            likely = dict.fromkeys([*likeliest[row : row + 1], *others])
            tops.append(dict(zip(likely, p.tolist(), strict=False)))
        return nodes, parents, tops

    weights = load_weights()
    shards = [shard.tokens.tolist() for shard in store.shards]
    twin = Twin([shards], VOCABULARY, weights, 3, 8, 5, EOS, bigram=known)
    drafter = Blend([store], bigram=pairs, options=BlendOptions(scan=3, sample=8, hops=5))
    assert_twins(drafter, twin, prompt, written, budget, evidence_of)


@twins
@given(
    text=st.lists(st.integers(0, VOCABULARY - 2), min_size=20, max_size=60),
    changes=st.lists(
        st.tuples(st.integers(0, 59), st.integers(0, VOCABULARY - 2), st.integers(0, 2)), max_size=6
    ),
    step=st.integers(1, 9),
    stands=st.sampled_from(["in the prompt", "in a request", "as the answer", "as a reference"]),
)
def test_the_tree_of_a_text_that_is_copied_and_edited_is_its_twins(
    datastore, text, changes, step, stands
):
    """Tokens are replaced, left out and put in; the text stands in the prompt, in a request, as a
    reference, or was the answer to the same prompt, which is asked a third time."""
    copied = list(text)
    for at, token, what in changes:
        if at < len(copied):
            copied[at : at + (what > 0)] = [token] * (what < 2)
    store = datastore([[0, 1]])
    past = remembering(store)
    drafter = Blend([store], past=past, options=BlendOptions(scan=48, sample=8, hops=5))
    request, prompt = [], [3]
    if stands == "in the prompt":
        prompt = [*text, 3]
    elif stands != "as a reference":
        request = [3, *text] if stands == "as the answer" else text
        past.remember(ids(*request), len(request) - len(text))
    streams = [(), [[*request, VOCABULARY]] if request else ()]
    written = [copied[i : i + step] for i in range(0, len(copied), step)]
    shards, weights = store.shards[0].tokens.tolist(), load_weights()
    twin = Twin([[shards]], VOCABULARY, weights, 48, 8, 5, EOS, past=streams)
    answer = text if stands == "as the answer" else None
    for _ in range(1 + (answer is not None)):
        references = [[7, 7, 3], text] if stands == "as a reference" else []
        assert_twins(drafter, twin, prompt, written, 12, answer=answer, references=references)
