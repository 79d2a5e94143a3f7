"""Predict what follows one context from all sources, and learn from the outcome.

Counts come first, then past requests, evidence, sharpening and copied texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import HISTORY, MODEL, NO_TOKEN, Array
from ngramkit.kernels.blend.copied_text import (
    ALTERNATIVE,
    LIVE,
    LONG_LOST,
    PAST,
    REFERENCE,
    SAME_PROMPT,
    Copying,
    choose_near_or_longest,
    find_again_near_anchor,
    mix_in_copies,
    new_places,
    point_to_live,
)
from ngramkit.kernels.blend.counts import (
    HOPS,
    MAX_COUNTED_CONTEXT,
    MAX_MEASURED_MATCH,
    SAMPLE,
    SCAN,
    Candidates,
    Frozen,
    Live,
    SearchedCorpus,
    add_to_live,
    longest_in_live,
    narrow_intervals,
    push_recent,
    remove_from_live,
)
from ngramkit.kernels.blend.evidence import (
    BigramTable,
    EvidenceTable,
    looks_greedy,
    mix_in_evidence,
    sharpen,
)
from ngramkit.kernels.blend.references import (
    choose_edit_to_repeat,
    find_again_in_references,
    forget_edits,
    step_written,
)
from ngramkit.kernels.blend.weighting import (
    HistoryCorpus,
    Scratch,
    Weights,
    correct_by_network,
    mix_in_past_requests,
    weigh_counts_by_gates,
)
from ngramkit.kernels.jit import part

PAST_SHARDS = 6  # shards of past requests from the start or since, at most


class BlendSources(NamedTuple):
    corpus: SearchedCorpus  # of the datastores
    frozen: Frozen
    live: Live
    past_at_start: HistoryCorpus  # past requests that were there at start
    past_since: HistoryCorpus  # past requests since then
    bigram: BigramTable
    evidence: EvidenceTable
    references: Array  # int64[0 or 1, 7], see suffix.search.shard_table
    edits: Array  # int64[0 or EDITS, ...], see blend.references
    shares: Array  # float32[V + 1], see blend.weighting.correct_by_network
    limits: Array  # int64[4]: SCAN, SAMPLE, HOPS, EOS
    weights: Weights
    copying: Copying
    scratch: Scratch
    into: Candidates
    second: Candidates


class Place(NamedTuple):
    """The place where the draft begins; every written token advances it."""

    recent: Array  # int32[MAX_MEASURED_MATCH]
    root: (
        Array  # int64[MAX_COUNTED_CONTEXT + 1, shards, 2], the intervals of `recent` in the corpus
    )
    # int64[2, MAX_COUNTED_CONTEXT + 1, PAST_SHARDS, 2], in past requests, at start and since
    past: Array
    root_after: Array  # scratch, as root
    past_after: Array  # scratch, as past
    copied: Array  # int64[PLACES, COLUMNS], see blend.copied_text


def new_place(shards: int) -> Place:
    root = np.zeros((MAX_COUNTED_CONTEXT + 1, shards, 2), np.int64)
    past = np.zeros((2, MAX_COUNTED_CONTEXT + 1, PAST_SHARDS, 2), np.int64)
    recent = np.full(MAX_MEASURED_MATCH, NO_TOKEN, np.int32)
    return Place(recent, root, past, np.zeros_like(root), np.zeros_like(past), new_places())


@part
def extend(sources, place, begin, end):
    """Move on by live.tokens[begin:end] without learning."""
    live, longest = sources.live, sources.into.longest[LIVE]
    for position in range(begin, end):
        point_to_live(place.copied, live)
        if begin > 0 or position > end - LONG_LOST:  # older copies in a prompt have ended
            longest_in_live(live, position, place.recent, sources.limits[HOPS], longest)
            choose_near_or_longest(place.copied[LIVE], live.table, longest, place.recent)
        move_on(sources, place, position)
        if position >= end - MAX_COUNTED_CONTEXT:  # older tokens are in no context
            follow_token(sources, place)


@part
def learn(sources, place, begin, end):
    """Move on, and learn how well each source predicted each token."""
    for position in range(begin, end):
        written = np.int64(sources.live.tokens[position])
        point_to_live(place.copied, sources.live)
        mix_sources_in_order(
            sources, place.root, place.past, place.recent, place.copied, position, np.float32(0),
            written,
        )  # fmt: skip
        move_on(sources, place, position)
        follow_token(sources, place)


@part
def move_on(sources, place, position):
    """Move all but the intervals on by live.tokens[position]."""
    live, written = sources.live, np.int64(sources.live.tokens[position])
    add_to_live(live, position)
    push_recent(place.recent, live.tokens[position])
    step_written(place.copied, place.recent, written, sources.edits, position + 1)


@part
def rewind(sources, place, begin, end):
    """Remove live.tokens[begin:end]; the caller restores what was learnt and copied places."""
    live = sources.live
    remove_from_live(live, begin, end)
    forget_edits(sources.edits, begin)
    for i in range(MAX_MEASURED_MATCH):
        place.recent[i] = NO_TOKEN
    # Intervals depend only on the last MAX_COUNTED_CONTEXT tokens: as many steps rebuild them.
    for order in range(MAX_COUNTED_CONTEXT + 1):
        for s in range(place.root.shape[1]):
            place.root[order, s, 0] = place.root[order, s, 1] = 0
        for s in range(PAST_SHARDS):
            for which in range(2):
                place.past[which, order, s, 0] = place.past[which, order, s, 1] = 0
    for position in range(max(begin - MAX_MEASURED_MATCH, 0), begin):
        push_recent(place.recent, live.tokens[position])
        if position >= begin - MAX_COUNTED_CONTEXT:
            follow_token(sources, place)


@part
def follow_token(sources, place):
    """Move the intervals on by the newest token."""
    descend_all(
        sources, place.root, place.root_after, place.past, place.past_after, place.recent
    )  # fmt: skip
    copy_intervals(place.root_after, place.root)
    copy_intervals(place.past_after[0], place.past[0])
    copy_intervals(place.past_after[1], place.past[1])


@part
def copy_intervals(source, target):
    for order in range(MAX_COUNTED_CONTEXT + 1):
        for s in range(source.shape[1]):
            target[order, s, 0], target[order, s, 1] = source[order, s, 0], source[order, s, 1]


@part
def descend_all(sources, root, after, past, past_after, recent):
    """Set the intervals of `recent` from those of the context one token shorter."""
    scan, past_at_start, past_since = (
        sources.limits[SCAN],
        sources.past_at_start.corpus,
        sources.past_since.corpus,
    )
    if len(sources.corpus.table):
        narrow_intervals(sources.corpus, root, after, recent, scan)
    if len(past_at_start.table):
        narrow_intervals(past_at_start, past[0], past_after[0], recent, scan)
    if len(past_since.table):
        narrow_intervals(past_since, past[1], past_after[1], recent, scan)


@part
def mix_sources_in_order(sources, intervals, past, recent, copied, size, least, written):
    """Set scratch.p for one context; `least` as in `weighting.correct_by_network`.

    `written`, the token that followed or -1, credits each prediction before it is mixed in.
    """
    into, limits, second = sources.into, sources.limits, sources.second
    none = weigh_counts_by_gates(sources, intervals, recent, size)
    correct_by_network(
        sources.weights, into, sources.live, size, sources.shares, least, none, sources.scratch
    )
    scan, sample, p = limits[SCAN], limits[SAMPLE], sources.scratch.p
    into.state[2] = HISTORY
    if len(sources.past_at_start.corpus.table):
        mix_in_past_requests(
            sources.past_at_start, past[0], recent, scan, sample, second, into, p, written
        )
        choose_near_or_longest(
            copied[PAST], sources.past_at_start.corpus.table, second.longest[PAST], recent
        )
    if len(sources.past_since.corpus.table):
        mix_in_past_requests(
            sources.past_since, past[1], recent, scan, sample, second, into, p, written
        )
        choose_near_or_longest(
            copied[PAST], sources.past_since.corpus.table, second.longest[PAST], recent
        )
    into.state[2] = MODEL
    mix_in_evidence(sources.evidence, sources.bigram, recent, into, p, written)
    if looks_greedy(sources.evidence.chosen):
        sharpen(sources.evidence, recent, into, p)
    choose_near_or_longest(copied[LIVE], sources.live.table, into.longest[LIVE], recent)
    find_again_near_anchor(copied[SAME_PROMPT], recent)
    find_again_in_references(copied[REFERENCE], sources.references, second.longest[LIVE], recent)
    choose_edit_to_repeat(copied[REFERENCE], copied[ALTERNATIVE], sources.edits)
    mix_in_copies(sources.copying, copied, sources.edits, into, p, written)
