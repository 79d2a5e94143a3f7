"""How blend's naive twin copies: lists, and a look at every position."""

from __future__ import annotations

import math

from ngramkit.kernels.blend.copied_text import FIRST_TRUST  # the fitted numbers, not the rule

RECENT, SOLID, NEAR_WORTH, BACK, NEAR_MATCH, LONG_LOST = 32, 5, 4, 16, 8, 48
FROM, NEAR_FROM = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64), (1, 2, 4)
BEGINNING, MAX_EQUAL, EDITS, LONGEST_EDIT = 2, 64, 32, 16
RATES, MIN_PROBABILITY = (0.1, 0.1, 0.5, 0.1, 0.5), 2.5e-3
LIVE, PAST, SAME_PROMPT, REFERENCE, ALTERNATIVE = range(5)


class CopiedPlace:
    """Where is copied from: `text` with None after a document, `end` the position expected next,
    `first` the tokens of an edit that come before it."""

    text, end, match, near, anchor, lost, first = (), None, 0, False, None, 0, ()

    def copy(self):
        other = CopiedPlace()
        other.__dict__.update(self.__dict__)
        return other

    def at(self, position):
        return self.text[position] if 0 <= position < len(self.text) else None

    def _next(self):
        return self.first[0] if self.first else self.at(self.end)

    def step(self, token):
        if self.end is None or self._next() != token:
            self.end, self.match, self.first = None, 0, ()
        elif self.first:
            self.first = self.first[1:]
        else:
            self.end, self.match = self.end + 1, self.match + 1
        if self.match >= SOLID:
            self.anchor, self.lost = self.end, 0
        elif self.anchor is not None:
            self.lost += 1
            if self.lost > LONG_LOST:
                self.anchor = None

    def find(self, texts, context, matches):
        """`matches`: (length, number of the text, end) of what may be longest, the best last."""
        self.find_again_near_anchor(context)
        worth = self.match
        if self.anchor is not None and (self.end is None or self.near):
            worth += NEAR_WORTH
        if matches and matches[-1][0] > worth:
            self.match, number, self.end = matches[-1]
            self.text, self.near = texts[number], False
            if self.match >= SOLID:
                self.anchor, self.lost = self.end, 0

    def begin_reference(self, text, start):
        self.text, self.end, self.anchor, self.match = text, start, start, BEGINNING

    def find_again_in_references(self, text, context):
        if not text or self.end is not None:
            return
        matches = {end: match_before(text, end, context, RECENT) for end in range(1, len(text) + 1)}
        longest = max(matches.values())
        ends = [end for end, match in matches.items() if match == longest]
        found = []
        if longest and len(ends) <= MAX_EQUAL:
            anchor = self.anchor or 0
            end = min(ends, key=lambda end: (abs(end - anchor), -end))
            found = [(longest, 0, end)]
        self.find([text], context, found)

    def find_again_near_anchor(self, context):
        if self.end is not None or self.anchor is None:
            return
        found = []
        for end in range(self.anchor - BACK, self.anchor + 65):
            match = match_before(self.text, end, context, NEAR_MATCH)
            away = abs(end - self.anchor)
            if match and end < len(self.text) and away <= min(64, 4**match):
                found.append((match, -away, end > self.anchor, end))
        if found:
            self.match, _, _, self.end = max(found)
            self.near = True

    def offer(self):
        """(kind, token), or None."""
        if self.end is not None and self.near and self.match < NEAR_MATCH:
            kind = len(FROM) + sum(self.match >= n for n in NEAR_FROM) - 1
        elif self.end is not None:
            kind = sum(self.match >= n for n in FROM) - 1
        elif self.anchor is not None:
            kind = len(FROM) + len(NEAR_FROM) + min(self.lost, 3) - 1
        else:
            return None
        token = self.at(self.anchor + self.lost) if self.end is None else self._next()
        return None if token is None or kind < 0 else (kind, token)


def match_before(text, end, context, most):
    """How many tokens before `end` agree with the last ones of `context`."""
    match = 0
    while match < min(most, len(context), end) and end <= len(text):
        if text[end - 1 - match] is None or text[end - 1 - match] != context[-1 - match]:
            break
        match += 1
    return match


def begin_references(text, prompt, places):
    """Follow the first two references, unless the prompt ends inside one. `text` has None after
    each."""
    tail = prompt[-SOLID:]
    inside = any(text[i : i + SOLID] == tail for i in range(len(text)))
    if inside and len(tail) == SOLID:
        return
    starts = [0, *(i + 1 for i, token in enumerate(text) if token is None)][:-1]
    for place, start in zip(places, starts, strict=False):
        place.begin_reference(text, start)


def step_references(places, token):
    """Move both places on: the second takes the first's place if only the second was right."""
    for place in places:
        place.step(token)
    if places[0].end is None and places[1].end is not None:
        places[0] = places[1]
        places[1] = CopiedPlace()
    if places[1].end is None:
        places[1] = CopiedPlace()


class Edits:
    """The edits of references so far: (position, replaced, written tokens), the newest last."""

    def __init__(self):
        self.made = []

    def write(self, places, written):
        """Move on by the last of all `written` tokens."""
        anchor, lost = places[0].anchor, places[0].lost
        step_references(places, written[-1])
        reference = places[0]
        if anchor is None or not lost or reference.anchor is None or reference.lost:
            return
        since = lost + 1
        if reference.end is None or since > RECENT:
            return
        match = match_before(reference.text, reference.end, written[-since:], RECENT)
        match = min(match, reference.end - anchor)
        replaced, inserted = reference.end - match - anchor, written[len(written) - since :]
        inserted = inserted[: since - match]
        longest = max(replaced, len(inserted))
        if match > 0 and 0 < longest <= LONGEST_EDIT:
            self.made = [*self.made, (anchor, replaced, inserted)][-EDITS:]

    def find(self, places):
        """Set the second place to the edit that can be repeated at the first."""
        reference = places[0]
        if reference.end is None or reference.first or places[1].end is not None:
            return
        same = [self._neighbours(reference, edit) for edit in self.made]
        if max(same, default=0) > 0:
            newest = max(range(len(same)), key=lambda i: (same[i], i))
            _, replaced, inserted = self.made[newest]
            places[1] = reference.copy()
            places[1].anchor, places[1].lost = reference.end, 0
            places[1].end, places[1].first = reference.end + replaced, tuple(inserted)

    def _neighbours(self, place, edit):
        begin, replaced, _ = edit
        here = [(place.at(begin + i), place.at(place.end + i)) for i in range(-1, replaced + 2)]
        agree = [one is not None and one == other for one, other in here]
        before, after, further = agree[0], agree[-2], agree[-2] and agree[-1]
        if begin == place.end or not all(agree[1:-2]) or not (replaced or (before and after)):
            return 0
        return before + after + further


class Copies:
    """`copied`: the places, in the live context, in past requests, in the last answer to the same
    prompt, in references and at their alternative. The attributes are the twin's."""

    reference_text = ()  # with None after each reference

    def forget_copies(self):
        self.copied, self.copied_at = [CopiedPlace() for _ in range(5)], {}
        self.edits = Edits()
        self.copy_trust = FIRST_TRUST[:, :, 0].astype(float).tolist()

    def begin_copies(self, prompt, answer=None):
        """Read a prompt: only its end tells where it copied from. `answer`: the last to it, whose
        trust is that of the request before."""
        same = self.copy_trust[SAME_PROMPT]
        self.forget_copies()
        self.copy_trust[SAME_PROMPT] = same
        for i, token in enumerate(prompt):
            self.step_copies(prompt[: i + 1], token, find=i >= len(prompt) - LONG_LOST)
        if answer is not None:
            same = self.copied[SAME_PROMPT]
            same.text, same.end, same.anchor, same.match = answer, 0, 0, FROM[-1]
        begin_references(self.reference_text, prompt, self.copied[REFERENCE:])

    def step_copies(self, live, token, *, find=True):
        """Move on by `token`, with which `live` ends."""
        self.copied[LIVE].text = [self._own(t) for t in live]
        for place in self.copied[:REFERENCE]:
            place.step(token)
        references = self.copied[REFERENCE:]
        self.edits.write(references, live)
        self.copied[REFERENCE:] = references
        if find:
            self.copied[LIVE].find([self.copied[LIVE].text], live, self._own_matches(live, live))

    def copies_of(self, live, path):
        """The places of a node: those of its parent, moved on, and found anew."""
        key = tuple(path)
        places = [place.copy() for place in (self.copied_at[key[:-1]] if key else self.copied)]
        context = [*live, *path]
        for place in places[:REFERENCE] if key else ():
            place.step(path[-1])
        references = places[REFERENCE:]
        if key:
            step_references(references, path[-1])
        for origin in (0, 1):
            texts = [self._documents(shard) for shard in self.past[origin]]
            if self.past[origin]:
                places[PAST].find(texts, context, self._past_matches(origin, texts, context))
        own = [self._own(t) for t in live]
        places[LIVE].find([own], context, self._own_matches(live, context))
        places[SAME_PROMPT].find_again_near_anchor(context)
        references[0].find_again_in_references(self.reference_text, context)
        self.edits.find(references)
        places[REFERENCE:] = references
        self.copied_at[key] = places
        return places

    def mix_copies(self, p, places, written=None):
        for which in (PAST, LIVE, SAME_PROMPT, REFERENCE, ALTERNATIVE):
            offer = places[which].offer()
            if offer is None:
                continue
            kind, token = offer
            trust, slope = self.copy_trust[which], float(FIRST_TRUST[which, kind, 1])
            ours = p.get(token, 0.0)
            clipped = min(max(ours, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
            logit = trust[kind] + slope * math.log(clipped / (1 - clipped))
            after = 1 / (1 + math.exp(-logit))
            decided = which == REFERENCE and places[ALTERNATIVE].end is not None
            if written is not None and not decided:
                trust[kind] += RATES[which] * ((written == token) - after)
            scale = (1 - after) / max(1 - ours, MIN_PROBABILITY)
            p = {t: value * scale for t, value in p.items()} | {token: after}
        return p

    def _own(self, token):
        return token if token < self.vocabulary else None

    def _documents(self, shard):
        return [self._own(token) for token in shard]

    def _own_matches(self, live, context):
        """Of the newest `hops` occurrences; of equally long ones the newest last."""
        if context[-1] >= self.vocabulary:
            return []
        ends = [i + 1 for i in range(len(live) - 1) if live[i] == context[-1]][-self.hops :]
        return sorted((match_before(live, end, context, RECENT), 0, end) for end in ends)

    def _past_matches(self, origin, texts, context):
        """Of the places that are read for the longest match, not sampled; the newest last."""
        shards = self.past[origin]
        order = self._longest_order(shards, context)
        places = [self._suffixes(shard, context[-order:]) for shard in shards]
        if sum(map(len, places)) > self.scan:
            return []
        ends = [(s, place + order) for s, at in enumerate(places) for place in at]
        return sorted(
            (match_before(texts[s], end, context, RECENT), s, end)
            for s, end in ends
            if texts[s][end] is not None
        )
