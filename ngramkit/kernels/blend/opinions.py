"""The model's own opinion: what it held likely the last time it saw these tokens.

As Token Recycling (arXiv:2408.08696) keeps the model's top candidates per token, but for the last
one, two and three tokens; where it has said nothing of them yet, its bigrams (N-Grammys) say what
it holds likely after the last token alone. The longest that is known is mixed with the counts'
prediction; before it, what was held likely beside the text (`blend.beside`). How much each is
trusted is learnt while decoding (`blend.trust`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.beside import (
    WITHOUT,
    Beside,
    gather,
    hashed_without,
    new_beside,
    stands_after,
)
from ngramkit.kernels.blend.lately import (
    Lately,
    forget_lately,
    list_lately,
    new_lately,
    raise_lately,
)
from ngramkit.kernels.blend.sharpen import beyond, raise_listed, raised, watch
from ngramkit.kernels.blend.table import CANDIDATES, hashed, slot_of
from ngramkit.kernels.blend.trust import ASKED, PRIOR, RIGHT, SURENESS, consult, sureness
from ngramkit.kernels.jit import entry, part
from ngramkit.kernels.ngrammys import probabilities_by_bits
from ngramkit.kernels.pointers import load_u16, unsigned_at

ORDERS = 3
OPINION_ROWS = 1 << 14
OTHERS = 2  # kinds of opinion that have no order
BESIDE, ASIDE = ORDERS + 1, ORDERS + 2
# By order, the bigrams' first, then the others; the less the surer the counts are.
FIRST_TRUST = (0.1, 0.3, 0.5, 0.7, 0.4, 0.4)
TOPS = 16  # candidates kept, at most
# How much what they list is raised, see `sharpen`: by the last token, the last two, aside, beside,
# and lately anywhere.
RAISES = (0.07, 0.04, 0.06, 0.03, 0.06)
# Columns of `where`: two addresses, an item size, two lengths.
NEXT_TOKENS, LOG_PROBS, ID_BYTES, ROWS, K = range(5)


class Bigram(NamedTuple):
    """A model's bigram table, see formats.model_bigram; ROWS 0 where there is none."""

    where: Array  # int64[5]
    probabilities: Array  # float32[65536], of log-probabilities by their bits


class Opinions(NamedTuple):
    """By a hash of the last 1, 2 or 3 tokens, or of the last four without one; a newer opinion
    overwrites an older."""

    keys: Array  # uint64[rows], 0 is an empty row
    tokens: Array  # int32[rows + 1, TOPS], -1 ends a row; the last row is scratch
    p: Array  # float32[rows + 1, TOPS]
    beyond: Array  # float32[rows + 1, TOPS], see blend.sharpen
    beside: Beside
    lately: Lately
    chosen: Array  # int64[2], see blend.sharpen
    # float64[ORDERS + 1 + OTHERS, SURENESS, 2], see blend.trust; order 0 is the bigrams'
    trust: Array
    raises: Array  # float32[CANDIDATES], scratch, 0 between any two calls


def new_bigram(next_tokens: Array | None = None, log_probs: Array | None = None) -> Bigram:
    """Of a table's arrays ([V, k]), which must outlive it; without them, of none."""
    if next_tokens is None or log_probs is None:
        return Bigram(np.zeros(K + 1, np.int64), np.zeros(1, np.float32))
    sizes = [next_tokens.itemsize, *next_tokens.shape]
    where = np.array([next_tokens.ctypes.data, log_probs.ctypes.data, *sizes], np.int64)
    return Bigram(where, probabilities_by_bits())


def new_opinions(rows: int = OPINION_ROWS) -> Opinions:
    opinions = Opinions(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows + 1, TOPS), np.int32),
        p=np.zeros((rows + 1, TOPS), np.float32),
        beyond=np.zeros((rows + 1, TOPS), np.float32),
        beside=new_beside(),
        lately=new_lately(),
        chosen=np.zeros(2, np.int64),
        trust=np.zeros((ORDERS + 1 + OTHERS, SURENESS, 2), np.float64),
        raises=np.zeros(CANDIDATES, np.float32),
    )
    forget(opinions)
    return opinions


def forget(opinions: Opinions) -> None:
    """A new request: other text, other opinions."""
    opinions.keys[:] = 0
    opinions.beside.tokens[0] = -1
    forget_lately(opinions.lately)
    opinions.chosen[:] = 0
    unsure = 1 - (np.arange(SURENESS) + 0.5) / SURENESS
    opinions.trust[..., RIGHT] = PRIOR * np.outer(FIRST_TRUST, unsure)
    opinions.trust[..., ASKED] = PRIOR


@entry
def opine(opinions, recent, now, written, tokens, parents, top_ids, top_log_probs, scratch):
    """Keeps the opinions of one pass. `recent` is the context that ends with row 0's token, `now`
    the same after int32[k] `written`, which came of the pass.

    tokens, parents int32[n], top_ids int32[n, k], top_log_probs float32[n, k]: see Evidence.
    `scratch` int32[WITHOUT].
    """
    watch(opinions.chosen, written, tokens, parents, top_ids, top_log_probs)
    for row in range(len(tokens) - 1, -1, -1):  # of alike contexts the likelier node's is kept
        _context(recent, tokens, parents, row, scratch)
        if scratch[WITHOUT - 1] >= 0:
            _keep(opinions, hashed_without(scratch), top_ids[row], top_log_probs[row])
    for row in range(len(tokens)):
        _context(recent, tokens, parents, row, scratch)
        for order in range(1, ORDERS + 1):
            if scratch[order - 1] >= 0:
                _keep(opinions, hashed(scratch, order), top_ids[row], top_log_probs[row])
    list_lately(opinions.lately, len(written), top_ids, top_log_probs)
    gather(opinions.beside, now, written, tokens, parents, top_ids, top_log_probs)


@part
def _context(recent, tokens, parents, row, newest):
    """Fills `newest` with the last tokens of a row's context, newest first."""
    at = row
    for i in range(len(newest)):
        if at > 0:
            newest[i] = tokens[at]
            at = parents[at]
        else:  # at or above the root
            newest[i] = recent[-at]
            at -= 1


@part
def _keep(opinions, key, ids, log_probs):
    slot = slot_of(key, len(opinions.keys))
    opinions.keys[slot] = key
    for i in range(TOPS):
        held = i < len(ids)
        opinions.tokens[slot, i] = ids[i] if held else -1
        opinions.p[slot, i] = np.exp(log_probs[i]) if held else 0
        opinions.beyond[slot, i] = beyond(log_probs[i]) if held else 0


@part
def _row(opinions, key):
    """Where the opinion of a context lies; -1 where none is known."""
    slot = slot_of(key, len(opinions.keys))
    return slot if opinions.keys[slot] == key else np.int64(-1)


@part
def _longest(opinions, bigram, recent):
    """The order and the row of the longest known opinion; -1, 0 where there is none."""
    for order in range(ORDERS, 0, -1):
        if recent[order - 1] >= 0:
            row = _row(opinions, hashed(recent, order))
            if row >= 0:
                return np.int64(order), row
    token = np.int64(recent[0])
    if token < 0 or token >= bigram.where[ROWS]:
        return np.int64(-1), np.int64(0)
    where, scratch = bigram.where, np.int64(len(opinions.keys))
    for i in range(TOPS):
        held = i < where[K]
        at = token * where[K] + i
        opinions.tokens[scratch, i] = (
            unsigned_at(where[NEXT_TOKENS], where[ID_BYTES], at) if held else -1
        )
        opinions.p[scratch, i] = bigram.probabilities[load_u16(where[LOG_PROBS], at)] if held else 0
    return np.int64(0), scratch


@part
def mix_in_opinion(opinions, bigram, recent, into, p, written):
    """Mixes into p float32[CANDIDATES] what was held likely beside the text, then the longest known
    opinion. `written`, what came there, is credited first; -1 where nothing has."""
    beside = opinions.beside
    if stands_after(beside, recent):
        account = opinions.trust[BESIDE, sureness(into, p)]
        consult(account, beside.tokens, beside.p, into, p, written)
    order, row = _longest(opinions, bigram, recent)
    if order < ORDERS and recent[WITHOUT - 1] >= 0:
        aside = _row(opinions, hashed_without(recent))
        if aside >= 0:
            account = opinions.trust[ASIDE, sureness(into, p)]
            consult(account, opinions.tokens[aside], opinions.p[aside], into, p, written)
    if order >= 0:
        account = opinions.trust[order, sureness(into, p)]
        consult(account, opinions.tokens[row], opinions.p[row], into, p, written)


@part
def sharpen(opinions, recent, into, p):
    """p float32[CANDIDATES], after all opinions were mixed in, becomes what a greedy model writes:
    see blend.sharpen."""
    beside, raises = opinions.beside, opinions.raises
    for order in range(1, 3):
        if recent[order - 1] >= 0:
            _raise_known(opinions, hashed(recent, order), np.float32(RAISES[order - 1]), into)
    if recent[WITHOUT - 1] >= 0:
        _raise_known(opinions, hashed_without(recent), np.float32(RAISES[2]), into)
    if stands_after(beside, recent):
        raise_listed(beside.tokens, beside.beyond, np.float32(RAISES[3]), into, raises)
    raise_lately(opinions.lately, np.float32(RAISES[4]), into, raises)
    raised(into, p, raises)


@part
def _raise_known(opinions, key, weight, into):
    row = _row(opinions, key)
    if row >= 0:
        raise_listed(opinions.tokens[row], opinions.beyond[row], weight, into, opinions.raises)
