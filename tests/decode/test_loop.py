"""The loop's own rules, over a model that is a table: after token t comes table[t]."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scripted import NoisyOracle, tree_of

from ngramkit.decode import result
from ngramkit.decode.loop import decode
from ngramkit.decode.request import Request
from ngramkit.drafters.base import DraftTree
from ngramkit.drafters.registry import NoDraft

COUNTING = {token: token + 1 for token in range(99)}


class TableVerifier:
    def __init__(self, table=COUNTING, interrupt_after=None):
        self.table, self.length, self.passes = table, 0, 0
        self.interrupt_after = interrupt_after

    def prefill(self, prompt):
        self.length = len(prompt)
        return self._logits([prompt[-1]])

    def verify(self, root, tree):
        self.passes += 1
        if self.passes == self.interrupt_after:
            raise KeyboardInterrupt
        return self._logits([root, *tree.token_ids])

    def keep(self, nodes):
        self.length += 1 + len(nodes)

    def _logits(self, tokens):
        logits = torch.zeros(len(tokens), 100)
        for row, token in enumerate(tokens):
            logits[row, self.table.get(int(token), 0)] = 1
        return logits


class Chain:
    """Drafts what comes when one counts, as far as the budget goes."""

    def __init__(self):
        self.budgets, self.heard, self.finished = [], [], 0

    def start(self, prompt):
        self.prompt = prompt.tolist()

    def draft(self, budget):
        self.budgets.append(budget)
        last = self.heard[-1]
        return tree_of([(last + 1 + i, i - 1) for i in range(budget)])

    def accept(self, tokens, evidence=None):
        assert tokens.dtype == np.int32
        assert len(tokens)
        self.heard += tokens.tolist()

    def finish(self):
        self.finished += 1


def run(drafter, *, verifier=None, max_new_tokens=20, budget=4, sink=None, **request):
    prompt = np.array([7, 8, 9], np.int32)
    return decode(
        verifier or TableVerifier(),
        drafter,
        Request(prompt, max_new_tokens, budget, **request),
        sink,
    )


def test_a_pass_writes_its_accepted_tokens_and_one_more():
    drafter = Chain()
    done = run(drafter, max_new_tokens=12)
    assert done.token_ids.tolist() == list(range(10, 22))
    # The prefill writes 10, each pass 4 + 1; the last one has room for one.
    assert done.accepted_per_pass == done.nodes_per_pass == [4, 4, 0]
    assert (done.drafted_passes, done.nodes_per_draft) == (2, 4.0)
    assert done.tokens_per_step == 11 / 3
    assert done.ended_by == "length"
    assert drafter.prompt == [7, 8, 9]
    assert drafter.heard == done.token_ids.tolist()
    assert drafter.finished == 1


def test_without_drafts_every_pass_writes_one_token():
    done = run(NoDraft(), max_new_tokens=5)
    assert done.passes == 4
    assert done.accepted_per_pass == [0] * 4
    assert done.tokens_per_step == 1.0


def test_one_token_needs_no_pass():
    done = run(Chain(), max_new_tokens=1)
    assert (done.token_ids.tolist(), done.passes, done.ended_by) == ([10], 0, "length")


def test_the_budget_shrinks_towards_the_end():
    drafter = Chain()
    run(drafter, max_new_tokens=9, budget=5)
    # 1 written, then 6 more, then room for 2: one draft token and the model's own.
    assert drafter.budgets == [5, 1]


def test_the_context_bounds_prompt_and_output_together():
    verifier = TableVerifier()
    done = run(Chain(), verifier=verifier, max_new_tokens=50, context=10)
    assert done.token_ids.tolist() == list(range(10, 17))
    assert done.ended_by == "context"
    assert verifier.length <= 10


@pytest.mark.parametrize("end", [10, 11, 13, 15])
def test_eos_ends_the_output_wherever_it_falls(end):
    drafter = Chain()
    done = run(drafter, eos=frozenset({end}))
    assert done.token_ids.tolist() == list(range(10, end + 1))
    assert done.ended_by == "eos"
    assert drafter.heard == done.token_ids.tolist()


def test_a_stop_inside_an_accepted_path_ends_the_output_there():
    seen = []

    def stop(token):
        seen.append(token)
        return token == 12

    done = run(Chain(), stop=stop)
    assert done.token_ids.tolist() == [10, 11, 12]
    assert done.accepted_per_pass == [2]
    assert done.ended_by == "stop"
    assert seen == [10, 11, 12]


def test_the_sink_hears_every_token_and_whether_it_was_drafted():
    heard = []
    run(Chain(), max_new_tokens=7, sink=lambda token, drafted: heard.append((token, drafted)))
    drafted = [False, True, True, True, True, False, False]
    assert heard == list(zip(range(10, 17), drafted, strict=True))


def test_ctrl_c_keeps_what_was_written():
    drafter = Chain()
    done = run(drafter, verifier=TableVerifier(interrupt_after=2))
    assert done.token_ids.tolist() == [10, 11, 12, 13, 14, 15]
    assert done.ended_by == "interrupt"
    assert drafter.finished == 1


def test_a_drafter_without_the_prompt_has_no_request_to_finish():
    class Interrupted(TableVerifier):
        def prefill(self, prompt):
            raise KeyboardInterrupt

    drafter = Chain()
    assert run(drafter, verifier=Interrupted()).ended_by == "interrupt"
    assert drafter.finished == 0


def test_an_error_still_finishes_the_drafter():
    class Broken(Chain):
        def draft(self, budget):
            raise RuntimeError("broken")

    drafter = Broken()
    with pytest.raises(RuntimeError):
        run(drafter)
    assert drafter.finished == 1


def test_rejected_drafts_cost_passes_only():
    answer = list(range(10, 40))
    for seed in range(30):
        drafter = NoisyOracle(answer, 100, seed)
        done = run(drafter, max_new_tokens=30, budget=9)
        assert done.token_ids.tolist() == answer
        assert sum(done.accepted_per_pass) + done.passes == 29


def test_empty_trees_are_drafts_too():
    class Silent(Chain):
        def draft(self, budget):
            return DraftTree.empty()

    assert run(Silent(), max_new_tokens=4).token_ids.tolist() == [10, 11, 12, 13]


def test_times_add_up():
    done = run(Chain())
    parts = done.prefill_seconds + done.draft_seconds + done.verify_seconds + done.other_seconds
    assert done.seconds == pytest.approx(parts)
    assert min(done.prefill_seconds, done.draft_seconds, done.verify_seconds) > 0


class Seldom:
    """In place of an auto budget: lets a drafter be asked before every third pass."""

    def __init__(self):
        self.passes, self.declined, self.seconds = 0, False, []

    def opens(self):
        self.passes += 1
        return self.passes % 3 == 0

    def nodes_to_draft(self, budget, length):
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
