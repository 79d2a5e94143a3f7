"""Rows of tokens and the tree they become, against naive twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from twins import kernels as reference

from ngramkit.kernels.arrays import read_only
from ngramkit.kernels.ngrammys import (
    DECAY_PER_RANK,
    ESCAPE,
    best_nodes_of_rows,
    bigram_rows,
    context_then_bigram_tree,
    most_frequent_rows,
)

VOCABULARY, K, WIDTH = 6, 4, 3
contexts = st.lists(st.integers(0, 3), min_size=1, max_size=40)
widths = st.integers(1, 5)
mosts = st.integers(0, 8)
seeds = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=60, deadline=None)
with np.errstate(over="ignore", invalid="ignore"):
    BITS = np.arange(1 << 16, dtype=np.uint16)
    PROBABILITIES = np.exp(BITS.view(np.float16).astype(np.float32))


def table(seed, dtype):
    """A made-up bigram table whose drafts leave the likeliest tokens, as a model's own do.

    Its arrays are read-only, like those of a file."""
    random = np.random.default_rng(seed)
    next_tokens = np.array([random.permutation(VOCABULARY)[:K] for _ in range(VOCABULARY)])
    log_probs = -np.sort(random.random((VOCABULARY, K)), axis=1).astype(np.float16)
    extended = random.integers(0, VOCABULARY, (VOCABULARY, K, WIDTH))
    extended[:, :, 0] = next_tokens
    arrays = next_tokens.astype(dtype), log_probs, extended.astype(dtype)
    return tuple(map(read_only, arrays))


def paths(tree):
    """{path: (score, source)}, and that the arrays are a draft tree at all."""
    token_ids, parents, scores, sources = tree
    assert np.all(parents < np.arange(len(parents)))
    found, path_of = {}, {-1: ()}
    for i, (token, parent) in enumerate(zip(token_ids.tolist(), parents.tolist(), strict=True)):
        path_of[i] = (*path_of[parent], token)
        found[path_of[i]] = (float(scores[i]), int(sources[i]))
    assert len(found) == len(token_ids)
    return found


def assert_same_tree(found, expected):
    assert set(found) == set(expected)
    for path, (score, source) in expected.items():
        assert abs(found[path][0] - score) < 1e-5
        assert found[path][1] == source


@FEW
@given(contexts, widths, mosts)
def test_frequent_rows(tokens, width, most):
    begins = [i + 1 for i in range(len(tokens) - 1) if tokens[i] == tokens[-1]]
    rows, lengths, counts = most_frequent_rows(
        np.array(tokens, np.int32), np.array(begins, np.int64), width, most
    )
    found = [
        (tuple(row[:length].tolist()), int(count))
        for row, length, count in zip(rows, lengths, counts, strict=True)
    ]
    assert found == reference.most_frequent_rows(tokens, begins, width, most)


@FEW
@given(seeds, st.integers(0, VOCABULARY - 1), mosts, widths, st.integers(-1, VOCABULARY - 1))
def test_bigram_rows(seed, last, most, width, eos):
    for dtype in (np.uint16, np.uint32):
        next_tokens, log_probs, extended = table(seed, dtype)
        rows, lengths, gains = bigram_rows(
            next_tokens, log_probs.view(np.uint16), extended, PROBABILITIES, last, most, width, eos
        )
        expected = reference.bigram_rows(
            next_tokens.tolist(), log_probs.tolist(), extended.tolist(), last, most, width, eos
        )
        assert [r[:n].tolist() for r, n in zip(rows, lengths, strict=True)] == [
            row for row, _ in expected
        ]
        for gain, length, (_, chances) in zip(gains, lengths, expected, strict=True):
            np.testing.assert_allclose(gain[:length], chances, rtol=1e-5)


def test_bigram_rows_of_an_id_that_the_tokenizer_lacks():
    next_tokens, log_probs, extended = table(0, np.uint16)
    rows, lengths, gains = bigram_rows(
        next_tokens, log_probs.view(np.uint16), extended, PROBABILITIES, VOCABULARY, 4, 3, -1
    )
    assert len(rows) == len(lengths) == len(gains) == 0


@FEW
@given(st.data(), st.integers(0, 30))
def test_tree_of_rows(data, budget):
    """Gains are binary fractions, so that sums have no rounding to quarrel about."""
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=8), label="rows"
    )
    made = []
    for row in rows:
        steps = data.draw(st.lists(st.integers(0, 8), min_size=len(row), max_size=len(row)))
        gains = [64 - sum(steps[: i + 1]) for i in range(len(row))]
        made.append((row, [gain / 64 for gain in gains], data.draw(st.integers(0, 5))))
    tokens = np.zeros((len(rows), 4), np.int32)
    gains = np.zeros((len(rows), 4))
    for i, (row, gain, _) in enumerate(made):
        tokens[i, : len(row)], gains[i, : len(row)] = row, gain
    lengths = np.array([len(row) for row in rows], np.int64)
    sources = np.array([source for *_, source in made], np.uint8)
    tree = best_nodes_of_rows(tokens, lengths, gains, sources, budget)
    assert_same_tree(paths(tree), reference.best_nodes_of_rows(made, budget))


@FEW
@given(contexts, seeds, st.integers(0, 6), widths, st.integers(-1, 3))
def test_mixed_tree(tokens, seed, most, width, eos):
    next_tokens, log_probs, extended = table(seed, np.uint16)
    begins = [i + 1 for i in range(len(tokens) - 1) if tokens[i] == tokens[-1]]
    sources = np.array([3, 4], np.uint8)
    tree = context_then_bigram_tree(
        np.array(tokens, np.int32),
        np.array(begins, np.int64),
        next_tokens,
        log_probs.view(np.uint16),
        extended,
        PROBABILITIES,
        most,
        width,
        eos,
        sources,
        1000,
    )
    mass = len(begins) + ESCAPE
    rows = []
    for row, count in reference.most_frequent_rows(tokens, begins, width, most):
        end = row.index(eos) + 1 if eos in row else len(row)
        rows.append((row, [count / mass * DECAY_PER_RANK**d for d in range(end)], 3))
    table_lists = (next_tokens.tolist(), log_probs.tolist(), extended.tolist())
    for row, chances in reference.bigram_rows(
        *table_lists, tokens[-1], most - len(rows), width, eos
    ):
        rows.append((row, [chance * ESCAPE / mass for chance in chances], 4))
    whole = paths(tree)
    assert_same_tree(whole, reference.best_nodes_of_rows(rows, 1000))
    scores = [score for score, _ in whole.values()]
    assert all(0 <= score <= 1 + 1e-6 for score in scores)
