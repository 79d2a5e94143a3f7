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
    """A step of the background's, which waits there until it is let go; not in children."""

    def __init__(self, step, nth=1):
        self.step, self.reached, self.goes_on = step, threading.Event(), threading.Event()
        self.process, self.left = os.getpid(), nth

    def __call__(self, *arguments, **options):
        if os.getpid() == self.process and threading.current_thread().name != "filling":
            self.left -= 1
            if self.left == 0:
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


@pytest.mark.parametrize("where", ["sorting", "publishing", "saving"])
def test_a_child_is_forked_while_the_index_is_built(tmp_path, monkeypatch, where):
    """Sorting is let go when the child is done: a fork does not wait for it. While the index is
    saved, its file lock is held."""
    past = PastRequests(History.at(tmp_path / "h", RECORD), rebuild_tokens=64)
    fill(past)
    past.wait()
    paused = {
        "sorting": Paused(past_requests.sort_requests),
        "publishing": Paused(past_requests.Shards, nth=2),  # the first is what was sorted
        "saving": Paused(history.write_arrays),
    }[where]
    if where == "sorting":
        monkeypatch.setattr(past_requests, "sort_requests", paused)
    elif where == "publishing":
        monkeypatch.setattr(past_requests, "Shards", paused)
    else:
        monkeypatch.setattr(history, "write_arrays", paused)
    filling = threading.Thread(target=fill, args=(past,), name="filling")
    filling.start()
    assert paused.reached.wait(60)
    if where != "sorting":
        threading.Timer(0.2, paused.goes_on.set).start()
    before = past.sorted_end
    result = in_child(lambda: use(past, before))
    paused.goes_on.set()
    filling.join()
    past.wait()
    assert result == "done"
    use(past, past.sorted_end)  # nor did the parent's stop


def test_children_that_are_forked_while_it_is_busy_lose_nothing(tmp_path):
    """Each adds its own; the log has all of them in the end."""
    past = PastRequests(History.at(tmp_path / "h", RECORD), rebuild_tokens=64)
    for child in range(10):
        fill(past, 5)
        assert in_child(lambda child=child: serve(Ssd(past), [30 + child], [30])) == "done"
    past.refresh()
    past.wait()
    assert {(30 + child, 30) for child in range(10)} <= set(contents(past))
