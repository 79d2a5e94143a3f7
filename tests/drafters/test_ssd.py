import multiprocessing
import threading

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import Source
from ngramkit.drafters.past_requests import PastRequests, TokenRing
from ngramkit.drafters.ssd import Ssd
from ngramkit.errors import UsageError
from ngramkit.formats.history import INDEX, History
from ngramkit.formats.manifest import TokenizerRecord

VOCABULARY, EOS = 50, 49
RECORD = TokenizerRecord("small", VOCABULARY, "f" * 64, EOS)


def ids(*tokens):
    return np.array(tokens, np.int32)


def serve(drafter, prompt, output):
    drafter.start(ids(*prompt))
    drafter.accept(ids(*output))
    drafter.finish()


def contents(past):
    """Every request that is searchable, in any order."""
    stream = [t for shard in past.shards for t in shard.tokens.tolist()]
    found, request = [], []
    for token in stream:
        if token == past.separator:
            found.append(tuple(request))
            request = []
        else:
            request.append(token)
    assert not request
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.lists(st.lists(st.integers(0, 60_000), max_size=20), max_size=8),
    st.integers(0, 60),
)
def test_the_ring_is_the_end_of_the_stream(capacity, pieces, begin):
    ring, stream = TokenRing(capacity, np.dtype(np.uint16)), []
    for piece in pieces:
        ring.add(np.array(piece, np.uint16))
        stream += piece
    assert ring.end == len(stream)
    oldest = max(len(stream) - capacity, 0)
    expected = stream[max(min(begin, len(stream)), oldest) :]
    assert ring.since(min(begin, len(stream))).tolist() == expected


def test_drafts_what_followed_in_past_requests_and_says_so():
    drafter = Ssd(tokenizer=RECORD)
    serve(drafter, [1, 2, 3], [4, 5, EOS])
    serve(drafter, [9, 2, 3], [4, 6, EOS])
    drafter.start(ids(8, 2, 3))
    tree = drafter.draft(8)
    tree.check()
    paths = list(zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True))
    assert paths == [(4, -1), (5, 0), (6, 0), (EOS, 1), (EOS, 2)]
    assert set(tree.source.tolist()) == {Source.HISTORY}
    assert np.all(np.diff(tree.scores) <= 0)
    assert len(drafter.draft(2)) == 2


def test_the_request_in_flight_is_not_history_and_requests_are_kept_apart():
    drafter = Ssd(tokenizer=RECORD)
    drafter.start(ids(1, 2, 1))
    assert len(drafter.draft(8)) == 0
    drafter.finish()
    serve(drafter, [7], [8])
    drafter.start(ids(2, 1))  # what followed the request that ended so is another request
    assert drafter.draft(8).token_ids.tolist()[0] == 2
    drafter.start(ids(8))
    assert len(drafter.draft(8)) == 0


def test_a_stale_history_is_soon_drafted_from_no_more():
    rng = np.random.default_rng(0)
    drafter = Ssd(tokenizer=RECORD, least_score=0.02)
    for _ in range(40):
        serve(drafter, rng.integers(0, EOS, 20), rng.integers(0, EOS, 80))
    drafter.start(ids(0))
    sizes = []
    for token in rng.integers(0, EOS, 600):
        sizes.append(len(drafter.draft(64)))
        drafter.accept(ids(token))
    assert max(sizes[:3]) > 8
    assert np.mean(sizes[300:]) < 2


def test_what_must_not_be_remembered_is_not(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    serve(Ssd(history), [1], [2, 3])
    for parameters in ({"remember": False}, {"read_only": True}):
        drafter = Ssd(history, **parameters)
        serve(drafter, [4], [5, 6])
        assert [r.tokens.tolist() for r in history.log.read().requests] == [[1, 2, 3]]
        drafter.start(ids(4))
        assert len(drafter.draft(4)) == (2 if "read_only" in parameters else 0)


def test_a_history_outlives_its_drafter_and_is_shared(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    first, second = Ssd(history), load_drafter("ssd", history=tmp_path / "h")
    serve(first, [1, 2], [3, 4])
    second.start(ids(1, 2))
    assert second.draft(8).token_ids.tolist() == [3, 4]
    third = Ssd(History.open(history.path))
    third.start(ids(2))
    assert third.draft(8).token_ids.tolist() == [3, 4]
    history.trim(0)
    second.start(ids(1, 2))
    assert len(second.draft(8)) == 0


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError, match="history or a tokenizer"):
        load_drafter("ssd")
    for bad in ({"query": 0}, {"continuation": 0}, {"continuation": 32}, {"history_tokens": 0}):
        with pytest.raises(UsageError):
            Ssd(tokenizer=RECORD, **bad)


def test_a_hundred_rebuilds_lose_nothing_while_another_thread_drafts(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    past = PastRequests(history, rebuild_tokens=64)
    drafter = Ssd(history, rebuild_tokens=64)
    ended, broken, rebuilds = threading.Event(), [], set()

    def draft_on():
        rng = np.random.default_rng(1)
        while not ended.is_set():
            drafter.start(rng.integers(0, EOS, 5).astype(np.int32))
            for _ in range(5):
                tree = drafter.draft(16)
                tree.check()
                if np.any(tree.token_ids >= VOCABULARY):
                    broken.append(tree)
                drafter.accept(tree.token_ids[:1] if len(tree) else ids(3))

    other = threading.Thread(target=draft_on)
    other.start()
    rng, added = np.random.default_rng(0), []
    while len(rebuilds) < 100:
        request = rng.integers(0, EOS, rng.integers(1, 60)).astype(np.int32)
        past.remember(request, 1)
        added.append(tuple(request.tolist()))
        if past._whole is not None:
            rebuilds.add(past._whole_end)
        if len(added) % 10 == 0:
            past.wait()
            assert contents(past) == sorted(added)
    ended.set()
    other.join()
    past.wait()
    drafter._past.wait()
    assert not broken
    again = PastRequests(history)
    assert contents(again) == sorted(added)
    assert (history.path / INDEX).exists()


def test_a_full_buffer_forgets_the_oldest():
    past = PastRequests(separator=VOCABULARY, capacity=40, rebuild_tokens=10, background=False)
    for i in range(30):
        past.remember(ids(*[i] * 4), 1)
    assert past.tokens < 40 + 10
    assert contents(past)[-8:] == [(i,) * 4 for i in range(22, 30)]


def test_rebuilding_changes_no_draft():
    rng = np.random.default_rng(0)
    requests = [rng.integers(0, 4, 12).tolist() for _ in range(30)]
    at_once = Ssd(tokenizer=RECORD, rebuild_tokens=10, background=False)
    never = Ssd(tokenizer=RECORD, rebuild_tokens=10**6)
    for request in requests:
        trees = []
        for drafter in (at_once, never):
            drafter.start(ids(*request[:4]))
            tree = drafter.draft(20)
            trees.append((tree.token_ids.tolist(), tree.parents.tolist(), tree.scores.tolist()))
            drafter.accept(ids(*request[4:]))
            drafter.finish()
        assert trees[0] == trees[1]
    assert len(at_once._past.shards) == 2 or at_once._past._whole is not None


def test_a_smaller_buffers_index_hides_nothing_from_a_larger_one(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    small = PastRequests(history, capacity=20, rebuild_tokens=10, background=False)
    for i in range(10):
        small.remember(ids(*[i] * 4), 1)
    assert contents(PastRequests(history)) == [(i,) * 4 for i in range(10)]
    assert small.tokens < 30


def test_a_long_log_without_index_is_indexed_in_the_background(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    for i in range(40):
        history.append(ids(*[i] * 9), 1)
    past = PastRequests(history, rebuild_tokens=50)
    past.wait()
    assert contents(past) == [(i,) * 9 for i in range(40)]
    loaded = PastRequests(history, rebuild_tokens=50)
    assert len(loaded.shards) == 1
    assert contents(loaded) == contents(past)


def _serve_until_killed(path, started):
    drafter = Ssd(History.open(path), rebuild_tokens=50)
    for i in range(100_000):
        serve(drafter, [i % 40], [1, 2, 3, 4, 5, 6])
        started.set()


def test_a_killed_server_leaves_a_history_that_drafts(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        started = context.Event()
        server = context.Process(target=_serve_until_killed, args=(history.path, started))
        server.start()
        assert started.wait(30)
        server.kill()
        server.join()
        list(history.check())
        drafter = Ssd(history)
        drafter.start(ids(0))
        assert drafter.draft(8).token_ids.tolist() == [1, 2, 3, 4, 5, 6]


def test_one_repeated_token_is_drafted_in_full():
    drafter = Ssd(tokenizer=RECORD, history_tokens=50_000)
    for _ in range(3):
        serve(drafter, [7] * 10_000, [7] * 10_000)
    drafter._past.wait()
    drafter.start(ids(*[7] * 20))
    assert drafter.draft(64).token_ids.tolist() == [7] * 24


def test_the_twin_agrees_through_the_whole_drafter():
    rng = np.random.default_rng(3)
    drafter, streams = Ssd(tokenizer=RECORD, least_score=0.0), []
    for _ in range(40):
        prompt, output = rng.integers(0, 6, 6).tolist(), rng.integers(0, 6, 10).tolist()
        drafter.start(ids(*prompt))
        tree = drafter.draft(30)
        _, rows = reference.ssd_draft([streams], prompt, 10, 24, VOCABULARY, EOS, 30)
        assert tree.token_ids.tolist() == [row[0] for row in rows]
        assert tree.parents.tolist() == [row[1] for row in rows]
        drafter.accept(ids(*output))
        drafter.finish()
        streams += [*prompt, *output, VOCABULARY]
