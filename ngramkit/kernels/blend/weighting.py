"""Mix counts into one prediction, and other predictions as far as they were right before.

Counts become probabilities as a mixture of all columns (`blend.counts`):

    p(t) = sum over columns c of gate[c] * counts[t, c] / totals[c]

The gates are a fitted softmax (research.fit_blend) of each column's total, distinct successors and
their ratio, plus one for "none of these". Then each candidate is corrected for its frequency and
its recency in the context.

An *account*, float64[2], counts how often another kind of prediction was right and used, in shares
of credit. Their ratio is its weight, learnt by one step of expectation maximisation per written
token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import CONTEXT, DATASTORE, FROZEN, Array
from ngramkit.kernels.blend.counts import (
    COLUMNS,
    HOPS,
    MAX_CANDIDATES,
    MAX_COUNTED_CONTEXT,
    MAX_MEASURED_MATCH,
    N_LEVELS,
    PAIR,
    SAMPLE,
    SCAN,
    SearchedCorpus,
    clear_counts,
    count_corpus,
    count_frozen,
    count_live,
    listed_row,
    longest_order,
    row_of,
)
from ngramkit.kernels.frozen_lookup import SIZE
from ngramkit.kernels.jit import part

GATE_FEATURES = 3 * COLUMNS + 1  # inputs of the gates
GATES = COLUMNS + 2  # the columns, none, and none's correction
WIDTH = 16  # gates in the kernel, padded: the processor adds eight at once
TOKEN_FEATURES = 7  # inputs of a candidate's correction
MIN_CORRECTED = np.float32(2e-3)  # probability of a corrected candidate, at least
MAX_CORRECTION = np.float32(0.5)  # a correction hardly ever doubles a probability
LONG_AGO = 4096  # tokens; the age of a token that never occurred
LOG_OF_DISTANCE = np.log1p(np.arange(LONG_AGO + 1)).astype(np.float32)

RIGHT, USED = range(2)  # columns of an account
PRIOR_TOKENS = 10.0  # weight of the first trust, in tokens
SURENESS_CLASSES = 4  # classes of a prediction's highest probability
UNSEEN_PROBABILITY = np.float32(1e-6)  # the probability of a token that a prediction does not list

OCCURRENCE_CLASSES = 3  # classes of occurrences: one, two or three, more
FIRST_TRUST = (0.02, 0.06, 0.12, 0.25, 0.4, 0.7)  # by match length, LEVELS
MAX_CONTINUATIONS = 32  # successors of a match that are mixed in, at most


# Gates and corrections.


class Weights(NamedTuple):
    """The fitted weights, float32."""

    gate_in: Array  # [GATE_FEATURES, H]
    gate_bias: Array  # [H]
    gate_out: Array  # [H, GATES]
    gate_out_bias: Array  # [GATES]
    token_in: Array  # [TOKEN_FEATURES, R]
    token_bias: Array  # [R]
    token_out: Array  # [R + 1], the last scales log p


def pad_gates(weights: Weights) -> Weights:
    more = 0, WIDTH - GATES
    return weights._replace(
        gate_out=np.pad(weights.gate_out, ((0, 0), more)),
        gate_out_bias=np.pad(weights.gate_out_bias, more),
    )


class Scratch(NamedTuple):
    gate_features: Array  # [GATE_FEATURES]
    hidden: Array  # [H]
    gates: Array  # [WIDTH]
    token_features: Array  # [TOKEN_FEATURES]
    units: Array  # [R]
    p: Array  # [MAX_CANDIDATES]


def new_scratch(weights: Weights) -> Scratch:
    hidden, units = len(weights.gate_bias), len(weights.token_bias)
    sizes = GATE_FEATURES, hidden, WIDTH, TOKEN_FEATURES, units, MAX_CANDIDATES
    return Scratch(*(np.empty(size, np.float32) for size in sizes))


@part
def log1p(count):
    """Return log(1 + count) of a whole number, float32."""
    whole = np.int64(count)
    if np.uint64(whole) <= np.uint64(LONG_AGO):
        return LOG_OF_DISTANCE[whole]
    return np.log1p(count)


@part
def gate_features_of(into, size, x):
    for c in range(COLUMNS):
        total, distinct = into.totals[c], into.distinct[c]
        x[c] = log1p(total) * np.float32(0.25)
        x[COLUMNS + c] = log1p(distinct) * np.float32(0.33)
        x[2 * COLUMNS + c] = min(distinct / (total + np.float32(1)), np.float32(1))
    x[3 * COLUMNS] = log1p(np.float32(size)) * np.float32(0.14)


@part
def apply_layer(x, matrix, bias, out):
    """Set out float32[n] to bias + x @ matrix, four rows at a time.

    Each loop first checks arrays for overlap, which takes as long as its sums.
    """
    for n in range(len(out)):
        out[n] = bias[n]
    whole = len(x) & ~3
    for i in range(0, whole, 4):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        if a == 0 and b == 0 and c == 0 and d == 0:
            continue
        for n in range(len(out)):
            sums = out[n] + a * matrix[i, n] + b * matrix[i + 1, n]
            out[n] = sums + c * matrix[i + 2, n] + d * matrix[i + 3, n]
    for i in range(whole, len(x)):
        for n in range(len(out)):
            out[n] += x[i] * matrix[i, n]


@part
def weigh_suffix_lengths(weights, x, into, hidden, out):
    """Set out float32[WIDTH]: a gate per column, 0 if empty, for none, and none's correction."""
    apply_layer(x, weights.gate_in, weights.gate_bias, hidden)
    for h in range(len(hidden)):
        hidden[h] = max(hidden[h], np.float32(0))
    apply_layer(hidden, weights.gate_out, weights.gate_out_bias, out)
    top = out[COLUMNS]
    for c in range(COLUMNS):
        if into.totals[c] > 0:
            top = max(top, out[c])
    total = np.float32(0)
    for c in range(COLUMNS + 1):
        if c == COLUMNS or into.totals[c] > 0:
            out[c] = np.exp(out[c] - top)
            total += out[c]
        else:
            out[c] = 0
    for c in range(COLUMNS + 1):
        out[c] /= total


@part
def weighted_counts(gates, counts):
    """Return the weighted sums over the columns of corpora and of the live context."""
    corpora, live = np.float32(0), np.float32(0)
    for c in range(COLUMNS // 2):
        corpora += gates[c] * counts[c]
        live += gates[COLUMNS // 2 + c] * counts[COLUMNS // 2 + c]
    return corpora, live


@part
def correct_by_network(weights, into, live, size, shares, least, none, scratch):
    """Correct scratch.p for what counts do not show; normalise it with all other tokens.

    `none` corrects the other tokens. Candidates well below `least` are not corrected. `shares`
    float32[V + 1] is log(1 + each token's share of the corpora, in millionths).
    """
    rows = into.state[0]
    token_features, p = scratch.token_features, scratch.p
    listed = np.float32(0)
    for row in range(rows):
        listed += p[row]
    total = max(np.float32(1) - listed, np.float32(1e-6)) * np.exp(none)
    floor = max(MIN_CORRECTED, least * MAX_CORRECTION)
    for row in range(rows):
        if p[row] >= floor:
            log_p = np.log(p[row])
            token_features_of(
                into, row, live, size, shares[into.tokens[row]], log_p, token_features
            )
            p[row] = np.exp(log_p_by_network(weights, token_features, log_p, scratch.units))
        total += p[row]
    for row in range(rows):
        p[row] /= total


@part
def token_features_of(into, row, live, size, share, log_p, x):
    token = into.tokens[row]
    latest, newest = live.latest[token], into.newest[row]
    seen = live.seen[latest] if latest >= 0 else 0
    age = size - latest if latest >= 0 else LONG_AGO
    since = size - newest if newest >= 0 else LONG_AGO
    x[0] = log_p * np.float32(0.25)
    x[1] = share * np.float32(0.2)
    x[2] = log1p(np.float32(seen)) * np.float32(0.5)
    x[3] = log1p(np.float32(age)) * np.float32(0.12)
    x[4] = log1p(np.float32(since)) * np.float32(0.12)
    x[5] = into.counts[row, COLUMNS // 2] > 0
    x[6] = into.counts[row, PAIR] > 0


@part
def log_p_by_network(weights, x, log_p, units):
    apply_layer(x, weights.token_in, weights.token_bias, units)
    y = log_p * weights.token_out[len(units)]
    for h in range(len(units)):
        y += max(units[h], np.float32(0)) * weights.token_out[h]
    return y


# Counts.


@part
def count_in_sources(sources, intervals, recent, size):
    into, limits = sources.into, sources.limits
    clear_counts(into)
    if len(sources.corpus.table):
        into.state[2] = DATASTORE
        count_corpus(
            sources.corpus, np.int64(1), intervals, recent, into, limits[SCAN], limits[SAMPLE],
            np.int64(MAX_COUNTED_CONTEXT),
        )  # fmt: skip
    if sources.frozen.where[SIZE]:
        into.state[2] = FROZEN
        count_frozen(sources.frozen, recent, into, sources.second)
    into.state[2] = CONTEXT
    count_live(sources.live, size, recent, into, limits[HOPS])


@part
def weigh_counts_by_gates(sources, intervals, recent, size):
    """Set scratch.p by the counts of all sources; return the correction of none."""
    into, scratch, gates = sources.into, sources.scratch, sources.scratch.gates
    count_in_sources(sources, intervals, recent, size)
    gate_features_of(into, size, scratch.gate_features)
    weigh_suffix_lengths(sources.weights, scratch.gate_features, into, scratch.hidden, gates)
    for c in range(COLUMNS):
        if into.totals[c] > 0:
            gates[c] /= into.totals[c]
    for row in range(into.state[0]):
        corpora, live = weighted_counts(gates, into.counts[row])
        scratch.p[row] = corpora + live
        if live > corpora:
            into.source[row] = CONTEXT
    return gates[COLUMNS + 1]


# Accounts.


@part
def sureness_class(into, p):
    highest = np.float32(0)
    for row in range(into.state[0]):
        highest = max(highest, p[row])
    return max(min(np.int64(highest * SURENESS_CLASSES), SURENESS_CLASSES - 1), 0)


@part
def learn_trust_and_mix_in(account, tokens, theirs, into, p, written):
    """Mix a prediction in, after crediting it with the token that followed, `written`, or -1."""
    if written >= 0:
        _learn_trust(account, tokens, theirs, into, p, written)
    weigh_by_trust_and_mix_in(account, tokens, theirs, into, p)


@part
def _learn_trust(account, tokens, theirs, into, p, written):
    if written >= len(into.rows) - 1:
        return
    credit = UNSEEN_PROBABILITY
    for i in range(len(tokens)):
        if tokens[i] < 0:
            break
        if tokens[i] == written:
            credit = max(credit, theirs[i])
    row = listed_row(into, written)
    ours = max(p[row], UNSEEN_PROBABILITY) if row >= 0 else UNSEEN_PROBABILITY
    trust = account[RIGHT] / account[USED]
    account[RIGHT] += trust * credit / (trust * credit + (1 - trust) * ours)
    account[USED] += 1


@part
def weigh_by_trust_and_mix_in(account, tokens, theirs, into, p):
    """Turn p float32[CANDIDATES] into (1 - trust) * p + trust * theirs.

    tokens int32[n], -1 ends them.
    """
    trust = np.float32(account[RIGHT] / account[USED])
    for row in range(into.state[0]):
        p[row] *= np.float32(1) - trust
    for i in range(len(tokens)):
        if tokens[i] < 0:
            return
        if tokens[i] >= len(into.rows) - 1:
            continue
        before = into.state[0]
        row = row_of(into, tokens[i])
        if row == before:
            p[row] = 0
        if row >= 0:
            share = trust * theirs[i]
            if share > p[row]:
                into.source[row] = into.state[2]
            p[row] += share


# Past requests.


class HistoryCorpus(NamedTuple):
    corpus: SearchedCorpus
    tokens: Array  # int32[MAX_CONTINUATIONS], -1 ends them
    p: Array  # float32[MAX_CONTINUATIONS]
    trust: Array  # float64[N_LEVELS, OCCURRENCE_CLASSES, 2], see `learn_trust_and_mix_in`


def new_history(corpus: SearchedCorpus) -> HistoryCorpus:
    trust = np.full((N_LEVELS, OCCURRENCE_CLASSES, 2), PRIOR_TOKENS)
    trust[..., RIGHT] *= np.array(FIRST_TRUST)[:, None]
    return HistoryCorpus(
        corpus=corpus,
        tokens=np.empty(MAX_CONTINUATIONS, np.int32),
        p=np.empty(MAX_CONTINUATIONS, np.float32),
        trust=trust,
    )


@part
def mix_in_past_requests(history, intervals, recent, scan, sample, table, into, p, written):
    """Mix in what followed `recent` in past requests; `written` as in `learn_trust_and_mix_in`."""
    kind = _continuations_of_longest_match(history, intervals, recent, scan, sample, table)
    if kind >= 0:
        account = history.trust[kind // OCCURRENCE_CLASSES, kind % OCCURRENCE_CLASSES]
        learn_trust_and_mix_in(account, history.tokens, history.p, into, p, written)


@part
def _continuations_of_longest_match(history, intervals, recent, scan, sample, table):
    """Set `history` to the successors of the longest match; return its account, or -1."""
    clear_counts(table)
    order, level = longest_order(history.corpus, intervals, scan), np.int64(-1)
    if order > 0:
        count_corpus(
            history.corpus,
            order,
            intervals,
            recent,
            table,
            scan,
            sample,
            np.int64(MAX_MEASURED_MATCH),
        )
    for each in range(N_LEVELS):
        if table.distinct[each] > 0:
            level = np.int64(each)
    if level < 0:
        return np.int64(-1)
    total, size = table.totals[level], 0
    least = total / np.float32(MAX_CONTINUATIONS)
    for row in range(table.state[0]):
        if table.counts[row, level] >= least and size < MAX_CONTINUATIONS:
            history.tokens[size] = table.tokens[row]
            history.p[size] = table.counts[row, level] / total
            size += 1
    if size < MAX_CONTINUATIONS:
        history.tokens[size] = -1
    often = 0 if total < 2 else 1 if total < 4 else 2
    return np.int64(level * OCCURRENCE_CLASSES + often)
