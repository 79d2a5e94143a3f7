import random

import numpy as np
from hypothesis import given, settings, strategies as st
from twins.alignment import Alignment

from ngramkit.drafters.references import ReferenceTexts
from ngramkit.kernels.arrays import NO_TOKEN
from ngramkit.kernels.blend import references as offers
from ngramkit.kernels.blend.references import ANCHOR, CURSOR, LOST, MATCH, new_state
from ngramkit.kernels.packed import Packed


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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([2, 4, 8, 40]), st.integers(1, 3), st.booleans())
def test_the_alignment_is_its_twins(seed, ids, count, after):
    draw = random.Random(seed)
    references = [lines(draw, ids) for _ in range(count)]
    written = changed(draw, draw.choice(references), ids)
    prompt = [draw.randrange(ids) for _ in range(draw.randint(0, 12))]
    prompt = [*prompt, *written[:6]] if after else prompt
    written = written[6:] if after else written
    ours = Alone(references, prompt)
    twin = Alignment(references, prompt)
    for number, token in enumerate([*written, None]):
        kept = [ours.state[column] for column in (CURSOR, MATCH, ANCHOR, LOST)]
        assert kept == [twin.cursor, twin.match, twin.anchor, twin.lost]
        if number % 6 == 0 or twin.lost:
            found, score = ours.chain(6)
            assert found == twin.chain(6)
            wanted, kind = twin.offers()
            if kind is not None:
                right, used = ours.packed.parts.trust[kind]
                np.testing.assert_allclose(score, right / used * max(wanted.values()), rtol=1e-5)
        if token is not None:
            ours.act(offers.FOLLOW, np.array([token], np.int32))
            twin.write(token)
    assert min(ours.packed.parts.made[0], 32) == len(twin.edits)


class Alone:
    """The kernels' alignment by itself."""

    def __init__(self, references, prompt):
        self.texts = ReferenceTexts(references)
        self.packed = Packed(self.texts.for_request())
        self.state = new_state()
        self.recent = np.array([*prompt[-8:][::-1], *[NO_TOKEN] * 8][:8], np.int32)
        self.act(offers.BEGIN, np.empty(0, np.int32))

    def act(self, what, tokens):
        nothing = np.empty(0, np.float32)
        offers.act(what, self.packed, self.state, self.recent, tokens, nothing)

    def chain(self, length):
        found, scores = np.empty(length, np.int32), np.empty(length, np.float32)
        thought = self.state.copy(), self.recent.copy()
        n = offers.act(offers.CHAIN, self.packed, *thought, found, scores)
        return found[:n].tolist(), scores[0] if n else None
