"""What drafters make of references, on token lists that fit on a line."""

from __future__ import annotations

import numpy as np
import pytest

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import DraftTree, Source
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.references import ReferenceTexts, put_before, start_with_references
from ngramkit.drafters.registry import DRAFTERS, NoDraft
from ngramkit.evaluate.records import Turn
from ngramkit.evaluate.replay_loop import replay_turn
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord("small", 1000, "f" * 64, None)
ABLE = [name for name, entry in DRAFTERS.items() if entry.references]
TEXT = list(range(100, 200))


def ids(tokens):
    return np.array(tokens, np.int32)


def made(name):
    past = PastRequests(tokenizer=RECORD, background=False) if name == "ssd" else None
    return load_drafter(name, tokenizer=RECORD, past=past)


def first_path(tree):
    """From the root, each node's first child."""
    found, at = [], -1
    for node, parent in enumerate(tree.parents.tolist()):
        if parent == at:
            found.append(int(tree.token_ids[node]))
            at = node
    return found


def test_those_that_can_are_named():
    assert ABLE == ["blend", "context", "prompt-lookup", "ssd"]


@pytest.mark.parametrize("name", ABLE)
def test_a_reference_is_followed_before_the_context(name):
    drafter = made(name)
    drafter.start(ids([1, 2, 3, 104, 7, 7, 7, 104, 7]), references=[ids(TEXT)])
    tree = drafter.draft(8)
    tree.check()
    drafter.accept(ids([100, 101, 102, 103, 104]))  # 7 by the context, 105 by the reference
    tree = drafter.draft(8)
    tree.check()
    assert first_path(tree)[:6] == [105, 106, 107, 108, 109, 110]
    # blend calls a node by who held it first.
    assert Source.REFERENCE in tree.source


@pytest.mark.parametrize("name", ABLE)
def test_a_prompt_that_ends_inside_a_reference_goes_on_there(name):
    drafter = made(name)
    drafter.start(ids(TEXT[40:60]), references=[ids([5, 6]), ids(TEXT)])
    assert first_path(drafter.draft(8))[:4] == TEXT[60:64]


@pytest.mark.parametrize("name", ABLE)
def test_a_reference_may_be_shorter_than_a_place_in_it_is_known_by(name):
    drafter = made(name)
    drafter.start(ids([7] * 6), references=[ids([7, 7, 8])])
    drafter.draft(8).check()


@pytest.mark.parametrize("name", ABLE)
def test_after_a_divergence_it_finds_its_way_back(name):
    """One token replaced, four put in, ten left out: two tokens later it is drafted again."""
    for change in ([900], [900, 901, 902, 903, *TEXT[20:21]], TEXT[30:31]):
        drafter = made(name)
        drafter.start(ids([1, 2]), references=[ids(TEXT)])
        drafter.accept(ids(TEXT[:20]))
        drafter.draft(8)
        begin = {900: 21, TEXT[30]: 31}[change[0]]
        for token in [*change, *TEXT[begin : begin + 2]]:
            drafter.accept(ids([token]))
        assert first_path(drafter.draft(8))[:3] == TEXT[begin + 2 : begin + 5]


@pytest.mark.parametrize("name", ABLE)
def test_what_was_renamed_once_is_renamed_again(name):
    """The old name is 50, the new one 800, 801."""
    old = [t for at in range(100, 200, 10) for t in (*range(at, at + 9), 50, 7, 7)]
    new = [t for token in old for t in ([800, 801] if token == 50 else [token])]
    tally = {}
    for references in ((), [ids(old)]):
        turn = Turn(ids([1, 2]), ids(new), tuple(references))
        tally[len(references)] = replay_turn(made(name), turn, 8)
    assert tally[0].tokens_per_step < 3
    assert tally[1].tokens_per_step > 7


@pytest.mark.parametrize("name", ABLE)
def test_the_second_reference_is_followed_once_the_first_is_refuted(name):
    drafter = made(name)
    drafter.start(ids([1, 2]), references=[ids([5, 6]), ids(TEXT)])
    assert first_path(drafter.draft(8))[:1] == [5]
    drafter.accept(ids(TEXT[:1]))
    assert first_path(drafter.draft(8))[:3] == TEXT[1:4]


def test_a_tree_has_the_beginnings_of_two_references():
    drafter = made("blend")
    drafter.start(ids([1, 2]), references=[ids([5, 6]), ids(TEXT)])
    tree = drafter.draft(8)
    assert {5, TEXT[0]} <= set(tree.token_ids[tree.parents < 0].tolist())


def test_references_never_join_past_requests():
    past = PastRequests(tokenizer=RECORD, background=False)
    for name in ("ssd", "blend"):
        drafter = load_drafter(name, tokenizer=RECORD, past=past)
        drafter.start(ids([1, 2, 3]), references=[ids(TEXT)])
        drafter.accept(ids([4, 5]))
        drafter.draft(8)
        drafter.finish()
    stream = [t for part in past.shards for shard in part for t in shard.tokens.tolist()]
    assert stream == [1, 2, 3, 4, 5, past.separator] * 2


@pytest.mark.parametrize("name", ABLE)
def test_the_next_request_knows_nothing_of_them(name):
    once, again = made(name), made(name)
    once.start(ids([1, 2, 3]), references=[ids(TEXT)])
    once.accept(ids(TEXT[:9]))
    once.draft(8)
    once.finish()
    if name == "ssd":
        again.start(ids([1, 2, 3]))
        again.accept(ids(TEXT[:9]))
        again.finish()
    for drafter in (once, again):
        drafter.start(ids([4, 4, 100, 101, 4, 100]))
        drafter.accept(ids([101]))
    one, other = once.draft(8), again.draft(8)
    np.testing.assert_array_equal(one.token_ids, other.token_ids)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6)


def test_blend_learns_how_far_references_can_be_trusted():
    """One that is never right hardly changes the scores."""
    rng = np.random.default_rng(0)
    reference, written = ids(rng.integers(0, 40, 4000)), rng.integers(0, 40, 300)
    scores = []
    for references in ((), (reference,)):
        drafter = made("blend")
        drafter.start(ids([1]), references=references)
        found = []
        for token in written:
            found.append(float(drafter.draft(4).scores.sum()))
            drafter.accept(ids([token]))
        scores.append(np.array(found))
    without, misled = scores
    assert misled[-100:].mean() < 1.1 * without[-100:].mean()


def test_texts_are_sorted_once_and_ids_checked():
    texts = ReferenceTexts([TEXT, np.array([70_000, 3], np.int64)])
    assert (len(texts), texts.tokens) == (2, 102)
    assert repr(texts) == "<ReferenceTexts 2 texts, 102 tokens>"
    drafter = made("context")
    drafter.start(ids([1, 70_000]), references=texts)
    drafter.accept(ids([70_000]))
    for wrong in ([[]], [[1, -2]], [[1.5]], [[1 << 24]], [[[1]]], ["text"], "text"):
        with pytest.raises(UsageError, match="reference"):
            drafter.start(ids([1]), references=wrong)


@pytest.mark.parametrize("drafter", ["rest", "none", "cacheback", "ngrammys", "bigram", "unigram"])
def test_others_refuse_and_name_those_that_can(drafter):
    from ngramkit.drafters.references import require_references

    message = f"with {drafter}: only blend, context, prompt-lookup and ssd can"
    with pytest.raises(UsageError, match=message):
        require_references(drafter)


def test_an_object_that_does_not_say_it_can_is_refused():
    with pytest.raises(UsageError, match="cannot draft from references with NoDraft"):
        start_with_references(NoDraft(), ids([1]), [ids(TEXT)])
    start_with_references(NoDraft(), ids([1]), ())


def test_a_chain_stands_before_a_tree():
    tree = DraftTree(
        ids([7, 8, 9, 5]), ids([-1, 0, -1, 2]), np.array([0.5, 0.9, 0.3, 0.2], np.float32),
        np.zeros(4, np.uint8),
    )  # fmt: skip
    found = put_before(ids([7, 6]), np.array([0.8, 0.7], np.float32), tree, 4)
    found.check()
    assert found.token_ids.tolist() == [7, 6, 8, 9]
    assert found.parents.tolist() == [-1, 0, 0, -1]
    np.testing.assert_allclose(found.scores, [0.8, 0.7, 0.9, 0.3])
    assert found.source.tolist() == [Source.REFERENCE, Source.REFERENCE, 0, 0]
