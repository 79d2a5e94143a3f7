"""Unigram tables against the formulas, token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_lms import HOLE, MODELS, VOCABULARY, tiny_lm, tiny_tokenizer

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders import model_unigram
from ngramkit.builders.model_unigram import build_model_unigram
from ngramkit.formats.artifact import verify_checksums_and_values

REAL = [i for i in range(VOCABULARY) if i != HOLE]


def naive_scores(model, rule):
    """{token: log p}, straight from the formulas."""
    inputs = model.get_input_embeddings().weight.detach().double().numpy()[REAL]
    outputs = model.get_output_embeddings().weight.detach().double().numpy()[REAL]
    covariance, mean = np.cov(inputs.T), outputs.mean(axis=0)
    scores = {}
    for token, u in zip(REAL, outputs, strict=True):
        if rule == "distance":
            scores[token] = -np.sqrt((u - mean) @ covariance @ (u - mean))
        else:
            scores[token] = -(u @ covariance @ mean)
    whole = np.log(sum(np.exp(score) for score in scores.values()))
    return {token: score - whole for token, score in scores.items()}


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("rule", ["distance", "inner-product"])
def test_scores_are_the_formulas(name, rule, tmp_path):
    model = tiny_lm(name)
    built = build_model_unigram(model, tiny_tokenizer(), tmp_path / "t", k=52, rule=rule)
    table = built.table
    assert list(verify_checksums_and_values(table))
    expected = naive_scores(model, rule)
    assert set(table.tokens.tolist()) == set(REAL)
    for token, score in zip(table.tokens.tolist(), table.scores.tolist(), strict=True):
        assert score == pytest.approx(expected[token], abs=1e-4)
    assert table.manifest.parameters["rule"] == rule
    assert built.seconds > 0


def test_the_best_k(tmp_path):
    model = tiny_lm("llama")
    expected = naive_scores(model, "distance")
    table = build_model_unigram(model, tiny_tokenizer(), tmp_path / "t", k=5).table
    assert table.tokens.tolist() == sorted(expected, key=lambda t: -expected[t])[:5]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("embedding", ["get_input_embeddings", "get_output_embeddings"])
def test_embeddings_that_are_not_finite_are_refused(embedding, value, tmp_path):
    model = tiny_lm("llama")
    with torch.no_grad():
        getattr(model, embedding)().weight[5, 0] = value
    with pytest.raises(InputError, match="infinite or NaN"):
        build_model_unigram(model, tiny_tokenizer(), tmp_path / "t", k=5)
    assert not (tmp_path / "t").exists()


def test_ties_go_to_the_lower_id(tmp_path):
    model = tiny_lm("llama")
    torch.nn.init.ones_(model.lm_head.weight)
    table = build_model_unigram(model, tiny_tokenizer(), tmp_path / "t", k=5).table
    assert table.tokens.tolist() == [0, 1, 2, 3, 4]


def test_padding_changes_nothing(tmp_path):
    """Embeddings behind the tokenizer's ids are whatever training left there."""
    model = tiny_lm("llama")
    before = build_model_unigram(model, tiny_tokenizer(), tmp_path / "a", k=9).table
    with torch.no_grad():
        model.lm_head.weight[VOCABULARY:] = 1e6
        model.lm_head.weight[HOLE] = 1e6
        model.get_input_embeddings().weight[VOCABULARY:] = 1e6
    after = build_model_unigram(model, tiny_tokenizer(), tmp_path / "b", k=9).table
    assert before.tokens.tolist() == after.tokens.tolist()
    assert before.scores.tolist() == after.scores.tolist()


def test_built_again_it_is_up_to_date_with_the_same_bytes(tmp_path):
    model = tiny_lm("llama")
    for name in ("a", "b"):
        build_model_unigram(model, tiny_tokenizer(), tmp_path / name, k=9)
    for name in ("manifest.json", "README.md", "table.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert build_model_unigram(model, tiny_tokenizer(), tmp_path / "a", k=9).seconds is None
    with pytest.raises(UsageError, match="exists"):
        build_model_unigram(model, tiny_tokenizer(), tmp_path / "a", k=8)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"k": 53}, "k must be 1 to 52"),
        ({"rule": "x"}, "rule must be"),
    ],
)
def test_nonsense_is_refused(wrong, says, tmp_path):
    with pytest.raises(UsageError, match=says):
        build_model_unigram(tiny_lm("llama"), tiny_tokenizer(), tmp_path / "t", **wrong)
    assert not list(tmp_path.iterdir())


def test_out_of_memory_is_said(tmp_path, monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(model_unigram, "weight_rows", full)
    with pytest.raises(InputError, match="out of memory"):
        build_model_unigram(tiny_lm("llama"), tiny_tokenizer(), tmp_path / "t", k=5)
    assert not (tmp_path / "t").exists()


def test_a_bare_decoder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no output embedding"):
        build_model_unigram(tiny_lm("llama").model, tiny_tokenizer(), tmp_path / "t")
