"""The naive twin of ngramkit.kernels.blend.references: lists, and a look at every position."""

from __future__ import annotations

RECENT, SOLID, NEAR, REACH, MOST_FAR = 8, 4, 4, 64, 64
EDITS, LONGEST_EDIT, SINCE, OFFERS = 32, 16, 48, 4


class Alignment:
    """`texts` are lists of ids; `prompt` has been read."""

    def __init__(self, texts, prompt):
        self.tokens = [t for text in texts for t in (*text, None)]
        self.starts = [sum(len(t) + 1 for t in texts[:i]) for i in range(len(texts))]
        self.written = list(prompt)
        self.cursor, self.match, self.anchor, self.lost = -1, 0, -1, 0
        self.edit, self.step = None, 0
        self.edits, self.since = [], []
        self._locate()
        if self.match >= SOLID and self._at(self.cursor) is not None:
            self.anchor = self.cursor
        else:
            self.cursor, self.match = -1, 0

    def _at(self, position):
        return self.tokens[position] if 0 <= position < len(self.tokens) else None

    def _match_before(self, end):
        match = 0
        while match < min(RECENT, len(self.written)) and self._at(end - 1 - match) is not None:
            if self._at(end - 1 - match) != self.written[-1 - match]:
                break
            match += 1
        return match

    def _distance(self, end):
        if self.anchor >= 0:
            return abs(end - self.anchor)
        return end - max(s for s in self.starts if s < end)

    def _locate(self):
        matches = {end: self._match_before(end) for end in range(1, len(self.tokens) + 1)}
        longest = max(matches.values(), default=0)
        as_long = [end for end, match in matches.items() if match == longest]
        found = []
        for end, match in matches.items():
            away = abs(end - self.anchor)
            near = self.anchor >= 0 and match and away <= min(REACH, 4**match)
            far = longest >= 2 and match == longest and len(as_long) <= MOST_FAR
            if near or far:
                found.append((match + NEAR * near, -self._distance(end), end))
        self.cursor = max(found)[2] if found else -1
        self.match = matches[self.cursor] if found else 0

    def edit_at(self, cursor):
        """The edit that could be repeated there; `edits` are [begin, removed, inserted, hits,
        tries], removed a number of tokens."""
        best, most = None, 0
        for edit in reversed(self.edits):
            begin, removed = edit[:2]
            span = range(removed)
            if begin == cursor or any(self._at(begin + i) != self._at(cursor + i) for i in span):
                continue
            neighbours = [self._same(begin + i, cursor + i) for i in (-1, removed, removed + 1)]
            neighbours[2] = neighbours[1] and neighbours[2]
            if removed == 0 and not (neighbours[0] and neighbours[1]):
                continue
            if sum(neighbours) > most:
                best, most = edit, sum(neighbours)
        return best

    def _same(self, one, other):
        return self._at(one) is not None and self._at(one) == self._at(other)

    def first_of(self, edit):
        return edit[2][0] if edit[2] else self._at(self.cursor + edit[1])

    def offers(self):
        """{token: probability}, first the one that is offered first; and the kind, or None."""
        found = {}

        def put(token, p):
            if token is not None:
                found[token] = found.get(token, 0) + p

        kind = None
        if self.edit is not None:
            put(self.edit[2][self.step], 1.0)
            kind = self._kind()
        elif self.cursor >= 0:
            edit = self.edit_at(self.cursor)
            again = 0 if edit is None else (edit[3] + 2) / (edit[4] + 3)
            put(self._at(self.cursor), 1 - again)
            if edit is not None:
                put(self.first_of(edit), again)
            kind = self._kind()
        elif self.anchor < 0:
            for begin in self.starts[:OFFERS]:
                put(self._at(begin), 1 / min(len(self.starts), OFFERS))
            kind = 0
        else:
            put(self._at(self.anchor + self.lost), 0.6)
            put(self._at(self.anchor), 0.4)
            kind = min(self.lost, 3)
        return found, kind if found else None

    def _kind(self):
        bounds = (1, 2, 3, 5, 8, 16, 32)
        return 4 + sum(self.match > bound for bound in bounds)

    def write(self, token, *, thought=False):
        """One token further; `thought`: in a draft, nothing is learnt."""
        anchor, lost = self.anchor, self.lost
        if not thought and self.edit is None and self.cursor >= 0:
            edit = self.edit_at(self.cursor)
            if edit is not None and token == self.first_of(edit):
                edit[3:] = [edit[3] + 1, edit[4] + 1]
            elif edit is not None and token == self._at(self.cursor):
                edit[4] += 1
        if not thought:
            self.since = [*self.since[:lost], token]
        self.written = [*self.written, token]
        self._advance(token)
        if not thought and anchor >= 0 and lost > 0 and self.lost == 0:
            self._remember(anchor, lost + 1)

    def _advance(self, token):
        self.lost += 1
        again = None
        if self.edit is not None:
            if self.edit[2][self.step] != token:
                self.edit = None
                self._locate()
            else:
                self.step += 1
                if self.step == len(self.edit[2]):
                    self.cursor += self.edit[1]
                    self.edit = None
        elif self.cursor >= 0 and self._at(self.cursor) == token:
            self.cursor, self.match = self.cursor + 1, self.match + 1
        else:
            again = self.edit_at(self.cursor) if self.cursor >= 0 else None
            if again is None or self.first_of(again) != token:
                self._locate()
            elif len(again[2]) > 1:
                self.edit, self.step = again, 1
            else:
                self.cursor += again[1] + 1 - len(again[2])
        if self.edit is None and self.match >= SOLID:
            self.anchor, self.lost = self.cursor, 0

    def _remember(self, anchor, written):
        match = min(self._match_before(self.cursor), written, self.cursor - anchor)
        removed = self.cursor - match - anchor
        inserted = self.since[: written - match]
        short = max(removed, len(inserted)) <= LONGEST_EDIT and written <= SINCE
        if match < 1 or not short or not (removed or inserted):
            return
        spans = [self.tokens[e[0] : e[0] + e[1]] for e in self.edits[-EDITS:]]
        for edit, span in zip(self.edits[-EDITS:], spans, strict=True):
            if span == self.tokens[anchor : anchor + removed] and edit[2] == inserted:
                return
        self.edits = [*self.edits, [anchor, removed, inserted, 0, 0]][-EDITS:]

    def chain(self, length):
        """The likeliest path."""
        thought = object.__new__(Alignment)
        thought.__dict__.update(self.__dict__)
        found = []
        while len(found) < length:
            offers, kind = thought.offers()
            if kind is None:
                break
            found.append(max(offers, key=offers.get))
            thought.write(found[-1], thought=True)
        return found
