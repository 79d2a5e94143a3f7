import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins import kernels as reference, ssd as reference_ssd

from ngramkit.kernels import ssd
from ngramkit.kernels.suffix.search import shard_table
from ngramkit.kernels.suffix.sort import sort_shard

SEPARATOR, EOS = 6, 5
requests = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(requests, min_size=1, max_size=3),
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(1, 10),
    st.integers(1, 8),
    st.integers(1, 20),
    st.dictionaries(
        st.integers(0, ssd.RECORDED_LENGTHS - 1),
        st.tuples(st.floats(0, 5), st.floats(5, 9)),
        max_size=6,
    ),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([np.uint16, np.uint32]),
)
def test_draft_is_its_twins(shards, context, query, deepest, budget, known, least, width):
    streams = [[t for r in shard for t in (*r, SEPARATOR)] for shard in shards]
    arrays = [sort_shard(np.array(s, width), SEPARATOR) for s in streams]
    table = shard_table([tuple(a.values()) for a in arrays])
    record = np.zeros((ssd.RECORDED_LENGTHS, 2))
    for length, row in known.items():
        record[length] = row
    token_ids, parents, scores, shares, match = ssd.draft_after_trusted_match(
        table,
        np.array(context, np.int32),
        budget,
        np.array([query, deepest, EOS], np.int64),
        record,
        least,
    )
    expected, rows = reference_ssd.draft(
        streams,
        context,
        query,
        deepest,
        SEPARATOR,
        EOS,
        budget,
        lambda match: (
            reference_ssd.trust(known, match, ssd.RECORDED_LENGTHS, ssd.PRIOR_DRAFTS) >= least
        ),
    )
    assert match == expected
    total = len(reference.matches(streams, context[-match:])) if match else 1
    place, kept = {-1: -1}, []
    for i, (token, parent, depth, count) in enumerate(rows):
        score = count / total
        for d in range(depth):
            score *= reference_ssd.trust(known, match + d, ssd.RECORDED_LENGTHS, ssd.PRIOR_DRAFTS)
        if score >= least:
            place[i] = len(kept)
            kept.append((token, place[parent], pytest.approx(count / total), pytest.approx(score)))
    found = zip(token_ids.tolist(), parents.tolist(), shares.tolist(), scores.tolist(), strict=True)
    assert list(found) == kept


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 10),
    st.integers(1, 30),
    st.data(),
)
def test_texts_that_repeat_themselves_are_drafted_alike(periods, query, budget, data):
    """Intervals wider than those that are read one by one, with few next tokens and with many."""
    streams = []
    for period in periods:
        stream = period * (data.draw(st.integers(150, 400)) // len(period))
        for _ in range(data.draw(st.integers(0, 6))):
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 6))
        streams.append([*stream, SEPARATOR])
    arrays = [sort_shard(np.array(s, np.uint16), SEPARATOR) for s in streams]
    table = shard_table([tuple(a.values()) for a in arrays])
    context = [t for t in streams[0][:20] if t != SEPARATOR]
    found = ssd.draft_after_trusted_match(
        table,
        np.array(context, np.int32),
        budget,
        np.array([query, 12, EOS], np.int64),
        np.zeros((ssd.RECORDED_LENGTHS, 2)),
        0.0,
    )
    match, rows = reference_ssd.draft(streams, context, query, 12, SEPARATOR, EOS, budget)
    assert found[4] == match
    assert found[0].tolist() == [row[0] for row in rows]
    assert found[1].tolist() == [row[1] for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 5), st.floats(0.1, 1)), max_size=8),
    st.integers(0, 30),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=4),
)
def test_learn_is_its_twin(nodes, match, answers):
    tree, seen = [], set()
    for token, parent, share in nodes:
        parent = min(parent, len(tree) - 1)
        if (token, parent) not in seen:
            seen.add((token, parent))
            tree.append((token, parent, share * (tree[parent][2] if parent >= 0 else 1)))
    columns = list(zip(*tree, strict=True)) or [(), (), ()]
    record, twin = np.zeros((ssd.RECORDED_LENGTHS, 2)), {}
    for written in answers:
        ssd.learn_trust(
            np.array(columns[0], np.int32),
            np.array(columns[1], np.int32),
            np.array(columns[2], np.float32),
            match,
            np.array(written, np.int32),
            record,
        )
        reference_ssd.learn(tree, match, written, twin, ssd.RECORDED_LENGTHS, ssd.DECAY_PER_DRAFT)
    for length in range(ssd.RECORDED_LENGTHS):
        assert record[length].tolist() == pytest.approx(twin.get(length, (0, 0)), rel=1e-4)


@st.composite
def drafts(draw):
    """[(token, parent, score)], siblings distinct, none above its parent."""
    tree, seen = [], set()
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(-1, len(tree) - 1))
        token = draw(st.integers(0, 3))
        if (token, parent) not in seen:
            seen.add((token, parent))
            above = tree[parent][2] if parent >= 0 else 1.0
            score = np.float32(above * draw(st.sampled_from([0.1, 0.3, 0.5, 1.0])))
            tree.append((token, parent, float(score)))
    return tree


@settings(max_examples=200, deadline=None)
@given(drafts(), drafts(), st.integers(0, 30))
def test_merge_is_its_twin(first, second, budget):
    merged = ssd.keep_best_of_two_drafts(_columns(first), _columns(second), budget)
    found = list(zip(*(column.tolist() for column in merged), strict=True))
    assert found == reference_ssd.merge(first, second, budget)


def _columns(tree):
    token_ids, parents, scores = zip(*tree, strict=True) if tree else ((), (), ())
    return np.array(token_ids, np.int32), np.array(parents, np.int32), np.array(scores, np.float32)


def test_no_trust_is_not_for_ever():
    arrays = sort_shard(np.array([1, 2, 3, SEPARATOR], np.uint16), SEPARATOR)
    table = shard_table([tuple(arrays.values())])
    record = np.zeros((ssd.RECORDED_LENGTHS, 2))
    record[1:, 1] = 100.0  # a hundred drafts, no hit
    sizes = []
    for _ in range(4_000):
        rules = np.array([10, 4, EOS], np.int64)
        sizes.append(
            len(
                ssd.draft_after_trusted_match(
                    table, np.array([1], np.int32), 8, rules, record, 0.05
                )[0]
            )
        )
    assert sizes[0] == 0
    assert sizes[-1] > 0
