"""bigram, unigram and ngrammys over small tables."""

from __future__ import annotations

import numpy as np
import pytest

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.drafters.base import Source
from ngramkit.drafters.create import load_drafter
from ngramkit.formats.model_bigram import ModelBigram
from ngramkit.formats.model_unigram import ModelUnigram
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.tokenizer_record import TokenizerRecord

EOS = 3
RECORD = TokenizerRecord("made-up", 4, "f4", EOS)
NEXT = np.array([[1, 2], [2, 0], [0, 3], [0, 1]], np.uint16)
PROBABILITIES = np.array([[0.5, 0.25], [0.5, 0.125], [0.75, 0.25], [0.5, 0.25]])
EXTENDED = np.array(
    [
        [[1, 2, 0], [2, 0, 1]],
        [[2, 0, 1], [0, 1, 2]],
        [[0, 1, 2], [3, 0, 1]],
        [[0, 1, 2], [1, 2, 0]],
    ],
    np.uint16,
)


@pytest.fixture
def bigram(tmp_path):
    parameters = {"k": 2, "width": 3, "extend": "bigram"}
    with ArtifactWriter(tmp_path / "bigram", "model-bigram", parameters) as writer:
        log_probs = np.log(PROBABILITIES).astype(np.float16)
        arrays = {"next_tokens": NEXT, "log_probs": log_probs, "extended": EXTENDED}
        writer.write("table.safetensors", arrays)
        writer.commit(RECORD, parameters=parameters, corpus={}, counts={"rows": 4, "drafts": 8})
    return ModelBigram.open(tmp_path / "bigram")


@pytest.fixture
def unigram(tmp_path):
    with ArtifactWriter(tmp_path / "unigram", "model-unigram", {"k": 3}) as writer:
        tokens = np.array([2, 0, 1], np.uint16)
        scores = np.log([0.5, 0.25, 0.125]).astype(np.float32)
        writer.write("table.safetensors", {"tokens": tokens, "scores": scores})
        writer.commit(RECORD, parameters={"k": 3}, corpus={}, counts={"rows": 3})
    return ModelUnigram.open(tmp_path / "unigram")


def after(drafter, tokens, budget):
    drafter.start(np.array(tokens[:1], np.int32))
    if tokens[1:]:
        drafter.accept(np.array(tokens[1:], np.int32))
    tree = drafter.draft(budget)
    tree.check()
    assert len(tree) <= budget
    drafter.finish()
    return tree


def test_bigram_drafts_whole_rows(bigram):
    tree = after(load_drafter("bigram", bigram=bigram), [1, 0], 64)
    assert tree.token_ids.tolist() == [1, 2, 0, 2, 0, 1]
    assert tree.parents.tolist() == [-1, 0, 1, -1, 3, 4]
    expected = [0.5, 0.25, 0.1875, 0.25, 0.1875, 0.09375]
    np.testing.assert_allclose(tree.scores, expected, rtol=2e-3)
    assert set(tree.source.tolist()) == {Source.MODEL}


def test_bigram_keeps_the_likeliest_nodes(bigram):
    """After 1, that 2 and 0 follow (3 in 8) is likelier than that 0 follows at once (1 in 8)."""
    tree = after(load_drafter("bigram", bigram=bigram), [1], 2)
    assert tree.token_ids.tolist() == [2, 0]
    assert tree.parents.tolist() == [-1, 0]


def test_bigram_stops_at_the_end_of_a_text(bigram):
    tree = after(load_drafter("bigram", bigram=bigram), [2], 64)
    assert EOS in tree.token_ids
    assert int(np.flatnonzero(tree.token_ids == EOS)[0]) not in tree.parents


def test_bigram_can_be_narrowed(bigram):
    tree = after(load_drafter("bigram", bigram=bigram, rows=1, width=2), [0], 64)
    assert tree.token_ids.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["bigram", "ngrammys"])
def test_an_id_beyond_the_tokenizers_gives_no_draft(name, bigram):
    assert len(after(load_drafter(name, bigram=bigram), [1, 4], 64)) == 0
    assert len(after(load_drafter(name, bigram=bigram), [], 64)) == 0


def test_unigram_drafts_the_same_tokens_whatever_came(unigram):
    for tokens in ([0], [1, 3]):
        tree = after(load_drafter("unigram", unigram=unigram), tokens, 2)
        assert tree.token_ids.tolist() == [2, 0]
        assert tree.parents.tolist() == [-1, -1]
        np.testing.assert_allclose(tree.scores, [0.5, 0.25])


def test_ngrammys_puts_the_context_first_and_fills_with_bigrams(bigram):
    drafter = load_drafter("ngrammys", bigram=bigram, rows=3, width=3)
    tree = after(drafter, [0, 2, 2, 1, 0], 64)
    assert tree.token_ids[:3].tolist() == [2, 2, 1]
    assert tree.parents[:3].tolist() == [-1, 0, 1]
    assert set(tree.source[:3].tolist()) == {Source.CONTEXT}
    # Two rows are left; the second begins with a 2 as the context's does, and shares its node.
    assert tree.token_ids[3:].tolist() == [1, 2, 0, 0, 1]
    assert tree.parents[3:].tolist() == [-1, 3, 4, 0, 6]
    assert set(tree.source[3:].tolist()) == {Source.MODEL}


def test_ngrammys_never_has_more_rows_than_asked(bigram):
    drafter = load_drafter("ngrammys", bigram=bigram, rows=1, width=2)
    assert after(drafter, [0, 2, 2, 1, 0], 64).token_ids.tolist() == [2, 2]
    assert after(drafter, [2, 0], 64).token_ids.tolist() == [1, 2]


def test_ngrammys_shortens_a_query_that_is_new(bigram):
    """The context ends with 1 0, which is new; 0 alone was there, and 2 3 came after it."""
    drafter = load_drafter("ngrammys", bigram=bigram, rows=1, width=2, query=2)
    assert after(drafter, [0, 2, 3, 1, 0], 64).token_ids.tolist() == [2, 3]


def test_ngrammys_ranks_the_context_by_count_then_the_later_one(bigram):
    drafter = load_drafter("ngrammys", bigram=bigram, rows=1, width=1)
    assert after(drafter, [0, 1, 0, 2, 0, 1, 0], 64).token_ids.tolist() == [1]
    assert after(drafter, [0, 1, 0, 2, 0], 64).token_ids.tolist() == [2]


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"width": 0}, {"query": 0}])
def test_ngrammys_refuses_nonsense(wrong, bigram):
    with pytest.raises(UsageError):
        load_drafter("ngrammys", bigram=bigram, **wrong)


def test_a_table_is_needed_and_of_the_right_kind(bigram, unigram):
    with pytest.raises(UsageError, match="needs a model-bigram"):
        load_drafter("ngrammys")
    with pytest.raises(ArtifactError, match="must be a model-bigram, got a model-unigram"):
        load_drafter("bigram", bigram=unigram)


def test_context_scores_are_the_share_of_occurrences_that_go_on_so():
    """After 5: 6 7 twice, 6 8 once, 9 9 once."""
    drafter = load_drafter("context", query=1, width=2)
    tree = after(drafter, [5, 6, 7, 5, 6, 8, 5, 9, 9, 5, 6, 7, 5], 64)
    assert tree.token_ids.tolist() == [6, 7, 9, 9, 8]
    assert tree.parents.tolist() == [-1, 0, -1, 2, 0]
    assert tree.scores.tolist() == [0.75, 0.5, 0.25, 0.25, 0.25]
