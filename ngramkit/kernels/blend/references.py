"""References: texts that are likely to be copied or edited, and the tokens expected next in them.

References lie one behind the other in one suffix array (see `suffix.search`), a separator after
each. The *state* of an alignment points to the token expected next, and moves on while the text
agrees. Where the two part, `locate` takes the longest match of the last tokens, but a near match
before a longer far one.

Edits: where text and references part and come together again, tokens of the references were
replaced by tokens of the text. An identifier is renamed more than once: where the same tokens occur
again, with the same token beside them, the same edit is offered.

Offers: where the text agrees with the references, the token at the cursor, or the first token of an
edit that could be repeated there. Where the two have just parted, two tokens: the one that comes
next if every token written since replaced one, and the one that does if all were inserted. Before
the first token, the first tokens of all references. The trust in offers is learnt by how long the
two have agreed.

Most requests have no references (`packed.Absent`): kernels are compiled without these parts, a
third of the code, until references come.

`recent` is int32[n], the last tokens of the text, the newest first, NO_TOKEN before the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.copying import NEAR_WORTH, longest_near
from ngramkit.kernels.blend.counts import push_recent
from ngramkit.kernels.blend.mixture import PRIOR, RIGHT, USED, mix_in
from ngramkit.kernels.jit import entry, optional_part, part
from ngramkit.kernels.suffix.search import (
    VOCABULARY,
    bucket,
    document_token,
    match_before,
    narrow,
    position_at,
)

# The state of an alignment, int64[STATE]: positions in the references, -1 for none.
CURSOR = 0  # the position of the token expected next
MATCH = 1  # tokens in a row that agreed before it
ANCHOR = 2  # where a long match was last lost: the text is likely to go on near there
LOST = 3  # tokens written since
EDIT, STEP = 4, 5  # the edit being repeated (a row of References.edits) and its next token; EDIT -1
BEGUN = 6  # 0 while the prompt is read
STATE = 7

SOLID = 4  # tokens of a match that makes a new anchor
BACK = 64  # tokens that a near match may lie before the anchor
LEAST_FAR = 2  # tokens of a far match, at least ...
MOST_FAR = 64  # ... and its occurrences, at most
EDITS = 32  # remembered; newer ones take the places of older ones
LONGEST_EDIT = 16  # tokens removed or inserted, at most
SINCE = 48  # tokens remembered after an anchor
OFFERS = 4  # tokens offered at once
KINDS = 12  # of offers, by the length of the match: see FIRST_TRUST

FROM, REMOVED, INSERTED, HITS, TRIES = range(5)  # columns of References.edits
# An edit that could not be repeated yet will be, two times in three.
FIRST_HITS, FIRST_TRIES = 2.0, 3.0

# By kind: before the first token, and 1, 2, more tokens after the two parted; a match of up to 1,
# 2, 3, 5, 8, 16, 32 tokens, or of more.
FIRST_TRUST = (0.3, 0.3, 0.15, 0.1, 0.5, 0.7, 0.8, 0.9, 0.94, 0.97, 0.98, 0.99)
SUBSTITUTED = np.float32(0.6)  # the probability of replaced rather than inserted tokens
BEGIN, FOLLOW, CHAIN = range(3)


class References(NamedTuple):
    """The reference texts, and what a request has learnt about them."""

    table: Array  # int64[0 or 1, 7], see suffix.search.shard_table; 0: there are none
    starts: Array  # int64[texts], where each begins
    trust: Array  # float64[KINDS, 2], accounts as in blend.mixture
    edits: Array  # int64[EDITS, 5], see FROM
    inserted: Array  # int32[EDITS, LONGEST_EDIT]
    made: Array  # int64[1], the number of edits so far
    since: Array  # int32[SINCE], tokens written since the anchor
    tokens: Array  # int32[OFFERS], the offer; -1 ends it
    p: Array  # float32[OFFERS], their probabilities


def new_references(table: Array, starts: Array) -> References:
    """Return what is known of references at first; `table` int64[0 or 1, 7] and the arrays behind
    it must outlive it."""
    references = References(
        table=table,
        starts=starts,
        trust=np.full((KINDS, 2), PRIOR),
        edits=np.zeros((EDITS, 5), np.int64),
        inserted=np.zeros((EDITS, LONGEST_EDIT), np.int32),
        made=np.zeros(1, np.int64),
        since=np.zeros(SINCE, np.int32),
        tokens=np.empty(OFFERS, np.int32),
        p=np.empty(OFFERS, np.float32),
    )
    references.trust[:, RIGHT] *= np.array(FIRST_TRUST)
    return references


def new_state() -> Array:
    """Return the state before the prompt."""
    return np.array([-1, 0, -1, 0, -1, 0, 0], np.int64)


# The alignment.


@part
def begin(references, state, recent):
    """Begin at the first reference, or, where the prompt ends inside one, there."""
    for i in range(STATE):
        state[i] = 0
    state[CURSOR] = state[ANCHOR] = state[EDIT] = -1
    state[BEGUN] = 1
    locate(references, state, recent)
    if state[MATCH] >= SOLID and token_of(references, state[CURSOR]) >= 0:
        state[ANCHOR] = state[CURSOR]
    else:
        state[CURSOR], state[MATCH] = -1, 0


@part
def follow_written(references, state, recent, token):
    """Advance by a token that was written, and learn edits."""
    anchor, lost, cursor = state[ANCHOR], state[LOST], state[CURSOR]
    if state[EDIT] < 0 and cursor >= 0:
        edit = edit_at(references, cursor)
        if edit >= 0:
            judge_edit(references, edit, cursor, token)
    if lost < SINCE:
        references.since[lost] = token
    advance(references, state, recent, token)
    if anchor >= 0 and lost > 0 and state[LOST] == 0:
        remember_edit(references, state, recent, anchor, lost + 1)


@part
def advance(references, state, recent, token):
    """Move on by `token`, which is recent[0]."""
    state[LOST] += 1
    if not _goes_on(references, state, token):
        locate(references, state, recent)  # once: it is compiled into every place of a call
    if state[EDIT] < 0 and state[MATCH] >= SOLID:
        state[ANCHOR], state[LOST] = state[CURSOR], 0


@part
def _goes_on(references, state, token):
    """Move on by `token` without a search; return whether that is possible."""
    if state[EDIT] >= 0:
        return _continues_edit(references, state, token)
    if state[CURSOR] >= 0 and token_of(references, state[CURSOR]) == token:
        state[CURSOR] += 1
        state[MATCH] += 1
        return True
    return _begins_edit(references, state, token)


@part
def locate(references, state, recent):
    """Set CURSOR and MATCH anew, where the text has just parted from the references, or begins."""
    anchor = state[ANCHOR]
    best, length, worth, distance = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    if anchor >= 0:
        end, match = longest_near(references.table[0], anchor, recent, len(recent), BACK)
        if match > 0:
            best, length, worth, distance = end, match, match + NEAR_WORTH, abs(end - anchor)
    match, low, high = _longest(references, recent)
    if match >= LEAST_FAR and high - low <= MOST_FAR and match >= worth:
        for i in range(low, high):
            end = position_at(references.table[0], i) + match
            away = _distance(references, end, anchor)
            nearer = away < distance or (away == distance and end > best)
            if match > worth or nearer:
                best, length, worth, distance = end, match, match, away
    state[CURSOR], state[MATCH] = best, length


@part
def _distance(references, end, anchor):
    """Return the distance from the anchor, or, without one, from the beginning of the text at
    `end`."""
    if anchor >= 0:
        return abs(end - anchor)
    starts, low, high = references.starts, np.int64(0), np.int64(len(references.starts))
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] < end:
            low = middle
        else:
            high = middle
    return end - starts[low]


@part
def _longest(references, recent):
    """Return the length of the longest match of the last tokens, and its interval."""
    shard = references.table[0]
    high = np.int64(0)  # ids that are in no reference end a match
    while high < len(recent) and 0 <= recent[high] < shard[VOCABULARY]:
        high += 1
    low, begin, end = np.int64(0), np.int64(0), np.int64(0)
    while low < high:
        middle = (low + high + 1) >> 1
        first, last = _interval(shard, recent, middle)
        if first < last:
            low, begin, end = middle, first, last
        else:
            high = middle - 1
    return low, begin, end


@part
def _interval(shard, recent, length):
    """Return the interval of all suffixes that begin with the last `length` tokens of the text."""
    low, high = bucket(shard, np.int64(recent[length - 1]))
    low, high = np.int64(low), np.int64(high)
    for depth in range(1, length):
        if low >= high:
            break
        low, high = narrow(shard, low, high, depth, np.int64(recent[length - 1 - depth]))
    return low, high


@part
def token_of(references, position):
    """Return the token at a position; -1 behind the end of a text."""
    return document_token(references.table[0], position)


# Edits.


@part
def edit_at(references, cursor):
    """Return the edit that could be repeated at a position, -1 where none could. Of several, take
    the one that shares most of its three neighbours (one before, two after), then the newest."""
    best, most = np.int64(-1), 0
    made = references.made[0]
    for age in range(min(made, EDITS)):
        edit = (made - 1 - age) % EDITS
        row = references.edits[edit]
        neighbours = _neighbours(references, row, cursor)
        if neighbours > most:
            best, most = np.int64(edit), neighbours
    return best


@part
def _neighbours(references, row, cursor):
    """Return how many neighbours of an edit stand at `cursor` too; 0 where it cannot be
    repeated."""
    begin, removed = row[FROM], row[REMOVED]
    if begin == cursor:
        return 0
    for i in range(removed):
        if token_of(references, begin + i) != token_of(references, cursor + i):
            return 0
    before = _same_token(references, begin - 1, cursor - 1)
    after = _same_token(references, begin + removed, cursor + removed)
    further = after and _same_token(references, begin + removed + 1, cursor + removed + 1)
    if removed == 0 and not (before and after):
        return 0
    return int(before) + int(after) + int(further)


@part
def _same_token(references, one, other):
    """Return whether both positions hold the same token."""
    token = token_of(references, one)
    return token >= 0 and token == token_of(references, other)


@part
def first_token(references, edit, cursor):
    """Return the token that is written first where an edit is repeated."""
    row = references.edits[edit]
    if row[INSERTED] > 0:
        return np.int64(references.inserted[edit, 0])
    return token_of(references, cursor + row[REMOVED])


@part
def _begins_edit(references, state, token):
    """Return whether `token` begins an earlier edit anew; then the alignment goes on after it."""
    cursor = state[CURSOR]
    edit = edit_at(references, cursor) if cursor >= 0 else np.int64(-1)
    if edit < 0 or first_token(references, edit, cursor) != token:
        return False
    row = references.edits[edit]
    if row[INSERTED] > 1:
        state[EDIT], state[STEP] = edit, 1
    else:
        state[CURSOR] = cursor + row[REMOVED] + (1 - row[INSERTED])
    return True


@part
def _continues_edit(references, state, token):
    """Return whether `token` continues the edit that is being repeated."""
    edit, step = state[EDIT], state[STEP]
    if references.inserted[edit, step] != token:
        state[EDIT] = -1
        return False
    state[STEP] = step + 1
    if step + 1 == references.edits[edit, INSERTED]:
        state[EDIT] = -1
        state[CURSOR] += references.edits[edit, REMOVED]
    return True


@part
def judge_edit(references, edit, cursor, token):
    """Count `token`, written where an edit could be repeated, for or against it."""
    row = references.edits[edit]
    if token == first_token(references, edit, cursor):
        row[HITS] += 1
        row[TRIES] += 1
    elif token == token_of(references, cursor):
        row[TRIES] += 1


@part
def repeat_probability(references, edit):
    """Return the probability that an edit is repeated where it could be."""
    row = references.edits[edit]
    return np.float32((row[HITS] + FIRST_HITS) / (row[TRIES] + FIRST_TRIES))


@part
def remember_edit(references, state, recent, anchor, written):
    """Remember the edit that ends where text and references have come together again, `written`
    tokens after they parted at `anchor`; those tokens are references.since."""
    if written > SINCE:
        return
    cursor = state[CURSOR]
    match = min(
        match_before(references.table[0], cursor, recent, len(recent)), written, cursor - anchor
    )
    inserted, removed = written - match, cursor - match - anchor
    if match < 1 or inserted + removed == 0:
        return
    if inserted > LONGEST_EDIT or removed > LONGEST_EDIT:
        return
    if _is_known(references, anchor, removed, inserted):
        return
    edit = references.made[0] % EDITS
    references.made[0] += 1
    row = references.edits[edit]
    row[FROM], row[REMOVED], row[INSERTED], row[HITS], row[TRIES] = anchor, removed, inserted, 0, 0
    for i in range(inserted):
        references.inserted[edit, i] = references.since[i]


@part
def _is_known(references, anchor, removed, inserted):
    """Return whether the same edit was made before."""
    for edit in range(min(references.made[0], EDITS)):
        row = references.edits[edit]
        same = row[REMOVED] == removed and row[INSERTED] == inserted
        for i in range(removed):
            same = same and token_of(references, row[FROM] + i) == token_of(references, anchor + i)
        for i in range(inserted):
            same = same and references.inserted[edit, i] == references.since[i]
        if same:
            return True
    return False


# Offers.


@part
def offer(references, state):
    """Set references.tokens and references.p; return the kind of the offer, -1 where there is
    none."""
    references.tokens[0] = -1
    if state[EDIT] >= 0:
        _add_offer(references, 0, references.inserted[state[EDIT], state[STEP]], np.float32(1))
        return _kind_of(state[MATCH])
    if state[CURSOR] >= 0:
        return _offer_at_cursor(references, state)
    if state[ANCHOR] < 0:
        return _offer_beginnings(references)
    after_replaced = token_of(references, state[ANCHOR] + state[LOST])
    after_inserted = token_of(references, state[ANCHOR])
    count = _add_offer(references, 0, after_replaced, SUBSTITUTED)
    count = _add_offer(references, count, after_inserted, np.float32(1) - SUBSTITUTED)
    return min(state[LOST], np.int64(3)) if count else np.int64(-1)


@part
def _offer_at_cursor(references, state):
    """Offer the token at the cursor, or that of an edit that could be repeated there."""
    cursor = state[CURSOR]
    own, edit = token_of(references, cursor), edit_at(references, cursor)
    again = np.float32(0)
    if edit >= 0:
        again = repeat_probability(references, edit)
    count = _add_offer(references, 0, own, np.float32(1) - again)
    if edit >= 0:
        count = _add_offer(references, count, first_token(references, edit, cursor), again)
    return _kind_of(state[MATCH]) if count else np.int64(-1)


@part
def _offer_beginnings(references):
    """Offer the first tokens of the texts."""
    texts = min(len(references.starts), OFFERS)
    count = np.int64(0)
    for i in range(texts):
        token = token_of(references, references.starts[i])
        count = _add_offer(references, count, token, np.float32(1) / np.float32(texts))
    return np.int64(0) if count else np.int64(-1)


@part
def _add_offer(references, count, token, p):
    """Offer a token, unless it is -1; return the number of tokens on offer."""
    if token < 0:
        return np.int64(count)
    for i in range(count):
        if references.tokens[i] == token:
            references.p[i] += p
            return np.int64(count)
    references.tokens[count], references.p[count] = token, p
    if count + 1 < OFFERS:
        references.tokens[count + 1] = -1
    return np.int64(count + 1)


@part
def _kind_of(match):
    """Return the kind of an offer after a match of so many tokens."""
    if match <= 3:
        return np.int64(3 + max(match, 1))
    if match <= 5:
        return np.int64(7)
    if match <= 8:
        return np.int64(8)
    return np.int64(9 if match <= 16 else 10 if match <= 32 else 11)


@part
def credit(references, kind, written):
    """Count whether the offer had the token that was written. A wrong offer is not excused where
    all other sources are wrong too, as it would be in blend.mixture: it is about one place, and
    sure."""
    account = references.trust[kind]
    account[USED] += 1
    for i in range(OFFERS):
        if references.tokens[i] < 0:
            return
        if references.tokens[i] == written:
            account[RIGHT] += 1


# For drafters without a mixture.


@entry
def act(what, references, state, recent, tokens, scores):
    """Run what drafters other than blend need. `state` int64[STATE] and `recent` int32[n] move on.

    BEGIN: begin after the prompt. FOLLOW: follow the written `tokens` int32[m]. CHAIN: set `tokens`
    to the most probable path and `scores` to its probabilities, float32[m]; return its length.
    """
    if what == BEGIN:
        begin(references, state, recent)
        return 0
    if what == FOLLOW:
        for i in range(len(tokens)):
            kind = offer(references, state)
            if kind >= 0:
                credit(references, kind, np.int64(tokens[i]))
            push_recent(recent, tokens[i])
            follow_written(references, state, recent, np.int64(tokens[i]))
        return 0
    score = np.float32(1)
    for i in range(len(tokens)):
        kind = offer(references, state)
        if kind < 0:
            return i
        best = 0
        for j in range(1, OFFERS):
            if references.tokens[j] < 0:
                break
            if references.p[j] > references.p[best]:
                best = j
        account = references.trust[kind]
        score *= np.float32(account[RIGHT] / account[USED]) * references.p[best]
        tokens[i], scores[i] = references.tokens[best], score
        push_recent(recent, tokens[i])
        advance(references, state, recent, np.int64(tokens[i]))
    return len(tokens)


# For blend, whose kernels leave them out of a request without references.


@optional_part
def begin_aligned(references, state, recent):
    """Begin after the prompt."""
    begin(references, state, recent)


@optional_part
def follow_aligned(references, state, recent, token):
    """Follow `token`, which is recent[0] and was written."""
    if state[BEGUN]:
        follow_written(references, state, recent, token)


@optional_part
def step_aligned(references, parent, state, recent):
    """Set a node's state from its parent's; its token is recent[0]."""
    copy_state(parent, state)
    advance(references, state, recent, recent[0])


@part
def copy_state(source, target):
    for i in range(STATE):
        target[i] = source[i]


@optional_part
def mix_in_reference(references, state, into, p, written):
    """Mix the offer at `state` into p float32[CANDIDATES]. `written` is the token that followed, by
    which the offer is credited first; -1 where none has."""
    kind = offer(references, state)
    if kind >= 0:
        if written >= 0:
            credit(references, kind, written)
        mix_in(references.trust[kind], references.tokens, references.p, into, p)
