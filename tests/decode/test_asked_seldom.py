"""The loop with a drafter that is not asked before every pass."""

from __future__ import annotations

import time

import pytest
from test_loop import Chain, TableVerifier, run

from ngramkit.decode import result


class Seldom:
    """In place of an auto budget: lets a drafter be asked before every third pass."""

    def __init__(self):
        self.passes, self.declined, self.seconds = 0, False, []

    def opens(self):
        self.passes += 1
        return self.passes % 3 == 0

    def ask(self, budget, length):
        return budget

    def cut(self, tree, length, replayed):
        self.declined = len(tree) == 0
        return tree

    def learn(self, written, passing, drafting):
        self.seconds.append((passing, drafting))


def test_a_drafter_that_is_not_asked_hears_of_it_all_at_once():
    class Listening(Chain):
        def accept(self, tokens, evidence=None):
            super().accept(tokens)
            pieces.append(len(tokens))

    pieces, auto, drafter = [], Seldom(), Listening()
    done = run(drafter, max_new_tokens=17, budget=2, auto=auto)
    assert done.token_ids.tolist() == list(range(10, 27)) == drafter.heard
    assert done.nodes_per_pass == [0, 0, 2, 0, 0, 2, 0, 0, 2, 0]
    assert done.declined_passes == 7
    # The first token, then two passes at once before a draft, and what that brought; the end.
    assert pieces == [1, 2, 3, 2, 3, 2, 3, 1]
    assert drafter.finished == 1


def test_evidence_is_read_only_of_passes_that_a_drafter_was_asked_for():
    class Curious(Chain):
        wants_evidence = True

        def accept(self, tokens, evidence=None):
            super().accept(tokens)
            if evidence is not None:
                rows.append((len(tokens), len(evidence.token_ids)))

    rows = []
    run(Curious(), max_new_tokens=17, budget=2, auto=Seldom())
    assert rows == [(1, 1), (3, 3), (3, 3), (3, 3)]


def test_seconds_are_told_by_what_they_were_spent_on(monkeypatch):
    """A made-up clock: what runs is what moves it."""

    class Slow(Chain):
        def draft(self, budget):
            now[0] += 0.25
            return super().draft(budget)

        def accept(self, tokens, evidence=None):
            now[0] += 0.5 * (len(tokens) > 1)
            super().accept(tokens)

    class Machine(TableVerifier):
        def verify(self, root, tree):
            now[0] += 4 + len(tree)
            return super().verify(root, tree)

        def keep(self, nodes):
            now[0] += 1
            super().keep(nodes)

    now, auto = [0.0], Seldom()
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(result.time, clock, lambda: now[0])
    run(Slow(), verifier=Machine(), max_new_tokens=7, budget=2, auto=auto)
    assert auto.seconds == [(5, 0), (5, 0), (7, 0.5 + 0.25 + 0.5), (5, 0)]


@pytest.mark.parametrize(
    ("device", "threads", "clock"),
    [
        ("cpu", 1, time.thread_time),
        ("cpu", 2, time.perf_counter),
        ("cuda", 1, time.perf_counter),
    ],
)
def test_other_programs_do_not_count_where_one_thread_does_all(monkeypatch, device, threads, clock):
    monkeypatch.setattr(result.torch, "get_num_threads", lambda: threads)
    assert result.work_clock(device) is clock
