import multiprocessing
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import reference_ssd
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramkit.drafters import load_drafter
from ngramkit.drafters.base import Source
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.ssd import Ssd
from ngramkit.drafters.token_ring import TokenRing
from ngramkit.errors import UsageError
from ngramkit.evaluate.records import Turn
from ngramkit.evaluate.replay import replay_turn
from ngramkit.formats.history import INDEX, History
from ngramkit.formats.manifest import TokenizerRecord
from ngramkit.kernels import ssd

VOCABULARY, EOS = 50, 49
RECORD = TokenizerRecord("small", VOCABULARY, "f" * 64, EOS)


def ids(*tokens):
    return np.array(tokens, np.int32)


def remembering(**parameters):
    return PastRequests(tokenizer=RECORD, **{"background": False, **parameters})


def serve(drafter, prompt, output):
    drafter.start(ids(*prompt))
    drafter.accept(ids(*output))
    drafter.finish()


def contents(past):
    """Every request that is searchable, in any order."""
    stream = [t for part in past.shards for shard in part for t in shard.tokens.tolist()]
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
    drafter = Ssd(remembering())
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
    drafter = Ssd(remembering())
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
    drafter = Ssd(remembering(), least_score=0.02)
    for _ in range(40):
        serve(drafter, rng.integers(0, EOS, 20), rng.integers(0, EOS, 80))
    drafter.start(ids(0))
    sizes = []
    for token in rng.integers(0, EOS, 600):
        sizes.append(len(drafter.draft(64)))
        drafter.accept(ids(token))
    assert max(sizes[:3]) > 8
    assert np.mean(sizes[300:]) < 2


@pytest.mark.parametrize("least", [0.0, 0.02])
def test_a_history_of_shuffled_words_costs_less_than_two_percent(tmp_path, least):
    """Requests that repeat each other's phrases, after a history of their words in any order."""
    rng = np.random.default_rng(5)
    phrases = [rng.zipf(1.3, 5) % EOS for _ in range(60)]
    requests = [
        np.concatenate([phrases[i] for i in rng.zipf(1.2, 20) % 60]).astype(np.int32)
        for _ in range(40)
    ]
    words = rng.permutation(np.tile(np.concatenate(requests), 25))
    history = History.at(tmp_path / "h", RECORD)
    for begin in range(0, len(words), 500):
        history.append(words[begin : begin + 500], 1)
    for budget in (8, 64):
        stale = PastRequests(history, read_only=True, background=False)
        with_none = passes(Ssd(remembering(), least_score=least), requests, budget)
        with_stale = passes(Ssd(stale, least_score=least), requests, budget)
        assert with_stale <= 1.02 * with_none


def test_what_a_session_was_asked_long_ago_is_a_stale_history_too():
    rng = np.random.default_rng(6)
    phrases = [rng.zipf(1.3, 5) % EOS for _ in range(60)]
    requests = [
        np.concatenate([phrases[i] for i in rng.zipf(1.2, 20) % 60]).astype(np.int32)
        for _ in range(40)
    ]
    words = rng.permutation(np.tile(np.concatenate(requests), 25)).astype(np.int32)
    taken = {}
    for newest, stale in ((1000, False), (1000, True), (10**6, True)):
        drafter = Ssd(remembering(rebuild_tokens=500, newest_tokens=newest))
        for begin in range(0, len(words) if stale else 0, 500):
            serve(drafter, words[begin : begin + 1], words[begin + 1 : begin + 500])
        taken[newest, stale] = passes(drafter, requests, 64)
    assert taken[1000, True] <= 1.05 * taken[1000, False]
    assert taken[10**6, True] > 1.2 * taken[1000, False]  # where all are newest


def passes(drafter, requests, budget):
    turns = [Turn(request[:10], request[10:]) for request in requests]
    return sum(replay_turn(drafter, turn, budget).passes for turn in turns)


def test_what_must_not_be_remembered_is_not(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    serve(Ssd(PastRequests(history)), [1], [2, 3])
    for parameters in ({"forgetful": True}, {"read_only": True}):
        drafter = Ssd(PastRequests(history, **parameters))
        serve(drafter, [4], [5, 6])
        assert [r.tokens.tolist() for r in history.log.read().requests] == [[1, 2, 3]]
        drafter.start(ids(4))
        assert len(drafter.draft(4)) == (2 if "read_only" in parameters else 0)


def test_a_history_outlives_its_drafter_and_is_shared(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    first, second = (load_drafter("ssd", past=PastRequests(history)) for _ in range(2))
    serve(first, [1, 2], [3, 4])
    second.start(ids(1, 2))
    assert second.draft(8).token_ids.tolist() == [3, 4]
    third = Ssd(PastRequests(History.open(history.path)))
    third.start(ids(2))
    assert third.draft(8).token_ids.tolist() == [3, 4]
    history.trim(0)
    second.start(ids(1, 2))
    assert len(second.draft(8)) == 0


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError, match="needs past requests"):
        load_drafter("ssd")
    with pytest.raises(UsageError, match="history or a tokenizer"):
        PastRequests()
    with pytest.raises(UsageError, match="history_tokens must be 1 to 2147483647, is 0"):
        remembering(capacity=0)
    for bad in ({"query": 0}, {"continuation": 0}, {"continuation": 32}, {"least_score": 1.5}):
        with pytest.raises(UsageError):
            Ssd(remembering(), **bad)


def test_a_hundred_rebuilds_lose_nothing_while_another_thread_drafts(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    past = PastRequests(history, rebuild_tokens=64, newest_tokens=200)
    seen = PastRequests(history, rebuild_tokens=64, newest_tokens=200)
    drafter = Ssd(seen)
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
        if past.sorted_end:
            rebuilds.add(past.sorted_end)
        if len(added) % 10 == 0:
            past.wait()
            assert contents(past) == sorted(added)
    ended.set()
    other.join()
    past.wait()
    seen.wait()
    assert not broken
    again = PastRequests(history)
    assert contents(again) == sorted(added)
    assert (history.path / INDEX).exists()


def test_a_full_buffer_forgets_the_oldest():
    past = remembering(capacity=40, rebuild_tokens=10)
    for i in range(30):
        past.remember(ids(*[i] * 4), 1)
    assert past.tokens < 40 + 10
    assert contents(past)[-8:] == [(i,) * 4 for i in range(22, 30)]


def test_rebuilding_changes_no_draft():
    rng = np.random.default_rng(0)
    requests = [rng.integers(0, 4, 12).tolist() for _ in range(30)]
    rebuilt, whole = remembering(rebuild_tokens=10), remembering(rebuild_tokens=10**6)
    at_once, never = Ssd(rebuilt), Ssd(whole)
    for request in requests:
        trees = []
        for drafter in (at_once, never):
            drafter.start(ids(*request[:4]))
            tree = drafter.draft(20)
            trees.append((tree.token_ids.tolist(), tree.parents.tolist(), tree.scores.tolist()))
            drafter.accept(ids(*request[4:]))
            drafter.finish()
        assert trees[0] == trees[1]
    assert rebuilt.sorted_end
    assert not whole.sorted_end


def test_a_rebuild_by_the_clock():
    now = [0.0]
    past = remembering(rebuild_seconds=10, clock=lambda: now[0])
    past.remember(ids(1, 2, 3), 1)
    assert past.sorted_end == 0
    now[0] = 9.9
    past.refresh()
    assert past.sorted_end == 0
    now[0] = 10.0
    past.refresh()  # at the next request, whether or not it adds anything
    assert past.sorted_end == 4
    shards = past.shards
    now[0] = 30.0
    past.refresh()
    assert past.shards is shards  # nothing was added
    past.remember(ids(4), 1)
    assert past.sorted_end == 6
    past.remember(ids(5), 1)
    assert past.sorted_end == 6
    assert contents(past) == [(1, 2, 3), (4,), (5,)]


def test_the_older_half_of_many_new_requests_is_no_longer_the_newest(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    past = PastRequests(history, rebuild_tokens=10, newest_tokens=40, background=False)
    for i in range(8):
        past.remember(ids(*[i] * 4), 1)
    assert past.shards.session == ()
    past.remember(ids(*[8] * 4), 1)
    past.remember(ids(*[9] * 4), 1)  # 50 tokens, more than 40: the newest 20 stay
    assert past.shards.earlier == ()
    (session,), (newest,) = past.shards.session, past.shards.newest
    assert set(session.tokens.tolist()) == {0, 1, 2, 3, 4, 5, VOCABULARY}
    assert set(newest.tokens.tolist()) == {6, 7, 8, 9, VOCABULARY}
    assert contents(past) == [(i,) * 4 for i in range(10)]
    again = PastRequests(history, rebuild_tokens=10, background=False)
    assert [len(part) for part in again.shards] == [1, 0, 0]
    assert contents(again) == contents(past)


def test_a_long_request_stays_the_newest_until_another_comes():
    past = remembering(rebuild_tokens=10, newest_tokens=40)
    past.remember(ids(*[1] * 99), 1)
    assert [len(part) for part in past.shards] == [0, 0, 1]
    for i in range(2, 7):
        past.remember(ids(*[i] * 4), 1)
    assert [len(shard.tokens) for shard in past.shards.session] == [100]
    assert contents(past) == [(1,) * 99, *((i,) * 4 for i in range(2, 7))]


def test_what_was_there_at_first_is_sorted_once_and_apart(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    first = PastRequests(history, rebuild_tokens=10, background=False)
    for i in range(4):
        first.remember(ids(*[i] * 4), 1)
    second = PastRequests(history, rebuild_tokens=10, background=False)
    (earlier,), *none = second.shards
    assert (len(earlier.tokens), none) == (20, [(), ()])
    for i in range(4, 8):
        first.remember(ids(*[i] * 4), 1)
        second.refresh()
    assert second.shards.earlier == (earlier,)
    assert sum(len(shard.tokens) for shard in second.shards.newest) == 20
    assert contents(second) == contents(first) == [(i,) * 4 for i in range(8)]
    history.trim(8)  # rewritten: nobody knows any more which are whose
    second.refresh()
    assert [len(shard.tokens) for shard in second.shards.earlier] == [10]
    assert second.shards.session == second.shards.newest == ()


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
    assert [len(part) for part in loaded.shards] == [1, 0, 0]
    assert contents(loaded) == contents(past)


def _serve_until_killed(path, started):
    drafter = Ssd(PastRequests(History.open(path), rebuild_tokens=50))
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
        drafter = Ssd(PastRequests(history))
        drafter.start(ids(0))
        assert drafter.draft(8).token_ids.tolist() == [1, 2, 3, 4, 5, 6]


def test_one_repeated_token_is_drafted_in_full():
    past = remembering(capacity=50_000, background=True)
    drafter = Ssd(past)
    for _ in range(3):
        serve(drafter, [7] * 10_000, [7] * 10_000)
    past.wait()
    drafter.start(ids(*[7] * 20))
    assert drafter.draft(64).token_ids.tolist() == [7] * 24


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=15), max_size=6),
    st.lists(st.tuples(st.integers(1, 5), st.lists(st.integers(0, 5), min_size=6, max_size=20))),
    st.sampled_from([0.0, 0.02, 0.1]),
    st.integers(0, 30),
    st.integers(5, 60),
    st.sampled_from([20, 10**6]),
)
def test_the_twin_agrees_through_the_whole_drafter(
    earlier, requests, least, budget, rebuild, newest
):  # fmt: skip
    """Whatever was there at first, and however often the suffix arrays are made anew."""
    with tempfile.TemporaryDirectory() as folder:
        history = History.at(Path(folder) / "h", RECORD)
        for tokens in earlier:
            history.append(ids(*tokens), 1)
        past = PastRequests(history, rebuild_tokens=rebuild, newest_tokens=newest, background=False)
        drafter = Ssd(past, least_score=least)
        rules = (10, 24, VOCABULARY, EOS)
        constants = (ssd.LENGTHS, ssd.PRIOR, ssd.FORGET, ssd.RELENT)
        twins = [reference_ssd.Origin(rules, least, constants) for _ in range(3)]
        stream = [t for tokens in earlier for t in (*tokens, VOCABULARY)]
        opened = len(stream)
        for step, request in requests:
            drafter.start(ids(*request[:4]))
            begin = opened + sum(len(shard.tokens) for shard in past.shards.session)
            streams = stream[:opened], stream[opened:begin], stream[begin:]
            for at in range(4, len(request), step):
                tree = drafter.draft(budget)
                context, written = request[:at], request[at : at + step]
                pairs = zip(twins, streams, strict=True)
                drafts = [twin.draft(stream, context, budget) for twin, stream in pairs]
                found = [c.tolist() for c in (tree.token_ids, tree.parents, tree.scores)]
                drafts = [draft for draft in drafts if draft] or [[]]
                expected = drafts[0]
                for other in drafts[1:]:
                    expected = reference_ssd.merge(expected, other, budget)
                assert list(zip(*found, strict=True)) == expected
                drafter.accept(ids(*written))
                for twin in twins:
                    twin.learn(written)
            drafter.finish()
            stream += [*request, VOCABULARY]
