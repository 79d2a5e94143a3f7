"""The mirror of an engine's rows holds what the engine holds, whatever happens to its requests."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from ngramkit.engines.host_rows import HostRows

NAMES = "abc"
tokens = st.lists(st.integers(0, 9), max_size=5)
name = st.sampled_from(NAMES)
event = st.one_of(
    st.tuples(st.just("begin"), name, tokens, st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("extend"), name, tokens, st.integers(-1, 1)),
    st.tuples(st.just("resync"), name, st.lists(st.integers(0, 9), min_size=6, max_size=9)),
    st.tuples(st.sampled_from(["preempt", "finish", "resume"]), name),
    st.tuples(st.just("prune"), st.sets(name)),
)


def ids(values):
    return np.array(values, np.int32)


class Twin:
    """Whole lists of tokens by name, and what each began with."""

    def __init__(self):
        self.texts, self.facts, self.preempted, self.resynced = {}, {}, {}, 0

    def begin(self, name, text, prompt, hidden):
        self.texts[name], self.facts[name] = list(text), (prompt, hidden)

    def extend(self, name, new, error):
        if name not in self.texts or error:
            return False
        self.texts[name] += new
        return True

    def resync(self, name, text):
        self.resynced += 1
        self.begin(name, text, *(4, self.facts[name][1]) if name in self.texts else (4, 0))

    def remove(self, name):
        return self.texts.pop(name, None)


@given(st.lists(event, max_size=40))
@settings(deadline=None, max_examples=200)
def test_rows_are_those_of_a_naive_twin(events):
    rows, twin = HostRows(), Twin()
    for what, *said in events:
        if what == "begin":
            name, text, prompt, hidden = said
            prompt, hidden = min(prompt, len(text)), min(hidden, prompt, len(text))
            rows.begin(name, ids(text), prompt, hidden=hidden, request=(name, prompt))
            twin.begin(name, text, prompt, hidden)
        elif what == "extend":
            name, new, error = said
            total = len(twin.texts.get(name, ())) + len(new) + error
            row = rows.extend(name, total, ids(new))
            assert (row is not None) == twin.extend(name, new, error)
        elif what == "resync":
            name, text = said
            twin.resync(name, text)
            rows.resync(name, ids(text), 4)
        elif what == "prune":
            rows.prune(*said)
            twin.texts = {n: text for n, text in twin.texts.items() if n in said[0]}
        elif what == "resume":
            (name,) = said
            if name in twin.preempted:
                text, (prompt, hidden) = twin.preempted.pop(name)
                rows.begin(name, ids(text), prompt, hidden=hidden)
                twin.begin(name, text, prompt, hidden)
        else:
            (name,) = said
            facts, text = twin.facts.get(name), twin.remove(name)
            row = rows.pop(name, None)
            assert (row is None) == (text is None)
            if row is not None:
                assert row.tokens.tolist() == text[facts[1] :]
                if what == "preempt":
                    twin.preempted[name] = text, facts
        assert rows.resynced == twin.resynced
        assert len(rows) == len(twin.texts)
        for name in NAMES:
            row, text = rows.get(name), twin.texts.get(name)
            assert (row is None) == (text is None)
            if row is not None:
                prompt, hidden = twin.facts[name]
                assert row.tokens.tolist() == text[hidden:]
                assert row.output.tolist() == text[max(prompt, hidden) :]


def test_a_row_keeps_a_copy_and_what_the_adapter_knows():
    rows, given = HostRows(), ids([1, 2, 3])
    rows.begin("a", given, 2, request="facts")
    given[:] = 0
    row = rows.extend("a", 4, ids([4]))
    assert (row.tokens.tolist(), row.request) == ([1, 2, 3, 4], "facts")
    assert rows.resync("a", ids([5, 6]), 1).request == "facts"


def test_a_view_stays_as_it_was_when_its_row_grows():
    rows = HostRows()
    row = rows.begin("a", ids([1, 2, 3]), 3)
    before = row.tokens
    rows.extend("a", 1003, ids(range(1000)))
    assert before.tolist() == [1, 2, 3]
    assert len(row.tokens.base) < 2000
