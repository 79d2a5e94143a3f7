import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from twins import kernels as reference

from ngramkit.basics.errors import UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters import rest
from ngramkit.drafters.base import Source
from ngramkit.drafters.options import RestOptions
from ngramkit.drafters.rest import Rest

EOS = 9


def ids(*tokens):
    return np.array(tokens, np.int32)


@pytest.fixture
def datastore(tmp_path_factory, token_store):
    def build(documents, vocabulary=20, *, eos=EOS, **options):
        path = tmp_path_factory.mktemp("datastore") / "d"
        return build_datastore(token_store(documents, vocabulary, eos=eos), path, **options)

    return build


def drafted(drafter, budget=64):
    tree = drafter.draft(budget)
    tree.check()
    assert set(tree.source.tolist()) <= {Source.DATASTORE}
    return list(zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True)), tree


def test_the_most_frequent_continuation_of_the_longest_match_comes_first(datastore):
    drafter = Rest([datastore([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4], [7, 2, 6]])])
    drafter.start(ids(8, 1, 2))
    found, tree = drafted(drafter)
    assert found == [(3, -1), (4, 0), (5, 0)]
    assert tree.scores.tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    drafter.start(ids(8, 2))  # only [2] matches: four times
    found, tree = drafted(drafter, 2)
    assert found == [(3, -1), (4, 0)]
    assert tree.scores.tolist() == pytest.approx([3 / 4, 2 / 4])


def test_counts_add_up_over_shards_and_datastores(datastore):
    halves = [datastore([[1, 2, 5], [1, 2, 4]]), datastore([[1, 2, 4], [8, 8]])]
    drafter = Rest([datastore([[1, 2, 5], [1, 2, 4], [1, 2, 4], [8, 8]], shard_tokens=4)])
    both = Rest(halves)
    for one in (drafter, both):
        one.start(ids(1, 2))
        found, tree = drafted(one)
        assert found == [(4, -1), (5, -1)]
        assert tree.scores.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_nothing_follows_the_end_of_a_text_and_no_separator_is_drafted(datastore):
    drafter = Rest([datastore([[1, 2, EOS, 3], [4, 1]])])
    drafter.start(ids(1))
    assert drafted(drafter)[0] == [(2, -1), (EOS, 0)]


def test_a_match_that_always_ends_its_document_gives_way_to_a_shorter_one(datastore):
    drafter = Rest([datastore([[1, 2, 3], [3, 4], [5, 3, 4]])])
    drafter.start(ids(1, 2, 3))
    assert drafted(drafter)[0] == [(4, -1)]
    final = Rest([datastore([[1, 2, 3]])])
    final.start(ids(2, 3))
    assert drafted(final)[0] == []
    shy = Rest([datastore([[1, 2, 3], [3, 4]])], options=RestOptions(min_match=2))
    shy.start(ids(1, 2, 3))
    assert drafted(shy)[0] == []


def test_min_match_max_match_and_continuation_bound_the_draft(datastore):
    store = datastore([[1, 2, 3, 4, 5, 6], [7, 3, 8]])
    strict = Rest([store], options=RestOptions(min_match=3))
    strict.start(ids(0, 2, 3))
    assert drafted(strict)[0] == []
    short = Rest([store], options=RestOptions(max_match=1, continuation=2))
    short.start(ids(1, 2, 3))
    assert drafted(short)[0] == [(4, -1), (8, -1), (5, 0)]


@pytest.mark.parametrize("context", [[], [15], [20], [21, 999_999], [-1]])
def test_what_the_datastore_never_saw_gives_an_empty_draft(datastore, context):
    drafter = Rest([datastore([[1, 2, 3]])])
    drafter.start(ids(*context))
    assert drafted(drafter)[0] == []


def test_a_budget_of_zero_is_an_empty_draft_and_the_next_is_whole(datastore):
    drafter = Rest([datastore([[1, 2, 3]])])
    drafter.start(ids(1))
    assert drafted(drafter, 0)[0] == []
    assert drafted(drafter, 5)[0] == [(2, -1), (3, 0)]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), frequent=st.sampled_from([0, 3, 511]), most=st.integers(1, 9))
def test_drafts_along_a_text_are_the_naive_ones(datastore, monkeypatch, data, frequent, most):
    """Memoized or not."""
    monkeypatch.setattr(rest, "MEMOIZED_ABOVE_OCCURRENCES", frequent)
    monkeypatch.setattr(rest, "MAX_MEMOIZED_DRAFTS", most)
    texts = st.lists(st.integers(0, 3), max_size=25)
    documents = data.draw(st.lists(texts, min_size=1, max_size=5).filter(any))
    longest = data.draw(st.integers(1, 6))
    drafter = Rest(
        [datastore(documents, 4, eos=None)], options=RestOptions(max_match=longest, continuation=4)
    )
    shards = [[t for d in documents for t in [*d, 4]]]
    context = data.draw(texts)
    drafter.start(np.array(context, np.int32))
    for _ in range(6):
        expected, length = [], reference.longest_match(shards, context, longest)
        while length and not expected:
            counts = reference.continuations(shards, context[-length:], 4, 4, None)
            expected = [row[:2] for row in reference.choose_most_frequent_nodes(counts, 12)]
            length -= 1
        assert drafted(drafter, 12)[0] == expected
        written = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        drafter.accept(np.array(written, np.int32))
        context = context + written


def test_a_draft_after_a_frequent_match_is_made_once(datastore, monkeypatch):
    """For all drafters of the same rules over a datastore."""
    monkeypatch.setattr(rest, "MEMOIZED_ABOVE_OCCURRENCES", 1)
    store = datastore([[1, 2, 3], [1, 2, 4], [5, 6]])
    drafters = [Rest([store]), Rest([store]), Rest([store], options=RestOptions(continuation=1))]
    for drafter in drafters:
        drafter.start(ids(1))
    first, second, other = (drafter.draft(8) for drafter in drafters)
    assert first is second is drafters[0].draft(8)
    assert first is not drafters[0].draft(7)
    assert len(first) > len(other) == 1
    drafters[0].accept(ids(5))
    assert drafters[0].draft(8) is not drafters[0].draft(8)  # it occurs once


def test_a_long_context_is_kept_whole(datastore):
    drafter = Rest([datastore([[1, 2, 3, 4]])])
    drafter.start(np.zeros(10_000, np.int32))
    drafter.accept(np.zeros(9_000, np.int32))
    drafter.accept(ids(2, 3))
    assert drafted(drafter)[0] == [(4, -1)]
    drafter.finish()
    drafter.start(ids(1))
    assert drafted(drafter, 1)[0] == [(2, -1)]


def test_options_that_make_no_sense_are_refused(datastore):
    store = datastore([[1, 2]])
    for options in ({"min_match": 0}, {"min_match": 3, "max_match": 2}, {"continuation": 0}):
        with pytest.raises(UsageError):
            Rest([store], options=RestOptions(**options))
    with pytest.raises(UsageError):
        Rest([store], options=RestOptions(continuation=32))
