"""What a grammar forces, against a naive twin, and in the real llama-cpp-python where it is."""

from __future__ import annotations

from hypothesis import given, strategies as st

from ngramkit.engines.llama_grammar import MOST, Habits, forced_text


class Texts:
    """The grammar of a few texts."""

    def __init__(self, texts):
        self.texts, self.at = texts, 0

    def next(self):
        if any(len(text) == self.at for text in self.texts):
            return None
        return bytes(sorted({text[self.at] for text in self.texts}))

    def accept(self, character):
        self.texts = [text for text in self.texts if text[self.at] == character]
        self.at += 1


def twin(texts, last):
    """Drop the texts that break the habit, character by character; what the others begin with."""
    found = b""
    while len(found) < MOST and texts and found not in texts:
        choices = {text[len(found)] for text in texts}
        if len(choices) == 2 and ord(" ") in choices:
            spaced = last in b":,"
            choices = {c for c in choices if (c == ord(" ")) == spaced}
        if len(choices) != 1:
            break
        last = choices.pop()
        found += bytes([last])
        texts = [text for text in texts if text.startswith(found)]
    return found


@given(
    st.lists(st.text("a: ,{", min_size=1, max_size=8).map(str.encode), min_size=1, max_size=4),
    st.sampled_from(b"a:{"),
)
def test_the_forced_text_is_the_twins(texts, last):
    assert forced_text(Texts(texts), last, Habits()) == twin(texts, last)


def test_spaces_follow_the_habit():
    texts = [b'"name":"a', b'"name": "a']
    habits = Habits()
    assert forced_text(Texts(texts), ord("{"), habits) == texts[1]
    habits.learn(b'{"id":7')
    assert forced_text(Texts(texts), ord("{"), habits) == texts[0]


def test_a_long_text_ends():
    assert forced_text(Texts([b"a" * 500]), ord("a"), Habits()) == b"a" * MOST
