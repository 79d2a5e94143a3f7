"""Sampled text has the model's own distribution, with drafts as without."""

from __future__ import annotations

import itertools

import attacks
import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from scipy.stats import chisquare
from scripted import NoisyOracle, choice_of, warpers
from tiny_models import tiny_model

from ngramkit.basics.errors import UsageError
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.decode.sampling import Sampling, SeededDraw, distances_to_draw
from ngramkit.decode.verify_rows import ChainVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.registry import NoDraft

VOCABULARY = 5
PROMPT = np.array([1, 4, 2, 2, 3], np.int32)
RUNS = 400
SETTINGS = {"temperature": 1.3, "top_k": 4, "top_p": 0.95}


SMALL = {
    "vocab_size": VOCABULARY, "num_hidden_layers": 1, "initializer_range": 0.2, "eos_token_id": None
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama", **SMALL)


@pytest.fixture(scope="module")
def exact(model):
    return distribution(model)


def distribution(model, setting=SETTINGS):
    """The probability of every three tokens after PROMPT, by enumeration."""
    prefixes = [[*PROMPT.tolist(), *two] for two in itertools.product(range(VOCABULARY), repeat=2)]
    processors = warpers(Sampling(**setting))
    with torch.inference_mode():
        logits = model(torch.tensor(prefixes)).logits[:, -3:]
        flat = processors(None, logits.flatten(0, 1).float()).double().softmax(-1)
    steps = flat.view(VOCABULARY, VOCABULARY, 3, VOCABULARY).numpy()
    first = steps[0, 0, 0]
    second = steps[:, 0, 1]
    return first[:, None, None] * second[:, :, None] * steps[:, :, 2]


def sampled(model, drafter, seed, new_tokens=4, verifier=TreeVerifier, setting=SETTINGS):
    request = Request(PROMPT, new_tokens, 12, choice_of(Sampling(**setting, seed=seed)))
    return decode(verifier(model, room=32), drafter, request)


def p_value(counts, exact, least=20):
    """Of the chi-squared test; triples too rare for it are judged together."""
    counts, expected = counts.ravel(), exact.ravel() * counts.sum()
    often = expected >= 5
    observed = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    assert often.sum() >= least
    if wanted[-1] < 1e-6:  # none is rare
        observed, wanted = observed[:-1], wanted[:-1]
    return chisquare(observed, wanted * (observed.sum() / wanted.sum())).pvalue


@pytest.mark.parametrize("drafts", [False, True])
def test_first_three_tokens_follow_the_exact_distribution(model, exact, drafts):
    counts = np.zeros(exact.shape)
    accepted = 0
    for seed in range(RUNS):
        guess = np.random.default_rng(seed).integers(0, VOCABULARY, 5)
        drafter = NoisyOracle(guess, VOCABULARY, seed) if drafts else NoDraft()
        run = sampled(model, drafter, seed + 10_000 * drafts)
        counts[tuple(run.token_ids[:3])] += 1
        accepted += sum(run.accepted_per_pass)
    assert accepted > RUNS / 4 if drafts else accepted == 0
    assert np.all(counts[exact == 0] == 0)
    assert p_value(counts, exact) > 0.001


def test_so_do_those_of_a_model_with_recurrent_layers():
    model = tiny_model("mamba2", **SMALL)
    exact, accepted = distribution(model), 0
    counts = np.zeros(exact.shape)
    for seed in range(RUNS):
        guess = np.random.default_rng(seed).integers(0, VOCABULARY, 5)
        run = sampled(model, NoisyOracle(guess, VOCABULARY, seed), seed, verifier=ChainVerifier)
        counts[tuple(run.token_ids[:3])] += 1
        accepted += sum(run.accepted_per_pass)
    assert accepted > RUNS / 8
    assert np.all(counts[exact == 0] == 0)
    assert p_value(counts, exact) > 0.001


EACH = [
    {"temperature": 1.0},
    {"temperature": 0.4},
    {"temperature": 3.0},
    {"temperature": 1.0, "top_k": 2},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 0.7, "top_k": 3, "top_p": 0.9},
]


@pytest.mark.attack
@pytest.mark.parametrize("setting", EACH, ids=str)
def test_so_does_every_setting(model, setting):
    """With drafts as without, a seed gives the same text."""
    seeds = 1_500
    exact, accepted = distribution(model, setting), 0
    counts = np.zeros(exact.shape)
    for seed in range(seeds):
        plain = sampled(model, NoDraft(), seed, setting=setting)
        drafter = NoisyOracle(plain.token_ids, VOCABULARY, seed)
        drafted = sampled(model, drafter, seed, setting=setting)
        assert drafted.token_ids.tolist() == plain.token_ids.tolist()
        counts[tuple(plain.token_ids[:3])] += 1
        accepted += sum(drafted.accepted_per_pass)
    assert accepted > seeds
    assert np.all(counts[exact == 0] == 0)
    assert p_value(counts, exact, least=2) > 0.001
    attacks.tally("seeds of every sampling setting", "the model's distribution", seeds)


def test_only_the_drawn_token_is_at_no_distance_from_its_draw():
    scores = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    scores[:, 7] = -torch.inf
    draws = SeededDraw(3)
    for index, row in enumerate(scores):
        found = distances_to_draw(row, 3, index)
        assert found.argmin() == draws.draw(row[None])
        assert (found == 0).sum() == 1


@given(seed=st.integers(0, 1000), index=st.integers(0, 20), token=st.integers(0, 19))
def test_no_smaller_change_of_scores_draws_a_token(seed, index, token):
    scores = torch.randn(20, generator=torch.Generator().manual_seed(seed))
    distances = distances_to_draw(scores, seed, index)
    drawn, distance = int(distances.argmin()), float(distances[token])
    assume(distance > 0.01)
    below, tokens = token < drawn, torch.arange(20)
    raised = tokens <= token if below else tokens >= token
    for change, reaches in ((0.99 * distance, False), (1.01 * distance, True)):
        changed = torch.where(raised, scores + change, scores - change)
        now = int(distances_to_draw(changed, seed, index).argmin())
        assert ((now <= token) if below else (now >= token)) == reaches


def test_a_wrong_distribution_would_be_noticed(exact):
    random = np.random.default_rng(0)
    tilted = exact.ravel() ** 1.5
    counts = random.multinomial(RUNS, tilted / tilted.sum())
    assert p_value(counts, exact) < 0.001


@pytest.mark.parametrize(
    "nonsense",
    [
        {"temperature": -1.0},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1.5},
        {"temperature": 1.0, "top_k": -1},
        {"top_k": 4},
        {"top_p": 0.5},
    ],
)
def test_nonsense_is_a_usage_error(nonsense):
    with pytest.raises(UsageError):
        Sampling(**nonsense)
