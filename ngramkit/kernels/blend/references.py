"""References: texts that are likely to be copied or edited, and what they say comes next.

References lie one behind the other in one suffix array (see `suffix.search`), a separator after
each. The *state* of an alignment says which of their tokens is expected next, and is kept while the
text agrees. Where the two part, the longest of the last tokens' matches is taken, and a near one
before a longer far one: `locate`.

Edits: where text and references part and come together again, some tokens of theirs were replaced
by some of the text's. An identifier is renamed more than once: where the same tokens stand again,
with the same token beside them, the same change is an offer.

Offers: where the text agrees with the references, the token at the cursor, or the change that was
made before where they say the same. Where the two have just parted, two guesses: as many tokens
were replaced as were written since, or what was written was put in. Before the first, the texts'
beginnings. How often offers come true is learnt by how long the two have agreed.

Most requests have no references (`packed.Absent`): kernels are compiled without these parts, of a
third less code, until references come.

`recent` is int32[n], the last tokens of the text, the newest first, NO_TOKEN before the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngramkit.kernels.arrays import Array
from ngramkit.kernels.blend.mixture import mix_in
from ngramkit.kernels.jit import entry, optional_part, part
from ngramkit.kernels.suffix.search import SIZE, VOCABULARY, bucket, narrow, position_at, token_at

# The state of an alignment, int64[STATE]: positions in the references, -1 for none.
CURSOR = 0  # of the token that is expected next
MATCH = 1  # tokens in a row that agreed before it
ANCHOR = 2  # where a long match was last lost: it is gone on with near there
LOST = 3  # tokens written since
EDIT, STEP = 4, 5  # the edit that is being repeated (references.edits), and how far it is; EDIT -1
BEGUN = 6  # 0 while the prompt is read
STATE = 7

SOLID = 4  # a match as long makes a new anchor
NEAR = 4  # a near match counts as if it were so much longer
REACH = 64  # a match of 1, 2, 3 tokens is near at up to 4, 16, 64 from the anchor
LEAST_FAR = 2  # a far match is as long at least ...
MOST_FAR = 64  # ... and stands at so many places at most
EDITS = 32  # remembered; newer ones take the places of older ones
LONGEST_EDIT = 16  # tokens taken out or put in, at most
SINCE = 48  # tokens after an anchor that are remembered
OFFERS = 4  # tokens offered at once
KINDS = 12  # of offers, by how far the alignment goes; see references.offers


class References(NamedTuple):
    """Reference texts and what a request has learnt about them."""

    table: Array  # int64[0 or 1, 7], see suffix.search.shard_table; 0: there are none
    starts: Array  # int64[texts], where each begins
    trust: Array  # float64[KINDS, 2], accounts as in blend.mixture
    edits: Array  # int64[EDITS, 5], see references.edits
    inserted: Array  # int32[EDITS, LONGEST_EDIT]
    made: Array  # int64[1], edits there ever were
    since: Array  # int32[SINCE], written since the anchor
    tokens: Array  # int32[OFFERS], offered now; -1 ends them
    p: Array  # float32[OFFERS], how likely each is


def new_state() -> Array:
    """Before the prompt."""
    return np.array([-1, 0, -1, 0, -1, 0, 0], np.int64)


@part
def held(references, position):
    """The token at a position; -1 where a text has ended."""
    shard = references.table[0]
    if position < 0 or position >= shard[SIZE]:
        return np.int64(-1)
    token = np.int64(token_at(shard, position))
    return token if token < shard[VOCABULARY] else np.int64(-1)


@part
def agreeing(references, end, recent):
    """How many tokens before `end` are the last ones of the text."""
    match = 0
    while match < len(recent):
        token = held(references, end - 1 - match)
        if token < 0 or token != recent[match]:
            break
        match += 1
    return np.int64(match)


@part
def locate(references, state, recent):
    """The text has just parted from the references, or begins: sets CURSOR and MATCH anew."""
    anchor = state[ANCHOR]
    best, length, worth, distance = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    if anchor >= 0:
        for i in range(2 * REACH + 1):  # 0, 1, -1, 2, -2, ...: nearest first, forward first
            away = np.int64((i + 1) // 2)
            end = anchor + away if i % 2 else anchor - away
            match = agreeing(references, end, recent)
            if match > 0 and away <= (4 << (2 * min(match, 3) - 2)) and match + NEAR > worth:
                best, length, worth, distance = end, match, match + NEAR, away
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
    """From the anchor; where there is none, from the beginning of the text that holds it."""
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
    """The length of the longest match of the last tokens, and its interval."""
    shard = references.table[0]
    high = np.int64(0)  # no longer one than up to what the references do not know
    while high < len(recent) and 0 <= recent[high] < shard[VOCABULARY]:
        high += 1
    low, begin, end = np.int64(0), np.int64(0), np.int64(0)
    while low < high:
        middle = (low + high + 1) >> 1
        first, last = _find(shard, recent, middle)
        if first < last:
            low, begin, end = middle, first, last
        else:
            high = middle - 1
    return low, begin, end


@part
def _find(shard, recent, length):
    """The interval of all suffixes that begin with the last `length` tokens of the text."""
    low, high = bucket(shard, np.int64(recent[length - 1]))
    low, high = np.int64(low), np.int64(high)
    for depth in range(1, length):
        if low >= high:
            break
        low, high = narrow(shard, low, high, depth, np.int64(recent[length - 1 - depth]))
    return low, high


FROM, REMOVED, INSERTED, HITS, TRIES = range(5)  # columns of References.edits
# An edit that was never tried again is repeated two times in three.
FIRST_HITS, FIRST_TRIES = 2.0, 3.0


@part
def chance(references, edit):
    """How likely it is that an edit is repeated where it could be."""
    row = references.edits[edit]
    return np.float32((row[HITS] + FIRST_HITS) / (row[TRIES] + FIRST_TRIES))


@part
def edit_at(references, cursor):
    """The edit that could be repeated at a position, -1 where none could: of those the one with the
    most of its three neighbours there too (one before, two after), then the newest."""
    best, most = np.int64(-1), 0
    made = references.made[0]
    for age in range(min(made, EDITS)):
        edit = (made - 1 - age) % EDITS
        row = references.edits[edit]
        beside = _beside(references, row, cursor)
        if beside > most:
            best, most = np.int64(edit), beside
    return best


@part
def _beside(references, row, cursor):
    """How many neighbours of an edit stand at `cursor` too; 0 where it could not be repeated."""
    begin, removed = row[FROM], row[REMOVED]
    if begin == cursor:
        return 0
    for i in range(removed):
        if held(references, begin + i) != held(references, cursor + i):
            return 0
    before = _same(references, begin - 1, cursor - 1)
    after = _same(references, begin + removed, cursor + removed)
    further = after and _same(references, begin + removed + 1, cursor + removed + 1)
    if removed == 0 and not (before and after):
        return 0
    return int(before) + int(after) + int(further)


@part
def _same(references, one, other):
    token = held(references, one)
    return token >= 0 and token == held(references, other)


@part
def first_of(references, edit, cursor):
    """The token that is written first where the edit is repeated."""
    row = references.edits[edit]
    if row[INSERTED] > 0:
        return np.int64(references.inserted[edit, 0])
    return held(references, cursor + row[REMOVED])


@part
def judge(references, edit, cursor, token):
    """`token` was written where the edit could be repeated."""
    row = references.edits[edit]
    if token == first_of(references, edit, cursor):
        row[HITS] += 1
        row[TRIES] += 1
    elif token == held(references, cursor):
        row[TRIES] += 1


@part
def remember(references, state, recent, anchor, written):
    """Text and references have come together again, `written` tokens after they parted at
    `anchor`; those tokens are references.since."""
    if written > SINCE:
        return
    cursor = state[CURSOR]
    match = min(agreeing(references, cursor, recent), written, cursor - anchor)
    inserted, removed = written - match, cursor - match - anchor
    if match < 1 or inserted + removed == 0:
        return
    if inserted > LONGEST_EDIT or removed > LONGEST_EDIT:
        return
    if _known(references, anchor, removed, inserted):
        return
    edit = references.made[0] % EDITS
    references.made[0] += 1
    row = references.edits[edit]
    row[FROM], row[REMOVED], row[INSERTED], row[HITS], row[TRIES] = anchor, removed, inserted, 0, 0
    for i in range(inserted):
        references.inserted[edit, i] = references.since[i]


@part
def _known(references, anchor, removed, inserted):
    """Whether the same change was made before."""
    for edit in range(min(references.made[0], EDITS)):
        row = references.edits[edit]
        same = row[REMOVED] == removed and row[INSERTED] == inserted
        for i in range(removed):
            same = same and held(references, row[FROM] + i) == held(references, anchor + i)
        for i in range(inserted):
            same = same and references.inserted[edit, i] == references.since[i]
        if same:
            return True
    return False


@part
def begin(references, state, recent):
    """The prompt has been read: what follows begins at the first reference, unless the prompt ends
    in the middle of one."""
    for i in range(STATE):
        state[i] = 0
    state[CURSOR] = state[ANCHOR] = state[EDIT] = -1
    state[BEGUN] = 1
    locate(references, state, recent)
    if state[MATCH] >= SOLID and held(references, state[CURSOR]) >= 0:
        state[ANCHOR] = state[CURSOR]
    else:
        state[CURSOR], state[MATCH] = -1, 0


@part
def advance(references, state, recent, token):
    """`token`, which is recent[0], follows."""
    state[LOST] += 1
    if not _expected(references, state, token):
        locate(references, state, recent)  # once: it is compiled into every place of a call
    if state[EDIT] < 0 and state[MATCH] >= SOLID:
        state[ANCHOR], state[LOST] = state[CURSOR], 0


@part
def _expected(references, state, token):
    """Whether the alignment goes on with `token`; then it has."""
    if state[EDIT] >= 0:
        return _repeat(references, state, token)
    if state[CURSOR] >= 0 and held(references, state[CURSOR]) == token:
        state[CURSOR] += 1
        state[MATCH] += 1
        return True
    return _repeats(references, state, token)


@part
def _repeats(references, state, token):
    """Return whether an earlier edit begins here anew; then the alignment goes on behind it."""
    cursor = state[CURSOR]
    edit = edit_at(references, cursor) if cursor >= 0 else np.int64(-1)
    if edit < 0 or first_of(references, edit, cursor) != token:
        return False
    row = references.edits[edit]
    if row[INSERTED] > 1:
        state[EDIT], state[STEP] = edit, 1
    else:
        state[CURSOR] = cursor + row[REMOVED] + (1 - row[INSERTED])
    return True


@part
def _repeat(references, state, token):
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
def follow(references, state, recent, token):
    """`advance` by a token that was really written: edits are learnt."""
    anchor, lost, cursor = state[ANCHOR], state[LOST], state[CURSOR]
    if state[EDIT] < 0 and cursor >= 0:
        edit = edit_at(references, cursor)
        if edit >= 0:
            judge(references, edit, cursor, token)
    if lost < SINCE:
        references.since[lost] = token
    advance(references, state, recent, token)
    if anchor >= 0 and lost > 0 and state[LOST] == 0:
        remember(references, state, recent, anchor, lost + 1)


RIGHT, ASKED = range(2)
PRIOR = 10.0  # a first trust counts as if learnt from so many tokens
# Before the first token; 1, 2, more tokens after the two parted; a match of 1, 2, 3, 5, 8, 16, 32
# tokens at most, or of more.
FIRST_TRUST = (0.3, 0.3, 0.15, 0.1, 0.5, 0.7, 0.8, 0.9, 0.94, 0.97, 0.98, 0.99)
SUBSTITUTED = np.float32(0.6)  # rather than put in
BEGIN, FOLLOW, CHAIN = range(3)


def new_references(table: Array, starts: Array) -> References:
    """`table` int64[0 or 1, 7] and what is behind it must outlive it."""
    found = References(
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
    found.trust[:, RIGHT] *= np.array(FIRST_TRUST)
    return found


@part
def offer(references, state):
    """Fills references.tokens and references.p; returns the kind, -1 where there is no offer."""
    references.tokens[0] = -1
    if state[EDIT] >= 0:
        _put(references, 0, references.inserted[state[EDIT], state[STEP]], np.float32(1))
        return _kind_of(state[MATCH])
    if state[CURSOR] >= 0:
        return _ahead(references, state)
    if state[ANCHOR] < 0:
        return _beginnings(references)
    one = held(references, state[ANCHOR] + state[LOST])
    other = held(references, state[ANCHOR])
    count = _put(references, 0, one, SUBSTITUTED)
    count = _put(references, count, other, np.float32(1) - SUBSTITUTED)
    return min(state[LOST], np.int64(3)) if count else np.int64(-1)


@part
def _put(references, count, token, p):
    """Offers a token that is one; returns how many there are now."""
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
def credit(references, kind, written):
    """Counts whether the offer held what was written. One that is wrong is not excused where all
    other sources are too, as it would be in blend.mixture: it speaks of one place, and surely."""
    account = references.trust[kind]
    account[ASKED] += 1
    for i in range(OFFERS):
        if references.tokens[i] < 0:
            return
        if references.tokens[i] == written:
            account[RIGHT] += 1


@part
def _ahead(references, state):
    cursor = state[CURSOR]
    own, edit = held(references, cursor), edit_at(references, cursor)
    again = np.float32(0)
    if edit >= 0:
        again = chance(references, edit)
    count = _put(references, 0, own, np.float32(1) - again)
    if edit >= 0:
        count = _put(references, count, first_of(references, edit, cursor), again)
    return _kind_of(state[MATCH]) if count else np.int64(-1)


@part
def _beginnings(references):
    texts = min(len(references.starts), OFFERS)
    count = np.int64(0)
    for i in range(texts):
        token = held(references, references.starts[i])
        count = _put(references, count, token, np.float32(1) / np.float32(texts))
    return np.int64(0) if count else np.int64(-1)


@part
def _kind_of(match):
    if match <= 3:
        return np.int64(3 + max(match, 1))
    if match <= 5:
        return np.int64(7)
    if match <= 8:
        return np.int64(8)
    return np.int64(9 if match <= 16 else 10 if match <= 32 else 11)


@entry
def act(what, references, state, recent, tokens, scores):
    """What drafters other than blend ask for. `state` int64[STATE] and `recent` int32[n] follow.

    BEGIN: the prompt has been read. FOLLOW: `tokens` int32[m] were written. CHAIN: fills `tokens`
    with the likeliest path, its probabilities float32[m] with `scores`; returns its length.
    """
    if what == BEGIN:
        begin(references, state, recent)
        return 0
    if what == FOLLOW:
        for i in range(len(tokens)):
            kind = offer(references, state)
            if kind >= 0:
                credit(references, kind, np.int64(tokens[i]))
            _push(recent, tokens[i])
            follow(references, state, recent, np.int64(tokens[i]))
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
        score *= np.float32(account[RIGHT] / account[ASKED]) * references.p[best]
        tokens[i], scores[i] = references.tokens[best], score
        _push(recent, tokens[i])
        advance(references, state, recent, np.int64(tokens[i]))
    return len(tokens)


@part
def _push(recent, token):
    for i in range(len(recent) - 1, 0, -1):
        recent[i] = recent[i - 1]
    recent[0] = token


@optional_part
def mix_in_reference(references, state, into, p, written):
    """Mixes what is expected at `state` into p float32[CANDIDATES]. `written` is what came there,
    with which it is credited first; -1 where nothing has."""
    kind = offer(references, state)
    if kind >= 0:
        if written >= 0:
            credit(references, kind, written)
        mix_in(references.trust[kind], references.tokens, references.p, into, p)


@optional_part
def keep_aligned(references, state, recent, token):
    """`token`, which is recent[0], was written."""
    if state[BEGUN]:
        follow(references, state, recent, token)


@optional_part
def begin_aligned(references, state, recent):
    """The prompt has been read."""
    begin(references, state, recent)


@optional_part
def step_aligned(references, parent, state, recent):
    """A node's state from its parent's: its token, recent[0], is thought of after that."""
    copy_state(parent, state)
    advance(references, state, recent, recent[0])


@part
def copy_state(source, target):
    for i in range(STATE):
        target[i] = source[i]
