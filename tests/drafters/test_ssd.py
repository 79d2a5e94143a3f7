"""ssd: drafts from past requests, as its twin has them, fewer where they are not accepted."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from requests_served import EOS, RECORD, VOCABULARY, ids, remembering, serve
from twins import ssd as reference_ssd

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import Source
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.options import SsdOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.ssd import Ssd
from ngramkit.evaluate.records import Turn
from ngramkit.evaluate.replay_loop import replay_turn
from ngramkit.formats.history import History
from ngramkit.kernels import ssd


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
    drafter = Ssd(remembering(), options=SsdOptions(least_score=0.02))
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
        with_none = passes(
            Ssd(remembering(), options=SsdOptions(least_score=least)), requests, budget
        )
        with_stale = passes(Ssd(stale, options=SsdOptions(least_score=least)), requests, budget)
        assert with_stale <= 1.02 * with_none


def test_old_requests_of_a_session_are_a_stale_history_too():
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


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError, match="needs past requests"):
        load_drafter("ssd")
    with pytest.raises(UsageError, match="history or a tokenizer"):
        PastRequests()
    with pytest.raises(UsageError, match="history_tokens must be 1 to 2147483647"):
        remembering(capacity=0)
    for bad in ({"query": 0}, {"continuation": 0}, {"continuation": 32}, {"least_score": 1.5}):
        with pytest.raises(UsageError):
            Ssd(remembering(), options=SsdOptions(**bad))


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
        drafter = Ssd(past, options=SsdOptions(least_score=least))
        rules = (10, 24, VOCABULARY, EOS)
        constants = (
            ssd.RECORDED_LENGTHS,
            ssd.PRIOR_DRAFTS,
            ssd.DECAY_PER_DRAFT,
            ssd.DECAY_WHILE_SILENT,
        )
        twins = [reference_ssd.Origin(rules, least, constants) for _ in range(3)]
        stream = [t for tokens in earlier for t in (*tokens, VOCABULARY)]
        opened = len(stream)
        for step, request in requests:
            drafter.start(ids(*request[:4]))
            begin = opened + sum(len(shard.tokens) for shard in past.shards.since)
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
