"""Evidence: the model's top-k at verified nodes, mixed with the prediction from counts.

By context: the top-k after the last one, two or three tokens, as in Token Recycling
(arXiv:2408.08696), else the model's bigrams (N-Grammys).

Siblings: no node held the last written token, but its siblings were verified, and what is likely
after "the big" is likely after "the large". So their top-k are summed, weighted by probability. For
the same reason evidence is kept by skip-grams.

Recent top-k: a token's level is the highest log probability at which a recent node listed it, minus
one for every TOKENS_PER_LEVEL tokens since.

Sharpening: greedy decoding always writes the likeliest token. So listed tokens are raised by the
model's probability q, and the rest is cut, unless the text was sampled:

    p'(t) = raised(t) / (sum over t of raised(t) + UNLISTED_WEIGHT * (1 - sum over t of p(t)))
    raised(t) = p(t) * product over evidence of max(q(t) / MIN_PROBABILITY, 1) ^ weight

SHARPENING_WEIGHTS and UNLISTED_WEIGHT were fitted on SmolLM2's records, see research/drafting.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import NO_TOKEN, Array
from ngramkit.kernels.blend.counts import MAX_CANDIDATES, hash_recent, listed_row, slot_of
from ngramkit.kernels.blend.weighting import (
    PRIOR_TOKENS,
    RIGHT,
    SURENESS_CLASSES,
    USED,
    learn_trust_and_mix_in,
    sureness_class,
)
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.ngrammys import probabilities_by_bits
from ngramkit.kernels.packed_arguments import load_u16, unsigned_at

ORDERS = 3
EVIDENCE_ROWS = 1 << 14
KINDS_WITHOUT_ORDER = 2  # kinds of evidence without an order
SIBLINGS, SKIP_GRAM = ORDERS + 1, ORDERS + 2
# First trust by order (0: bigrams), then of the others; lower if counts are sure.
FIRST_TRUST = (0.1, 0.3, 0.5, 0.7, 0.4, 0.4)
KEPT_CANDIDATES = 16  # candidates kept per context, at most
# Weights in `sharpen`: of the last token, the last two, the skip-gram, siblings, recent top-k.
SHARPENING_WEIGHTS = (0.07, 0.04, 0.06, 0.03, 0.06)
# Columns of `where`: two addresses, an item size, two lengths.
NEXT_TOKENS, LOG_PROBS, ID_BYTES, ROWS, K = range(5)

ROOT_TOKENS = 3  # newest tokens that distinguish the root from other nodes
MAX_SIBLINGS = 8  # siblings of the last token that are used, at most
MAX_SIBLING_TOKENS = 64  # tokens of sibling evidence, at most
MIN_WEIGHT = np.float32(1e-3)  # weight of a sibling that is not in the top-k
SALT = np.uint64(0x51ED270B76A3C9F1)
SKIP_GRAM_LENGTH = 4  # tokens back that `hash_skip_gram` reaches

TOP_K_ROWS = 1 << 12
TOKENS_PER_LEVEL = np.float32(2)  # tokens after which a level is one lower
MIN_LEVEL = np.float32(np.log(1e-3))  # below, a token counts as never listed
NO_LEVEL = np.float32(-np.inf)

UNLISTED_WEIGHT = np.float32(0.33)
MIN_REST = np.float32(0.01)  # probability of unlisted tokens before the cut, at least
MIN_PROBABILITY = 1e-4
LOG_MIN_PROBABILITY = np.float32(np.log(MIN_PROBABILITY))
WRITTEN, LIKELIEST = range(2)  # columns of `chosen`: written tokens, likeliest ones


class BigramTable(NamedTuple):
    """A model's bigram table; ROWS is 0 if there is none."""

    where: Array  # int64[5]
    probabilities: Array  # float32[65536], of log-probabilities by their bits


class Siblings(NamedTuple):
    after: Array  # int32[ROOT_TOKENS], the newest tokens, newest first
    tokens: Array  # int32[MAX_SIBLING_TOKENS + 1], -1 ends them
    p: Array  # float32[MAX_SIBLING_TOKENS + 1]
    beyond: Array  # float32[MAX_SIBLING_TOKENS + 1], see `log_excess`


class RecentTopK(NamedTuple):
    """Levels of recently listed tokens, by a token's last bits."""

    tokens: Array  # int32[TOP_K_ROWS]
    levels: (
        Array  # float32[TOP_K_ROWS], log probability + clock when it was listed / TOKENS_PER_LEVEL
    )
    clock: Array  # int64[1], tokens written


class EvidenceTable(NamedTuple):
    """The model's top-k by a hash of the context; newer ones overwrite older ones."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows + 1, KEPT_CANDIDATES], -1 ends a row; the last row is scratch
    p: Array  # float32[rows + 1, KEPT_CANDIDATES]
    beyond: Array  # float32[rows + 1, KEPT_CANDIDATES], see `log_excess`
    siblings: Siblings
    recent_top_k: RecentTopK
    chosen: Array  # int64[2], see `count_likeliest_written`
    # float64[ORDERS + 1 + KINDS_WITHOUT_ORDER, SURENESS_CLASSES, 2], accounts; order 0: bigrams
    trust: Array
    raises: Array  # float32[MAX_CANDIDATES], scratch, 0 between any two calls


def new_bigram(next_tokens: Array | None = None, log_probs: Array | None = None) -> BigramTable:
    """Return a table over arrays [V, k] that must outlive it, or an empty one."""
    if next_tokens is None or log_probs is None:
        return BigramTable(np.zeros(K + 1, np.int64), np.zeros(1, np.float32))
    sizes = [next_tokens.itemsize, *next_tokens.shape]
    where = np.array([next_tokens.ctypes.data, log_probs.ctypes.data, *sizes], np.int64)
    return BigramTable(where, probabilities_by_bits())


def new_evidence(rows: int = EVIDENCE_ROWS) -> EvidenceTable:
    evidence = EvidenceTable(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows + 1, KEPT_CANDIDATES), np.int32),
        p=np.zeros((rows + 1, KEPT_CANDIDATES), np.float32),
        beyond=np.zeros((rows + 1, KEPT_CANDIDATES), np.float32),
        siblings=Siblings(
            after=np.full(ROOT_TOKENS, NO_TOKEN, np.int32),
            tokens=np.full(MAX_SIBLING_TOKENS + 1, -1, np.int32),
            p=np.zeros(MAX_SIBLING_TOKENS + 1, np.float32),
            beyond=np.zeros(MAX_SIBLING_TOKENS + 1, np.float32),
        ),
        recent_top_k=RecentTopK(
            tokens=np.zeros(TOP_K_ROWS, np.int32),
            levels=np.full(TOP_K_ROWS, NO_LEVEL, np.float32),
            clock=np.zeros(1, np.int64),
        ),
        chosen=np.zeros(2, np.int64),
        trust=np.zeros((ORDERS + 1 + KINDS_WITHOUT_ORDER, SURENESS_CLASSES, 2), np.float64),
        raises=np.zeros(MAX_CANDIDATES, np.float32),
    )
    forget_evidence(evidence)
    return evidence


def forget_evidence(evidence: EvidenceTable) -> None:
    evidence.keys[:] = 0
    evidence.siblings.tokens[0] = -1
    evidence.recent_top_k.levels[:] = NO_LEVEL
    evidence.recent_top_k.clock[:] = 0
    evidence.chosen[:] = 0
    unsure = 1 - (np.arange(SURENESS_CLASSES) + 0.5) / SURENESS_CLASSES
    evidence.trust[..., RIGHT] = PRIOR_TOKENS * np.outer(FIRST_TRUST, unsure)
    evidence.trust[..., USED] = PRIOR_TOKENS


# Learning from a pass.


@entry
def learn_evidence(
    evidence, recent, now, written, tokens, parents, top_ids, top_log_probs, scratch
):
    """Keep the evidence of one pass, arrays as in `drafters.base.Evidence`.

    `recent` is the context up to row 0's token, `now` the same after `written` int32[k]. `scratch`
    int32[SKIP_GRAM_LENGTH].
    """
    count_likeliest_written(evidence.chosen, written, tokens, parents, top_ids, top_log_probs)
    for row in range(len(tokens) - 1, -1, -1):  # likelier nodes overwrite others
        _last_tokens_of_row(recent, tokens, parents, row, scratch)
        if scratch[SKIP_GRAM_LENGTH - 1] >= 0:
            _keep_top_k(evidence, hash_skip_gram(scratch), top_ids[row], top_log_probs[row])
    for row in range(len(tokens)):
        _last_tokens_of_row(recent, tokens, parents, row, scratch)
        for order in range(1, ORDERS + 1):
            if scratch[order - 1] >= 0:
                _keep_top_k(evidence, hash_recent(scratch, order), top_ids[row], top_log_probs[row])
    list_recent_top_k(evidence.recent_top_k, len(written), top_ids, top_log_probs)
    gather_siblings(evidence.siblings, now, written, tokens, parents, top_ids, top_log_probs)


@part
def _last_tokens_of_row(recent, tokens, parents, row, newest):
    """Fill `newest` with the last tokens of a row's context, newest first."""
    at = row
    for i in range(len(newest)):
        if at > 0:
            newest[i] = tokens[at]
            at = parents[at]
        else:  # at or above the root
            newest[i] = recent[-at]
            at -= 1


@part
def _keep_top_k(evidence, key, ids, log_probs):
    slot = slot_of(key, len(evidence.keys))
    evidence.keys[slot] = key
    for i in range(KEPT_CANDIDATES):
        listed = i < len(ids)
        evidence.tokens[slot, i] = ids[i] if listed else -1
        evidence.p[slot, i] = np.exp(log_probs[i]) if listed else 0
        evidence.beyond[slot, i] = log_excess(log_probs[i]) if listed else 0


@part
def log_excess(log_p):
    """Return log(max(q / MIN_PROBABILITY, 1)) of a token's log probability."""
    return max(np.float32(log_p) - LOG_MIN_PROBABILITY, np.float32(0))


@part
def count_likeliest_written(chosen, written, tokens, parents, top_ids, top_log_probs):
    """Count in `chosen` the written tokens, and those that were the likeliest."""
    row = np.int64(0)
    for at in range(len(written)):
        if row < 0:  # its node was not verified
            return
        token = written[at]
        chosen[WRITTEN] += 1
        for i in range(top_ids.shape[1]):
            if top_ids[row, i] == token and top_log_probs[row, i] >= top_log_probs[row, 0]:
                chosen[LIKELIEST] += 1
        row = np.int64(child_of(row, token, tokens, parents))


@part
def child_of(row, token, tokens, parents):
    """Return the node of `token` below `row`, or -1."""
    for node in range(row + 1, len(tokens) if row >= 0 else 0):
        if parents[node] == row and tokens[node] == token:
            return node
    return -1


@part
def list_recent_top_k(recent_top_k, written, top_ids, top_log_probs):
    now = np.float32(recent_top_k.clock[0]) / TOKENS_PER_LEVEL
    for node in range(len(top_ids)):
        for i in range(top_ids.shape[1]):
            token = top_ids[node, i]
            if token < 0:
                break
            row, level = token & (TOP_K_ROWS - 1), top_log_probs[node, i] + now
            if level > recent_top_k.levels[row]:
                recent_top_k.tokens[row], recent_top_k.levels[row] = token, level
    recent_top_k.clock[0] += written


@part
def gather_siblings(siblings, now, written, tokens, parents, top_ids, top_log_probs):
    """Sum up the top-k of the last written token's siblings."""
    siblings.tokens[0] = -1
    if len(written) == 0:
        return
    for i in range(ROOT_TOKENS):
        siblings.after[i] = now[i]
    row, last, nodes, count, whole = 0, written[-1], 0, 0, np.float32(0)
    for i in range(len(written) - 1):
        row = child_of(row, written[i], tokens, parents)
    for node in range(row + 1, len(tokens) if row >= 0 else 0):
        if parents[node] != row or tokens[node] == last or nodes == MAX_SIBLINGS:
            continue
        weight = MIN_WEIGHT + _probability_of(tokens[node], top_ids[row], top_log_probs[row])
        count = _add_siblings(siblings, count, weight, top_ids[node], top_log_probs[node])
        whole += weight
        nodes += 1
    siblings.tokens[count] = -1
    for i in range(count):
        siblings.p[i] /= whole
        siblings.beyond[i] = log_excess(np.log(siblings.p[i]))


@part
def _probability_of(token, ids, log_probs):
    for i in range(len(ids)):
        if ids[i] == token:
            return np.exp(log_probs[i])
    return np.float32(0)


@part
def _add_siblings(siblings, count, weight, ids, log_probs):
    for i in range(len(ids)):
        if ids[i] < 0:
            break
        at = 0
        while at < count and siblings.tokens[at] != ids[i]:
            at += 1
        if at == MAX_SIBLING_TOKENS:
            continue
        if at == count:
            siblings.tokens[at], siblings.p[at] = ids[i], 0
            count += 1
        siblings.p[at] += weight * np.exp(log_probs[i])
    return count


# Mixing.


@part
def hash_skip_gram(recent):
    key = SALT
    for i in range(SKIP_GRAM_LENGTH):
        if i != 1:
            key = (key ^ np.uint64(recent[i])) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    return key | np.uint64(1)


@part
def follows_siblings(siblings, recent):
    for i in range(ROOT_TOKENS):
        if recent[i] != siblings.after[i]:
            return False
    return siblings.tokens[0] >= 0


@part
def mix_in_evidence(evidence, bigram, recent, into, p, written):
    """Mix evidence of siblings, skip-gram and longest context into p float32[CANDIDATES].

    `written` as in `weighting.learn_trust_and_mix_in`.
    """
    siblings = evidence.siblings
    if follows_siblings(siblings, recent):
        account = evidence.trust[SIBLINGS, sureness_class(into, p)]
        learn_trust_and_mix_in(account, siblings.tokens, siblings.p, into, p, written)
    order, row = _longest_known_context(evidence, bigram, recent)
    if order < ORDERS and recent[SKIP_GRAM_LENGTH - 1] >= 0:
        skip_gram = _row_of_key(evidence, hash_skip_gram(recent))
        if skip_gram >= 0:
            account = evidence.trust[SKIP_GRAM, sureness_class(into, p)]
            learn_trust_and_mix_in(
                account, evidence.tokens[skip_gram], evidence.p[skip_gram], into, p, written
            )
    if order >= 0:
        account = evidence.trust[order, sureness_class(into, p)]
        learn_trust_and_mix_in(account, evidence.tokens[row], evidence.p[row], into, p, written)


@part
def _longest_known_context(evidence, bigram, recent):
    """Return the order and the row of the longest known context, or -1, 0."""
    for order in range(ORDERS, 0, -1):
        if recent[order - 1] >= 0:
            row = _row_of_key(evidence, hash_recent(recent, order))
            if row >= 0:
                return np.int64(order), row
    token = np.int64(recent[0])
    if token < 0 or token >= bigram.where[ROWS]:
        return np.int64(-1), np.int64(0)
    where, scratch = bigram.where, np.int64(len(evidence.keys))
    for i in range(KEPT_CANDIDATES):
        listed = i < where[K]
        at = token * where[K] + i
        evidence.tokens[scratch, i] = (
            unsigned_at(where[NEXT_TOKENS], where[ID_BYTES], at) if listed else -1
        )
        evidence.p[scratch, i] = (
            bigram.probabilities[load_u16(where[LOG_PROBS], at)] if listed else 0
        )
    return np.int64(0), scratch


@part
def _row_of_key(evidence, key):
    slot = slot_of(key, len(evidence.keys))
    return slot if evidence.keys[slot] == key else np.int64(-1)


# Sharpening.


@part
def looks_greedy(chosen):
    """Return whether nearly all written tokens were the likeliest."""
    return 0 < 9 * chosen[WRITTEN] <= 10 * chosen[LIKELIEST]


@part
def sharpen(evidence, recent, into, p):
    """Turn p float32[CANDIDATES] into what greedy decoding writes."""
    siblings, raises = evidence.siblings, evidence.raises
    for order in range(1, 3):
        if recent[order - 1] >= 0:
            _raise_by_context(
                evidence,
                hash_recent(recent, order),
                np.float32(SHARPENING_WEIGHTS[order - 1]),
                into,
            )
    if recent[SKIP_GRAM_LENGTH - 1] >= 0:
        _raise_by_context(evidence, hash_skip_gram(recent), np.float32(SHARPENING_WEIGHTS[2]), into)
    if follows_siblings(siblings, recent):
        raise_listed(
            siblings.tokens, siblings.beyond, np.float32(SHARPENING_WEIGHTS[3]), into, raises
        )
    raise_recent_top_k(evidence.recent_top_k, np.float32(SHARPENING_WEIGHTS[4]), into, raises)
    apply_raises(into, p, raises)


@part
def _raise_by_context(evidence, key, weight, into):
    row = _row_of_key(evidence, key)
    if row >= 0:
        raise_listed(evidence.tokens[row], evidence.beyond[row], weight, into, evidence.raises)


@part
def raise_listed(tokens, beyond, weight, into, raises):
    """Add weight * beyond in the rows of `tokens`; -1 ends them."""
    for i in range(len(tokens)):
        token = tokens[i]
        if token < 0:
            return
        row = listed_row(into, token)
        if row >= 0:
            raises[row] += weight * beyond[i]


@part
def raise_recent_top_k(recent_top_k, weight, into, raises):
    least = np.float32(recent_top_k.clock[0]) / TOKENS_PER_LEVEL + MIN_LEVEL
    for row in range(into.state[0]):
        at = into.tokens[row] & (TOP_K_ROWS - 1)
        if recent_top_k.tokens[at] == into.tokens[row] and recent_top_k.levels[at] > least:
            raises[row] += weight * (recent_top_k.levels[at] - least)


@part
def apply_raises(into, p, raises):
    """Turn p float32[CANDIDATES] into p'; `raises`, in logs, becomes 0."""
    listed, total = np.float32(0), np.float32(0)
    for row in range(into.state[0]):
        value = p[row]
        listed += value
        if raises[row] > 0:
            value *= np.exp(raises[row])
            raises[row] = 0
        p[row] = value
        total += value
    scale = np.float32(1) / (total + UNLISTED_WEIGHT * max(np.float32(1) - listed, MIN_REST))
    for row in range(into.state[0]):
        p[row] *= scale
