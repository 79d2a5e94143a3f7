"""A history that grows while an engine serves: what joins it, when, in which order, and where."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from forked import in_child
from hypothesis import HealthCheck, given, settings, strategies as st

from ngramkit.basics.errors import ArtifactError
from ngramkit.engines import growing_history
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growing_history import (
    Finished,
    Folders,
    GrowingHistory,
    HistoryWriter,
    tenant_folder,
)
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.eviction import keep_newest_requests
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

VOCABULARY = 500
NUMBERS = count()  # of requests
ROOT = Path(__file__).parents[2]


def ids(tokens):
    return np.array(tokens, np.int32)


def opened(history=True, **keys):
    """A drafter whose drafts do not depend on what was accepted, but for the history."""
    given = {"history": history, "min_probability": 0.05, "pause": False, "threads": 1, **keys}
    if isinstance(history, Path):
        given["history"] = str(history)
    return BatchDrafter.open(DraftConfig.parse(given), vocabulary=VOCABULARY)


def text(seed, length=40):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def serve(drafter, *requests, tenant=""):
    """Let the model write each (prompt, answer) at once, a token a step, until they finish.
    Return how many tokens were drafted right."""
    right = 0
    names = [f"{next(NUMBERS):020}" for _ in requests]
    for step in range(1, 1 + max(len(answer) for _, answer in requests)):
        running = [(n, p, a) for n, (p, a) in zip(names, requests, strict=True) if len(a) >= step]
        rows = [ids([*prompt, *answer[:step]]) for _, prompt, answer in running]
        asked = [Asked(len(prompt), tenant, name=name) for name, prompt, _ in running]
        chains = drafter.chain_batch(rows, [4] * len(rows), asked=asked)
        for (name, prompt, answer), row, chain in zip(running, rows, chains, strict=True):
            right += chain.token_ids[:1].tolist() == answer[step : step + 1] != []
            if step == len(answer):
                drafter.sessions.end(name)
                drafter.finish(Finished(row, len(prompt), name, tenant))
    return right


def held(path):
    return [(r.tokens.tolist(), r.prompt) for r in History.open(path).news()[0]]


@pytest.mark.parametrize("drafter", ["blend", "ssd"])
def test_the_next_request_drafts_from_the_last(drafter):
    engine = opened(drafter=drafter)
    prompt, answer = text(1, 10), text(2)
    assert serve(engine, (prompt, answer)) == 0
    assert serve(engine, (text(3, 7), answer)) >= 35


def test_what_is_copied_from_the_past_goes_on_while_the_past_is_replaced():
    """A long match points into tables that are let go as others finish; its tokens are taken back
    and written again, too, to a time when the tables were others."""
    engine = opened(history_tokens=2000)
    answer, prompt = text(1, 300), text(2, 7)
    serve(engine, (text(3, 7), answer))
    drafted = 0
    gc.freeze()  # what is there already is not looked through at each step
    for step in range(1, 300):
        rows = [ids([*prompt, *answer[:step]]), ids([*text(step + 10, 6), step % VOCABULARY, 7])]
        chains = engine.chain_batch(rows, [4, 4], asked=[Asked(7), Asked(6)])
        drafted += chains[0].token_ids[:1].tolist() == answer[step : step + 1]
        if step % 50 == 0:
            engine.chain_batch([rows[0][:-20]], [4], asked=[Asked(7)])
        gc.collect()
    gc.unfreeze()
    assert drafted >= 285


def test_a_request_trusts_the_past_more_where_the_last_ones_found_it_right():
    def first_score(seen):
        """Of a draft from a past request, after others began as one, and went on as `seen` says."""
        engine = opened()
        serve(engine, *((text(9, 5), text(seed)) for seed in range(4)))
        for seed in range(3):
            begun = text(seed)[:20]
            serve(engine, (begun, text(seed)[20:] if seen else text(seed + 50, 20)))
        return engine.chain_batch([ids(text(3)[:20])], [4])[0].scores[0]

    assert first_score(True) > 1.05 * first_score(False)


@pytest.mark.parametrize("length", [10, 200])
def test_the_same_question_again_is_drafted_for_from_its_first_token(length):
    """In a session of its own, or in that of the first time, which takes its tokens back."""
    engine = opened()
    question, answer = text(1, length), [7, *text(2)]
    serve(engine, (question, answer))
    for seed in range(10, 20):  # all begin alike
        serve(engine, (text(seed, 12), [7, *text(seed + 10)]))
    assert serve(engine, (question, answer)) == len(answer) - 1
    (chain,) = engine.chain_batch([ids([*question, 7])], [4], asked=[Asked(length)])
    assert chain.token_ids.tolist() == answer[1:5]
    assert chain.scores[-1] > 0.3


def test_a_conversation_that_was_had_before_is_followed_turn_by_turn():
    engine = opened()
    first, second = (text(1, 10), [7, *text(2)]), [7, *text(3)]
    turn = [*first[0], *first[1], *text(4, 6)]
    for _ in range(2):
        serve(engine, first)
        found = serve(engine, (turn, second))
        serve(engine, *((text(seed, 12), [7, *text(seed + 10)]) for seed in range(10, 14)))
    assert found == len(second) - 1


def test_samples_that_part_from_the_last_one_soon_count_less():
    def first_score(samples):
        engine = opened()
        for sample in samples:
            serve(engine, (text(1, 10), sample))
        return engine.chain_batch([ids([*text(1, 10), 7])], [4], asked=[Asked(10)])[0].scores[0]

    greedy, sampled = [[7, *text(2)]] * 4, [[7, *text(2)[:3], *text(seed)] for seed in range(3, 7)]
    assert first_score(greedy) > first_score(greedy[:1]) > first_score(sampled)


def test_a_question_that_is_asked_again_is_drafted_for_although_drafts_did_not_pay():
    engine = opened(pause=True)
    question, answer = text(1, 80), [7, *text(2)]
    engine.finish(Finished(ids([*question, *answer]), 80))
    engine.chain_batch([ids([*question, 9])], [4], asked=[Asked(80)])
    (session,) = engine.sessions.latest
    session.pause.judge(0, 100)
    (chain,) = engine.chain_batch([ids([*question, 7])], [4], asked=[Asked(80)])
    assert engine.sessions.latest == [session]
    assert chain.token_ids.tolist() == answer[1 : 1 + len(chain)] != []


def test_an_existing_history_needs_no_artifact(tmp_path):
    record = TokenizerRecord("some/model", VOCABULARY - 1, "f" * 64)
    answer = [token % (VOCABULARY - 1) for token in text(5)]
    History.at(tmp_path / "h", record).append(ids(answer), 0)
    assert serve(opened(tmp_path / "h"), (text(6, 7), answer)) >= 35
    with pytest.raises(ArtifactError, match="the engine's model has 498"):
        BatchDrafter.open(DraftConfig(history=str(tmp_path / "h")), vocabulary=498)


def test_what_was_written_is_kept_and_a_restart_drafts_from_it(tmp_path):
    engine = opened(tmp_path / "h")
    answers = [text(seed, 12) for seed in (1, 2)]
    serve(engine, (text(7, 5), answers[0]), (text(8, 9), answers[1]))
    engine.chain_batch([ids(text(9, 4))], [4])
    engine.history.flush()
    assert held(tmp_path / "h") == [(answers[0], 0), (answers[1], 0)]
    assert serve(opened(tmp_path / "h"), (text(3, 5), answers[1])) >= 8


def test_prompts_are_remembered_by_choice(tmp_path):
    engine = opened(tmp_path / "h", history_prompts=True)
    prompt, answer = text(1, 6), text(2, 5)
    serve(engine, (prompt, answer))
    engine.chain_batch([], [])
    engine.history.flush()
    assert held(tmp_path / "h") == [([*prompt, *answer], 6)]


def test_nothing_is_remembered_unless_it_is_asked_for(tmp_path):
    record = TokenizerRecord("some/model", VOCABULARY, "f" * 64)
    History.at(tmp_path / "h", record)
    engine = opened(tmp_path / "h", store=False)
    serve(engine, (text(1, 6), text(2, 5)))
    engine.chain_batch([], [])
    engine.history.flush()
    assert held(tmp_path / "h") == []
    assert opened(False).history is None


def test_the_next_turn_of_a_conversation_is_another_request(tmp_path):
    engine = opened(tmp_path / "h")
    prompt, answer, question = text(1, 6), text(2, 9), text(3, 5)
    serve(engine, (prompt, answer))
    second = [*prompt, *answer, *question]
    serve(engine, (second, text(4, 7)))
    engine.chain_batch([], [])
    engine.history.flush()
    assert held(tmp_path / "h") == [(answer, 0), (text(4, 7), 0)]


def test_samples_of_a_prompt_are_remembered_whole(tmp_path):
    engine = opened(tmp_path / "h")
    prompt = text(1, 80)
    answers = [[7, *text(seed, 9)] for seed in (2, 3, 4)]
    for answer in answers:
        serve(engine, (prompt, answer))
    engine.chain_batch([], [])
    engine.history.flush()
    assert [tokens for tokens, _ in held(tmp_path / "h")] == answers


def test_running_requests_draft_from_those_that_finish_meanwhile():
    engine = opened()
    answer = text(2, 60)
    short, long = (text(3, 5), answer[:40]), (text(4, 5), [*text(5, 41), *answer[5:40]])
    assert serve(engine, short, long) >= 25


def test_a_running_request_finds_its_place_in_what_has_grown():
    """By all its last tokens at once: the last two were mostly followed by another."""
    engine = opened()
    before = [*text(1, 12), *range(301, 307)]
    engine.chain_batch([ids(before)], [4], asked=[Asked(12)])
    others = [token for i in range(90) for token in (i, 306, 307, 309)]
    engine.finish(Finished(ids([*others, *range(301, 309), 310]), 0))
    (chain,) = engine.chain_batch([ids([*before, 307])], [4], asked=[Asked(12)])
    assert chain.token_ids.tolist()[:1] == [308]


step = st.tuples(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=4),  # rows: request, tokens
    st.booleans(),  # rows change places
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(step, max_size=12))
def test_ranks_draft_alike_and_what_was_written_joins_once(tmp_path_factory, steps):
    """Two ranks are fed the same steps, and one of them writes. Names are used again."""
    folder = tmp_path_factory.mktemp("history") / "h"
    config = DraftConfig(history=str(folder), min_probability=0.02, threads=2)
    ranks = [
        BatchDrafter.open(config, vocabulary=VOCABULARY, writes=writes) for writes in (True, False)
    ]
    texts = {name: text(name % 2, 6) for name in range(5)}  # prompts that are alike in part
    size, written = dict.fromkeys(range(5), 0), []

    def finish(row, name):
        written.extend(row[7:].tolist())
        size[name] = 0
        for rank in ranks:
            rank.sessions.end(str(name))
            rank.finish(Finished(row, 7, str(name)))

    for rows, swapped in steps:
        chosen = dict(rows)
        names = sorted(chosen, reverse=swapped)
        for name in names:
            size[name] += chosen[name] + 1
        full = [ids([*texts[n], 400 + n, *text(n + 50, 60)[: size[n]]]) for n in names]
        asked = [Asked(7, name=str(n)) for n in names]
        one, other = (rank.chain_batch(full, [4] * len(full), asked=asked) for rank in ranks)
        for left, right in zip(one, other, strict=True):
            assert left.token_ids.tolist() == right.token_ids.tolist()
            assert left.scores.tolist() == right.scores.tolist()
        for row, name in zip(full, names, strict=True):
            if size[name] > 4:
                finish(row, name)
    for name in texts:
        finish(ids([*texts[name], 400 + name, *text(name + 50, 60)[: size[name]]]), name)
    for rank in ranks:
        rank.chain_batch([], [])
        rank.history.flush()
    kept = held(folder)
    joined = sorted(token for tokens, _ in kept for token in tokens)
    assert joined == sorted(written)
    assert [rank.history.remembered for rank in ranks] == [len(kept)] * 2


def test_the_order_of_what_an_engine_tells_changes_nothing():
    """A set of names has another order in each process."""
    config = DraftConfig(history=True)
    record = TokenizerRecord("some/model", VOCABULARY, "f" * 64)
    finished = [Finished(ids([i, i + 1, i + 2]), 0, f"request-{i}") for i in range(5)]
    shards = []
    for order in (finished, finished[::-1]):
        history = GrowingHistory(config, record, stores=True, writes=False)
        for request in order:
            history.finish(request)
        assert history.take_in() == 5
        found = history.past("").shards
        shards.append([part.tokens.tolist() for parts in found for part in parts])
    assert shards[0] == shards[1]


def test_an_answer_ends_with_eos(tmp_path):
    record = TokenizerRecord("some/model", VOCABULARY, "f" * 64, eos=3)
    config = DraftConfig(history=str(tmp_path / "h"))
    history = GrowingHistory(config, record, stores=True, writes=True)
    history.finish(Finished(ids([3, 8, 9, 3, 5]), 1))
    history.finish(Finished(ids([3, 8]), 2))  # no answer at all
    history.flush()
    assert held(tmp_path / "h") == [([8, 9, 3], 0)]


def test_tenants_have_histories_of_their_own(tmp_path):
    engine = opened(tmp_path / "h", history_by="key")
    prompt, answer = text(1, 6), text(2, 30)
    serve(engine, (prompt, answer), tenant="acme")
    assert serve(engine, (prompt, answer), tenant="other") == 0
    assert serve(engine, (prompt, answer), tenant="acme") >= 25
    engine.chain_batch([], [])
    engine.history.flush()
    names = {tenant_folder(key) for key in ("", "acme", "other")}
    assert {entry.name for entry in (tmp_path / "h").iterdir()} == names
    assert len(held(tmp_path / "h" / tenant_folder("acme"))) == 2
    assert serve(opened(tmp_path / "h", history_by="key"), (prompt, answer), tenant="other") >= 25
    with pytest.raises(ArtifactError, match="cannot use history_by"):
        opened(tmp_path / "h" / tenant_folder("acme"), history_by="key")


def test_rows_of_two_tenants_are_drafted_for_in_one_step(tmp_path):
    engine = opened(history_by="key")
    prompt, answers = text(1, 6), {"a": text(2, 30), "b": text(3, 30)}
    for tenant, answer in answers.items():
        serve(engine, (prompt, answer), tenant=tenant)
    right = 0
    for step in range(1, 30):
        rows = [ids([*prompt, *answer[:step]]) for answer in answers.values()]
        asked = [Asked(len(prompt), tenant) for tenant in answers]
        chains = engine.chain_batch(rows, [4, 4], asked=asked)
        for answer, chain in zip(answers.values(), chains, strict=True):
            right += chain.token_ids[:1].tolist() == answer[step : step + 1]
    assert right >= 50


def test_a_tenant_that_was_let_go_begins_with_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_history, "MAX_TENANTS_IN_MEMORY", 2)
    engine = opened(tmp_path / "h", history_by="key")
    prompt, answer = text(1, 6), text(2, 30)
    serve(engine, (prompt, answer), tenant="acme")
    for other in ("b", "c", "d"):
        serve(engine, (prompt, text(9, 3)), tenant=other)
    engine.history.flush()
    assert serve(engine, (text(8, 6), answer), tenant="acme") == 0


def test_keys_that_anybody_may_choose_do_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_history, "MAX_TENANT_FOLDERS", 3)
    engine = opened(tmp_path / "h", history_by="key")
    for tenant in map(str, range(6)):
        serve(engine, (text(1, 6), text(2, 30)), tenant=tenant)
    assert serve(engine, (text(8, 6), text(2, 30)), tenant="5") >= 25
    engine.history.flush()
    assert len(list((tmp_path / "h").iterdir())) == 3


def modes(folder):
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_only_the_owner_may_read_what_is_remembered(tmp_path):
    before = os.umask(0)
    try:
        for by in (None, "key"):
            folder = tmp_path / str(by)
            engine = opened(folder, **({"history_by": by} if by else {}))
            serve(engine, (text(1, 6), text(2, 30)), tenant="acme" if by else "")
            engine.chain_batch([], [])
            engine.history.flush()
            keep_newest_requests(History.open(next(folder.rglob("manifest.json")).parent), 1000)
            folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
            assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
            assert modes(folder) == {0o600}
    finally:
        os.umask(before)


def test_whoever_runs_the_server_is_told(tmp_path, caplog):
    opened(tmp_path / "h", history_prompts=True)
    opened()
    said = [each.getMessage() for each in caplog.records if "remembered" in each.getMessage()]
    assert said == [
        f"finished requests are remembered: their prompts and answers, in {tmp_path}/h",
        "finished requests are remembered: their answers, in memory",
    ]


def test_a_restart_sorts_only_what_the_index_lacks(tmp_path):
    engine = opened(tmp_path / "h", history_tokens=1 << 16)
    for i in range(30):
        engine.finish(Finished(ids(text(i, 500)), 0, str(i)))
    engine.history.flush()
    assert len(History.open(tmp_path / "h").load_index(0).tokens) > 30 * 500 - 5_000
    assert list(verify_checksums_and_values(History.open(tmp_path / "h")))
    assert serve(opened(tmp_path / "h"), (text(99, 4), text(3, 500)[:40])) >= 35


def test_the_oldest_half_goes_where_the_log_is_too_long(tmp_path):
    engine = opened(tmp_path / "h", history_bytes=1 << 16)
    record = engine.history
    for i in range(120):
        record.finish(Finished(np.full(400, i, np.int32), 0, f"{i:04}"))
    record.take_in()
    record.flush()
    tokens = [tokens[0] for tokens, _ in held(tmp_path / "h")]
    assert tokens == list(range(tokens[0], 120))
    assert 40 <= len(tokens) <= 82
    assert (tmp_path / "h" / "requests.log").stat().st_size <= 1 << 16


def folders(path, *, keyed=False):
    record = TokenizerRecord("some/model", VOCABULARY, "f" * 64)
    return Folders(path, record, keyed=keyed, stores=True)


def test_requests_are_dropped_when_they_are_too_old(tmp_path):
    now = [1000.0]
    writer = HistoryWriter(folders(tmp_path / "h"), 1 << 20, 100, 1, lambda: now[0])
    for i in range(60):  # four hours lie between two requests
        writer.put("", ids([i]), 0)
        writer.flush()
        now[0] += 4 * 3600
    assert [tokens for tokens, _ in held(tmp_path / "h")] == [[i] for i in range(54, 60)]


def test_requests_of_tenants_that_send_nothing_are_dropped_too(tmp_path, monkeypatch):
    """Of those that an earlier run wrote, too, and while nobody sends anything."""
    now = [1000.0]
    earlier = HistoryWriter(folders(tmp_path, keyed=True), 1 << 20, 100, 1, lambda: now[0])
    for tenant in "ab":
        earlier.put(tenant, ids([1, 2]), 0)
    earlier.flush()
    monkeypatch.setattr(growing_history, "LONGEST_PAUSE", 0.05)
    writer = HistoryWriter(folders(tmp_path, keyed=True), 1 << 20, 100, 1, lambda: now[0])
    until = time.monotonic() + 10
    while any(held(tmp_path / tenant_folder(key)) for key in "ab") and time.monotonic() < until:
        now[0] += growing_history.DAY_SECONDS
        time.sleep(0.05)
    writer.flush()
    assert [held(tmp_path / tenant_folder(key)) for key in "ab"] == [[], []]


@pytest.mark.parametrize("wrong", [-1e9, 1e9])
def test_a_clock_that_is_put_right_keeps_no_request_longer(tmp_path, wrong):
    now = [2e9 + wrong]
    writer = HistoryWriter(folders(tmp_path / "h"), 1 << 20, 100, 1, lambda: now[0])
    writer.put("", ids([1, 2]), 0)
    writer.flush()
    for hours in range(0, 50, 2):
        now[0] = 2e9 + 3600 * hours
        writer.put("", ids([3 + hours]), 0)
        writer.flush()
    assert [tokens for tokens, _ in held(tmp_path / "h")] == [[3 + i] for i in range(26, 50, 2)]


def test_the_thread_of_a_drafter_ends_with_it(tmp_path):
    before = threading.active_count()
    for i in range(4):
        engine = opened(tmp_path / f"h{i}", drafter="ssd", history_days=7)
        engine.finish(Finished(ids([1, 2]), 0))
    del engine
    gc.collect()
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert all(held(tmp_path / f"h{i}") for i in range(4))


def test_a_full_disk_is_told_once_and_drafts_go_on(tmp_path, caplog, monkeypatch):
    engine = opened(tmp_path / "h")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(History, "append", full)
    prompt, answer = text(1, 6), text(2, 30)
    for _ in range(3):
        right = serve(engine, (prompt, answer))
    engine.history.flush()
    assert right >= 25
    said = [each.getMessage() for each in caplog.records if "cannot write" in each.getMessage()]
    assert said == ["cannot write the history: No space left on device; drafting continues"]


def test_a_writer_that_cannot_keep_up_stops_no_step(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(growing_history, "MAX_WAITING_REQUESTS", 2)
    engine = opened(tmp_path / "h")
    append = History.append
    monkeypatch.setattr(History, "append", lambda *each: (time.sleep(0.3), append(*each)))
    started = time.perf_counter()
    for i in range(20):
        engine.finish(Finished(ids([i, 1, 2]), 0, str(i)))
    assert time.perf_counter() - started < 0.25
    engine.history.flush()
    assert 1 <= len(held(tmp_path / "h")) < 20
    assert sum("faster than they are written" in each.getMessage() for each in caplog.records) == 1


def test_a_forked_child_writes_on_a_thread_of_its_own(tmp_path):
    engine = opened(tmp_path / "h")
    engine.finish(Finished(ids([1, 2]), 0))
    engine.history.flush()

    def child():
        engine.finish(Finished(ids([3, 4]), 0))
        engine.history.flush()

    assert in_child(child) == "done"
    assert held(tmp_path / "h") == [([1, 2], 0), ([3, 4], 0)]


SERVER = """
import sys, numpy as np
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.growing_history import Finished
folder, ends = sys.argv[1:]
engine = BatchDrafter.open(
    DraftConfig(drafter="ssd", history=folder, threads=1), vocabulary=500
)
for request in range(5 if ends == "ends" else 100_000):
    rows = [np.array([9, request % 500, 7, i % 500], np.int32) for i in range(3)]
    engine.chain_batch(rows, [4] * 3, asked=[Asked(1)] * 3)
    for row in rows:
        engine.finish(Finished(row, 1))
    print(engine.statistics.remembered, flush=True)
"""


def server(folder, ends):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SERVER, str(folder), ends]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.attack
def test_a_kill_loses_no_request_that_was_counted(tmp_path):
    for round_ in range(3):
        running = server(tmp_path / "h", "runs")
        before = len(held(tmp_path / "h")) if round_ else 0
        counted = 0
        while counted < 40 * (round_ + 1):
            counted = int(running.stdout.readline())
        os.kill(running.pid, signal.SIGKILL)
        counted = max([counted, *map(int, running.stdout.read().split())])
        running.wait()
        kept = held(tmp_path / "h")
        assert len(kept) >= before + counted
        assert all(len(tokens) == 3 and prompt == 0 for tokens, prompt in kept)


def test_a_process_that_ends_writes_what_is_left(tmp_path):
    running = server(tmp_path / "h", "ends")
    running.communicate(timeout=100)
    assert running.returncode == 0
    assert len(held(tmp_path / "h")) == 15  # those of the last step too
