"""Past requests in a forked child, whatever the parent's thread was doing."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from forked import in_child
from requests_served import EOS, RECORD, contents, ids, serve

from ngramkit.drafters import past_requests
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.ssd import Ssd
from ngramkit.formats import history
from ngramkit.formats.history import History


class Paused:
    """A step that waits in a thread of that name until it is let go; not in children."""

    def __init__(self, step, thread="merging past requests"):
        self.step, self.reached, self.goes_on = step, threading.Event(), threading.Event()
        self.process, self.thread = os.getpid(), thread

    def __call__(self, *arguments, **options):
        if os.getpid() == self.process and threading.current_thread().name == self.thread:
            self.reached.set()
            assert self.goes_on.wait(60)
        return self.step(*arguments, **options)


def fill(past, requests=20):
    """With requests of the lower half of the ids."""
    random = np.random.default_rng(1)
    for _ in range(requests):
        past.remember(random.integers(0, EOS // 2, 30).astype(np.int32), 3)


def use(past, before):
    """What a drafter does: draft, remember, and build for itself."""
    drafter = Ssd(past)
    serve(drafter, [41, 42], [43, 44])
    drafter.start(ids(41, 42))
    past.wait()  # the parent's requests, taken in with it, may be more than a tail holds
    assert drafter.draft(4).token_ids.tolist() == [43, 44]
    fill(past)
    past.wait()
    assert past.sorted_end > before


@pytest.mark.parametrize("where", ["merging", "saving", "adding"])
def test_a_child_is_forked_whatever_the_parent_does(tmp_path, monkeypatch, where):
    """All are let go when the child is done but saving, whose file lock is held: a fork waits for
    nothing."""
    folder = History.at(tmp_path / "h", RECORD)
    past = PastRequests(folder, rebuild_tokens=64, newest_tokens=128)
    fill(past)
    past.wait()
    module, step, *thread = {
        "merging": (past_requests, "merge_shards"),
        "saving": (history, "write_arrays"),
        "adding": (past_requests, "join_requests", "filling"),
    }[where]
    paused = Paused(getattr(module, step), *thread)
    monkeypatch.setattr(module, step, paused)

    def add():
        fill(past)
        while not paused.reached.wait(0.01):
            past.refresh()  # begins what is due next

    filling = threading.Thread(target=add, name="filling")
    filling.start()
    assert paused.reached.wait(60)
    if where == "saving":
        threading.Timer(0.2, paused.goes_on.set).start()
    before = past.sorted_end
    there = len(folder.log.read().requests)

    def child():
        past.refresh()
        assert len(contents(past)) >= there  # the one that was being added, too
        use(past, before)

    result = in_child(child)
    paused.goes_on.set()
    filling.join()
    past.wait()
    assert result == "done"
    use(past, past.sorted_end)  # nor did the parent's stop


@pytest.mark.attack
def test_children_that_are_forked_while_it_is_busy_lose_nothing(tmp_path):
    """Each adds its own; the log has all of them in the end."""
    past = PastRequests(History.at(tmp_path / "h", RECORD), rebuild_tokens=64)
    for child in range(10):
        fill(past, 5)
        assert in_child(lambda child=child: serve(Ssd(past), [30 + child], [30])) == "done"
    past.refresh()
    past.wait()
    assert {(30 + child, 30) for child in range(10)} <= set(contents(past))
