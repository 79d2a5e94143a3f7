"""Past requests: kept, shared, rebuilt, bounded, and whole after a kill."""

import multiprocessing
import threading
import time
from itertools import cycle, pairwise, repeat

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from requests_served import EOS, RECORD, VOCABULARY, contents, ids, remembering, serve

from ngramkit.drafters import past_requests
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.past_requests import MAX_ARRAYS_AT_REST, PastRequests
from ngramkit.drafters.ssd import Ssd
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.eviction import keep_newest_requests
from ngramkit.formats.history import INDEX, History


def test_what_must_not_be_remembered_is_not(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    serve(Ssd(PastRequests(history)), [1], [2, 3])
    for parameters in ({"forgetful": True}, {"read_only": True}):
        drafter = Ssd(PastRequests(history, **parameters))
        serve(drafter, [4], [5, 6])
        assert [r.tokens.tolist() for r in history.log.read().requests] == [[1, 2, 3]]
        drafter.start(ids(4))
        assert len(drafter.draft(4)) == (2 if "read_only" in parameters else 0)


def test_copies_begin_alike_and_do_not_read_the_history_again(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    history.append(ids(1, 2, 3), 1)
    past = PastRequests(history, background=False)
    copies = [past.copy(forgetful=forgetful) for forgetful in (False, True)]
    history.append(ids(4, 5), 1)
    for each in copies:
        serve(Ssd(each), [6], [7, 8])
    assert [contents(each) for each in (past, *copies)] == [
        [(1, 2, 3)], [(1, 2, 3), (6, 7, 8)], [(1, 2, 3)],
    ]  # fmt: skip
    assert len(history.log.read().requests) == 2


def test_without_prompts_outputs_alone_are_remembered():
    past = remembering(prompts=False)
    serve(Ssd(past), [1, 4], [2, 3])
    assert contents(past) == [(2, 3)]


@pytest.mark.parametrize("prompts", [True, False])
def test_an_answer_is_found_by_its_prompt(prompts):
    past = remembering(prompts=prompts)
    past.remember(ids(1, 4, 2, 3), 2)
    past.remember(ids(4, 5), 1)
    past.remember(ids(1, 4, 3), 2)
    past.remember(ids(5, 6), 0)  # of no prompt
    assert past.answer_to(ids(1, 4)).tolist() == [3]  # the last one
    assert past.answer_to(ids(4)).tolist() == [5]
    assert past.answer_to(ids()) is past.answer_to(ids(1)) is past.answer_to(ids(1, 4, 2)) is None


def test_the_last_answers_are_found_and_none_that_was_forgotten(tmp_path):
    past = PastRequests(History.at(tmp_path / "h", RECORD), capacity=1000, background=False)
    for prompt in (1, 2, 3):
        past.remember(ids(prompt, *[4] * 50), 1)
    assert [past.answer_to(ids(prompt)) is None for prompt in (1, 2, 3)] == [True, False, False]
    past.remember(ids(1, *[4] * 300), 1)  # more than are kept: alone
    assert [past.answer_to(ids(prompt)) is None for prompt in (1, 2, 3)] == [False, True, True]
    keep_newest_requests(History.open(tmp_path / "h"), 0)
    past.refresh()
    assert past.answer_to(ids(1)) is None


def test_a_history_outlives_its_drafter_and_is_shared(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    first, second = (load_drafter("ssd", past=PastRequests(history)) for _ in range(2))
    serve(first, [1, 2], [3, 4])
    second.start(ids(1, 2))
    assert second.draft(8).token_ids.tolist() == [3, 4]
    third = Ssd(PastRequests(History.open(history.path)))
    third.start(ids(2))
    assert third.draft(8).token_ids.tolist() == [3, 4]
    keep_newest_requests(history, 0)
    second.start(ids(1, 2))
    assert len(second.draft(8)) == 0


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=25), max_size=60),
    st.sampled_from([20, 200, 10**6]),
    st.sampled_from([1, 10, 10**6]),
    st.sampled_from([30, 10**6]),
)
def test_the_shards_are_the_end_of_the_stream(requests, capacity, rebuild, newest):
    """In its order, each of them searchable; few of them."""
    past = remembering(capacity=capacity, rebuild_tokens=rebuild, newest_tokens=newest)
    stream = []
    for request in requests:
        past.remember(ids(*request), 1)
        stream += [*request, VOCABULARY]
        shards = [shard for part in past.shards for shard in part]
        there = [token for shard in shards for token in shard.tokens.tolist()]
        assert there == stream[-len(there) :]
        assert len(there) >= min(capacity, len(stream))
        for shard in shards:
            text = shard.tokens.tolist()
            found = [text[i : text.index(VOCABULARY, i) + 1] for i in shard.suffix_array.tolist()]
            assert sorted(shard.suffix_array.tolist()) == list(range(len(text)))
            assert all(one <= other for one, other in pairwise(found))
        at_start, since, newer = (len(part) for part in past.shards)
        assert (at_start, since <= MAX_ARRAYS_AT_REST + 1, newer <= 2) == (0, True, True)


@pytest.mark.parametrize("background", [False, True])
def test_of_many_requests_there_are_few_shards(background):
    past = remembering(rebuild_tokens=16, newest_tokens=64, background=background)
    random = np.random.default_rng(2)
    for _ in range(1500):
        past.remember(random.integers(0, EOS, 12).astype(np.int32), 1)
    past.wait()
    sizes = [len(shard.tokens) for shard in past.shards.since]
    assert len(sizes) <= MAX_ARRAYS_AT_REST
    assert sum(sizes) > 13 * 1000
    assert len(contents(past)) == 1500


def test_what_is_searched_does_not_depend_on_how_long_merging_takes(monkeypatch):
    """Ranks of one engine, which must draft alike."""
    merge, random = past_requests.merge_shards, np.random.default_rng(3)
    requests = [random.integers(0, EOS, n).astype(np.int32) for n in random.integers(1, 40, 300)]

    def shards_after_each(slow):
        def merged(*shards):
            if threading.current_thread().name == "merging past requests":
                time.sleep(next(slow))
            return merge(*shards)

        monkeypatch.setattr(past_requests, "merge_shards", merged)
        past = remembering(
            capacity=3000, rebuild_tokens=16, newest_tokens=64, background=True
        )  # fmt: skip
        for request in requests:
            past.remember(request, 1)
            past.refresh()
            yield [[len(shard.tokens) for shard in part] for part in past.shards]
        past.wait()

    some = list(shards_after_each(repeat(0.0)))
    assert some == list(shards_after_each(cycle([0.0, 0.02, 0.0, 0.0, 0.005])))
    assert max(len(part) for _, part, _ in some) > 1


def test_more_than_it_holds_is_dropped_a_part_at_a_time():
    past = remembering(capacity=1600, rebuild_tokens=10, newest_tokens=40)
    sizes = []
    for i in range(1000):
        past.remember(ids(*[i % EOS] * 4), 1)
        sizes.append(past.tokens)
    assert 1600 < max(sizes) < 1600 + 100 + 10
    assert min(sizes[400:]) >= 1600


def test_what_came_after_the_index_is_apart_until_it_is_much(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    for i in range(200):
        history.append(ids(*[i % EOS] * 4), 1)
    history.extend_index(10**6)
    history.append(ids(1, 2, 3), 1)
    past = PastRequests(history, background=False, read_only=True)
    assert [len(shard.tokens) for shard in past.shards.at_start] == [1000, 4]
    history.extend_index(10**6)
    past = PastRequests(history, background=False, read_only=True)
    assert [len(shard.tokens) for shard in past.shards.at_start] == [1004]
    for i in range(5):
        history.append(ids(*[i] * 9), 1)
    past = PastRequests(history, background=False, read_only=True)
    assert [len(shard.tokens) for shard in past.shards.at_start] == [1054]


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


def test_the_older_half_of_many_new_requests_is_no_longer_the_newest(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    past = PastRequests(history, rebuild_tokens=10, newest_tokens=40, background=False)
    for i in range(8):
        past.remember(ids(*[i] * 4), 1)
    assert past.shards.since == ()
    past.remember(ids(*[8] * 4), 1)
    past.remember(ids(*[9] * 4), 1)  # 50 tokens, more than 40: the newest 20 stay
    assert past.shards.at_start == ()
    (since,), (newest,) = past.shards.since, past.shards.newest
    assert set(since.tokens.tolist()) == {0, 1, 2, 3, 4, 5, VOCABULARY}
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
    assert [len(shard.tokens) for shard in past.shards.since] == [100]
    assert contents(past) == [(1,) * 99, *((i,) * 4 for i in range(2, 7))]


def test_requests_at_start_are_sorted_once_and_apart(tmp_path):
    history = History.at(tmp_path / "h", RECORD)
    first = PastRequests(history, rebuild_tokens=10, background=False)
    for i in range(4):
        first.remember(ids(*[i] * 4), 1)
    second = PastRequests(history, rebuild_tokens=10, background=False)
    (at_start,), *none = second.shards
    assert (len(at_start.tokens), none) == (20, [(), ()])
    for i in range(4, 8):
        first.remember(ids(*[i] * 4), 1)
        second.refresh()
    assert second.shards.at_start == (at_start,)
    assert sum(len(shard.tokens) for shard in second.shards.newest) == 20
    assert contents(second) == contents(first) == [(i,) * 4 for i in range(8)]
    keep_newest_requests(history, 8)  # rewritten: nobody knows any more which are whose
    second.refresh()
    assert [len(shard.tokens) for shard in second.shards.at_start] == [10]
    assert second.shards.since == second.shards.newest == ()


def test_a_buffer_of_one_token_holds_a_part_of_the_newest():
    past = PastRequests(tokenizer=RECORD, capacity=1, rebuild_tokens=10, background=False)
    for i in range(9):
        past.remember(ids(*[i] * (1 + 4 * i)), 0)
    assert contents(past)[-1][-1] == 8


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
        list(verify_checksums_and_values(history))
        drafter = Ssd(PastRequests(history))
        drafter.start(ids(0))
        assert drafter.draft(8).token_ids.tolist() == [1, 2, 3, 4, 5, 6]
