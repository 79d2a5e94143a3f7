"""Bigram tables against one full softmax per token."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from bigram_tables import REAL, WIDTH, K, build
from tiny_lms import BOS, MODELS, VOCABULARY, tiny_lm

from ngramkit.builders import model_topk
from ngramkit.formats.artifact import verify_checksums_and_values


def naive_logits(model, tokens):
    """float64[real tokens] after `tokens`; the others' are not there to be chosen."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0, -1].double().numpy()[REAL]


def naive_row(model, tokens, k):
    logits = naive_logits(model, tokens)
    log_probs = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
    best = sorted(range(len(REAL)), key=lambda i: (-np.float32(logits[i]), i))[:k]
    return [REAL[i] for i in best], log_probs[best]


def naive_greedy(model, tokens, length):
    tokens = list(tokens)
    for _ in range(length):
        tokens.append(REAL[int(np.argmax(naive_logits(model, tokens)))])
    return tokens[-length:]


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    return tiny_lm(request.param)


@pytest.fixture(scope="module")
def llama():
    return tiny_lm("llama")


@pytest.mark.parametrize("prefix", ["none", "bos"])
def test_every_row_is_the_models_softmax(model, prefix, tmp_path):
    table = build(model, tmp_path / "t", prefix=prefix)
    assert list(verify_checksums_and_values(table))
    before = [BOS] if prefix == "bos" else []
    for token in range(VOCABULARY):
        best, log_probs = naive_row(model, [*before, token], K)
        assert table.next_tokens[token].tolist() == best
        np.testing.assert_allclose(table.log_probs[token], log_probs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("prefix", ["none", "bos"])
def test_drafts_are_the_models_own_where_asked(model, prefix, tmp_path):
    table = build(model, tmp_path / "t", prefix=prefix, extend="model")
    assert list(verify_checksums_and_values(table))
    before = [BOS] if prefix == "bos" else []
    for token in range(0, VOCABULARY, 13):
        for j in range(K):
            start = [*before, token, int(table.next_tokens[token, j])]
            assert table.extended[token, j, 1:].tolist() == naive_greedy(model, start, WIDTH - 1)


def test_drafts_follow_the_likeliest_tokens_otherwise(llama, tmp_path):
    table = build(llama, tmp_path / "t")
    for token in range(VOCABULARY):
        for j in range(K):
            draft = table.extended[token, j].tolist()
            assert draft[0] == table.next_tokens[token, j]
            for before, after in itertools.pairwise(draft):
                assert after == table.next_tokens[before, 0]


def test_all_real_tokens_and_no_others(model, tmp_path):
    table = build(model, tmp_path / "t", k=len(REAL), width=1)
    assert table.extended.shape == (VOCABULARY, len(REAL), 1)
    for row in table.next_tokens:
        assert sorted(row.tolist()) == REAL
    sums = np.exp(table.log_probs.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=2e-3)


def test_ties_go_to_the_lower_id(llama, tmp_path):
    flat = tiny_lm("llama")
    torch.nn.init.zeros_(flat.lm_head.weight)
    table = build(flat, tmp_path / "t")
    assert table.next_tokens.tolist() == [list(range(K))] * VOCABULARY


def test_selection_orders_every_kind_of_number():
    values = torch.tensor([[-0.0, 0.0, -1.5, float("-inf"), 2.0, -1.5, 2.0, 1e-30, -1e-30]])
    assert model_topk.select_likeliest(values, 9).tolist() == [[4, 6, 7, 0, 1, 8, 2, 5, 3]]


def test_drafts_of_one_token_are_the_next_tokens(llama, tmp_path):
    table = build(llama, tmp_path / "t", width=1, extend="model")
    assert np.array_equal(table.extended[:, :, 0], table.next_tokens)
