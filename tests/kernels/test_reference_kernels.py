"""A cursor in references against the twin of blend's follower."""

import math
import random

import numpy as np
from hypothesis import example, given, settings, strategies as st
from twins.copied_text import (
    ALTERNATIVE,
    FIRST_TRUST,
    RATES,
    REFERENCE,
    CopiedPlace,
    Edits,
    begin_references,
    step_references,
)

from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.references import Cursor


def lines(draw, ids):
    """A text in which some lines stand more than once, as in code."""
    some = [[draw.randrange(ids) for _ in range(draw.randint(1, 9))] for _ in range(6)]
    return [token for _ in range(draw.randint(1, 20)) for token in draw.choice(some)]


def changed(draw, text, ids):
    """Some tokens taken out, others put in; half of the changes wherever they can be made."""
    text = list(text)
    for _ in range(draw.randint(0, 6)):
        at, removed = draw.randint(0, len(text)), draw.randint(0, 3)
        span = text[at : at + removed]
        inserted = [draw.randrange(ids + 3) for _ in range(draw.randint(0, 4))]
        text[at : at + removed] = inserted
        for other in range(len(text) if span and draw.random() < 0.5 else 0):
            if text[other : other + removed] == span:
                text[other : other + removed] = inserted
    return text


class Twin:
    """Two places in references, the edits made, and the trust in the places."""

    def __init__(self, references, prompt):
        self.text = [t for text in references for t in (*text, None)]
        self.places, self.edits = [CopiedPlace(), CopiedPlace()], Edits()
        self.written = list(prompt)
        self.trust = FIRST_TRUST[REFERENCE:, :, 0].astype(float).tolist()
        begin_references(self.text, self.written, self.places)

    def offers(self, places, written):
        places[0].find_again_in_references(self.text, written)
        self.edits.find(places)
        return [place.offer() for place in places]

    def write(self, token):
        offers = self.offers(self.places, self.written)
        learnt = 1 if offers[1] is not None else 0
        if offers[learnt] is not None:
            kind, expected = offers[learnt]
            rate = RATES[(REFERENCE, ALTERNATIVE)[learnt]]
            self.trust[learnt][kind] += rate * ((expected == token) - self.p(learnt, kind))
        self.written.append(token)
        self.edits.write(self.places, self.written)

    def p(self, which, kind):
        return 1 / (1 + math.exp(-self.trust[which][kind]))

    def chain(self, length):
        """[(token, score)]"""
        places, written = [place.copy() for place in self.places], list(self.written)
        found, score = [], 1.0
        while len(found) < length:
            offer, other = self.offers(places, written)
            again = self.p(1, other[0]) if other else 0
            if again > 0.5:
                score *= again
                token = other[1]
            elif offer is not None:
                score *= self.p(0, offer[0]) * (1 - again)
                token = offer[1]
            else:
                break
            found.append((token, score))
            written.append(token)
            step_references(places, token)
        return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([2, 4, 8, 40]), st.integers(1, 3), st.booleans())
@example(80, 2, 3, True)  # the prompt ends like a reference, then in the id that separates them
def test_the_cursor_is_its_twins(seed, ids, count, after):
    draw = random.Random(seed)
    references = [lines(draw, ids) for _ in range(count)]
    written = changed(draw, draw.choice(references), ids)
    prompt = [draw.randrange(ids) for _ in range(draw.randint(0, 12))]
    prompt = [*prompt, *written[:6]] if after else prompt
    written = written[6:] if after else written
    ours, twin = Cursor(references, np.array(prompt, np.int32)), Twin(references, prompt)
    for token in [*written, None]:
        tree = ours.before(DraftTree.empty(), 6, 6)
        wanted = twin.chain(6)
        assert tree.token_ids.tolist() == [token for token, _ in wanted]
        np.testing.assert_allclose(tree.scores, [score for _, score in wanted], rtol=1e-5)
        if token is not None:
            ours.accept(np.array([token], np.int32))
            twin.write(token)
