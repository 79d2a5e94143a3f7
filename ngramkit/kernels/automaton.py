"""A suffix automaton over a growing text (Blumer et al., 1985), for SAM-Decoding.

SAM-Decoding (arXiv:2411.10666) drafts what followed the longest suffix that occurred before. A
state represents the substrings that end at the same positions; state 0 is the empty one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.jit import allocating_entry, entry, part
from ngramkit.kernels.suffix.search import (
    SIZE as SHARD_SIZE,
    VOCABULARY,
    compare_suffix,
    longest_match,
    position_at,
    token_at,
)

# Columns of `state`.
SIZE, LAST, STATES, EDGES, AT, MATCHED = range(6)
MAX_SCANNED = 1 << 16  # occurrences, or then tokens of a shard, read to find the first one, at most


class SuffixAutomaton(NamedTuple):
    """The automaton of up to n tokens; slots are a power of two, at least twice the edges."""

    tokens: Array  # int32[n], the text
    length: Array  # int32[2 n + 1], the length of a state's longest substring
    link: Array  # int32[2 n + 1], the state of its longest suffix in another state; -1
    first: Array  # int32[2 n + 1], the first end of its substrings
    edges: Array  # int32[2 n + 1], the newest edge out of a state; -1
    edge_state: Array  # int32[3 n + 2]
    edge_token: Array  # int32[3 n + 2]
    edge_target: Array  # int32[3 n + 2]
    edge_next: Array  # int32[3 n + 2], the next older edge out of the same state; -1
    slots: Array  # int32[slots], edges by a hash of state and token; -1 empty
    state: Array  # int64[6], see SIZE


def new_automaton(room: int) -> SuffixAutomaton:
    states, edges = 2 * room + 1, 3 * room + 2
    slots = 1 << int(2 * edges - 1).bit_length()
    return SuffixAutomaton(
        tokens=np.empty(room, np.int32),
        length=np.zeros(states, np.int32),
        link=np.full(states, -1, np.int32),
        first=np.zeros(states, np.int32),
        edges=np.full(states, -1, np.int32),
        edge_state=np.empty(edges, np.int32),
        edge_token=np.empty(edges, np.int32),
        edge_target=np.empty(edges, np.int32),
        edge_next=np.empty(edges, np.int32),
        slots=np.full(slots, -1, np.int32),
        state=np.array([0, 0, 1, 0, 0, 0], np.int64),
    )


@entry
def extend(automaton, tokens):
    """Append `tokens` int32[m]; there must be room for them."""
    for i in range(len(tokens)):
        _follow_token(automaton, tokens[i])
        _add_token(automaton, tokens[i])


@entry
def add(automaton, tokens):
    """Append `tokens` int32[m] without matching them, for the automaton of a corpus."""
    for i in range(len(tokens)):
        _add_token(automaton, tokens[i])


@entry
def sort_edges(automaton, counts, offsets, tokens, targets):
    """Write the edges by state and token: those of s are offsets[s] to offsets[s + 1].

    `counts` int64[V + 2] and `offsets` int32[states + 1] are zeros, `tokens` and `targets` are
    int32[edges], token ids are -1 to V - 1. Nothing can be appended afterwards.
    """
    edges, states = automaton.state[EDGES], automaton.state[STATES]
    order, ends = automaton.edge_next, automaton.edges  # not needed any more
    for edge in range(edges):
        counts[automaton.edge_token[edge] + 2] += 1
        offsets[automaton.edge_state[edge] + 1] += 1
    for i in range(1, len(counts)):
        counts[i] += counts[i - 1]
    for i in range(states):
        ends[i] = offsets[i]
        offsets[i + 1] += offsets[i]
    for edge in range(edges):
        key = automaton.edge_token[edge] + 1
        order[counts[key]] = edge
        counts[key] += 1
    for i in range(edges):
        edge = order[i]
        place = ends[automaton.edge_state[edge]]
        tokens[place], targets[place] = automaton.edge_token[edge], automaton.edge_target[edge]
        ends[automaton.edge_state[edge]] = place + 1


@part
def _edge_slot(automaton, state, token):
    mask = len(automaton.slots) - 1
    key = (np.uint64(state) << np.uint64(32)) ^ np.uint64(token & 0xFFFFFFFF)
    key *= np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(key >> np.uint64(32)) & mask
    while True:
        edge = automaton.slots[slot]
        if edge < 0:
            return slot
        if automaton.edge_state[edge] == state and automaton.edge_token[edge] == token:
            return slot
        slot = (slot + 1) & mask


@part
def _edge_target(automaton, state, token):
    edge = automaton.slots[_edge_slot(automaton, state, token)]
    return np.int64(automaton.edge_target[edge]) if edge >= 0 else np.int64(-1)


@part
def _link_to(automaton, state, token, target):
    edge = automaton.state[EDGES]
    automaton.edge_state[edge], automaton.edge_token[edge] = state, token
    automaton.edge_target[edge], automaton.edge_next[edge] = target, automaton.edges[state]
    automaton.slots[_edge_slot(automaton, state, token)] = edge
    automaton.edges[state] = edge
    automaton.state[EDGES] = edge + 1


@part
def _follow_token(automaton, token):
    at, matched = automaton.state[AT], automaton.state[MATCHED]
    target = _edge_target(automaton, at, token)
    while at != 0 and target < 0:
        at = np.int64(automaton.link[at])
        matched = np.int64(automaton.length[at])
        target = _edge_target(automaton, at, token)
    if target >= 0:
        at, matched = target, matched + 1
    automaton.state[AT], automaton.state[MATCHED] = at, matched


@part
def _add_token(automaton, token):
    state = automaton.state
    new, size = state[STATES], state[SIZE] + 1
    automaton.tokens[size - 1] = token
    automaton.length[new] = automaton.first[new] = size
    state[STATES], state[SIZE] = new + 1, size
    at = state[LAST]
    while at >= 0 and _edge_target(automaton, at, token) < 0:
        _link_to(automaton, at, token, new)
        at = np.int64(automaton.link[at])
    if at < 0:
        automaton.link[new] = 0
    else:
        target = _edge_target(automaton, at, token)
        if automaton.length[target] != automaton.length[at] + 1:
            target = _split_state(automaton, at, token, target)
        automaton.link[new] = target
    state[LAST] = new
    # The match may now belong to a state of shorter substrings.
    while state[AT] != 0 and state[MATCHED] <= automaton.length[automaton.link[state[AT]]]:
        state[AT] = automaton.link[state[AT]]


@part
def _split_state(automaton, at, token, target):
    """Move substrings of `target` of at most length[at] + 1 tokens to a new state; return it."""
    clone = automaton.state[STATES]
    automaton.state[STATES] = clone + 1
    automaton.length[clone] = automaton.length[at] + 1
    automaton.link[clone] = automaton.link[target]
    automaton.first[clone] = automaton.first[target]
    edge = np.int64(automaton.edges[target])
    while edge >= 0:
        _link_to(automaton, clone, automaton.edge_token[edge], automaton.edge_target[edge])
        edge = np.int64(automaton.edge_next[edge])
    while at >= 0:
        edge = np.int64(automaton.slots[_edge_slot(automaton, at, token)])
        if automaton.edge_target[edge] != target:
            break
        automaton.edge_target[edge] = clone
        at = np.int64(automaton.link[at])
    automaton.link[target] = clone
    return clone


@allocating_entry
def longest_repeat(automaton: SuffixAutomaton, width: int) -> tuple[int, Array]:
    """Return the length of the longest suffix that occurred before, and what followed it.

    The latter is int32[w], w <= `width`, after the first occurrence.
    """
    state = automaton.state
    matched, size = state[MATCHED], state[SIZE]
    begin = automaton.first[state[AT]] if matched else size
    return matched, automaton.tokens[begin : min(begin + width, size)].copy()


@allocating_entry
def first_match_in_corpus(
    table: Array, context: Array, longest: int, shortest: int, width: int, eos: int
) -> tuple[int, Array]:
    """Return the match's length and its continuation, from suffix arrays.

    The match is a suffix of `context` int32[n], up to `longest` tokens; below `shortest` it has no
    continuation. The draft follows its first occurrence in the first shard, and ends before a
    separator or after `eos`. A match with more than MAX_SCANNED occurrences, none of them in the
    shard's first MAX_SCANNED tokens, may follow a later one.
    """
    intervals = np.zeros((len(table), 2), np.int64)
    matched = longest_match(table, context, longest, intervals)
    copied = np.empty(width, np.int32)
    if matched < max(shortest, 1):
        return matched, copied[:0]
    shard = 0
    while intervals[shard, 0] == intervals[shard, 1]:
        shard += 1
    row = table[shard]
    match = context[len(context) - matched :]
    place = _first_occurrence(row, intervals[shard, 0], intervals[shard, 1], match) + matched
    size = 0
    while size < width:
        token = token_at(row, place + size)
        if token >= row[VOCABULARY]:
            break
        copied[size] = token
        size += 1
        if token == eos:
            break
    return matched, copied[:size]


@part
def _first_occurrence(shard, low, high, match):
    """Return the first position of an interval; few frequent matches are far into the text."""
    if high - low > MAX_SCANNED:
        for position in range(min(MAX_SCANNED, shard[SHARD_SIZE])):
            if compare_suffix(shard, position, match, 0) == 0:
                return position
    place = position_at(shard, low)
    for i in range(low + 1, min(high, low + MAX_SCANNED)):
        place = min(place, position_at(shard, i))
    return place
