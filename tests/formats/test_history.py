import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from histories import RECORD, held, ids

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.untrusted import owner_only
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.formats.eviction import drop_matching, drop_older_than, keep_newest_requests
from ngramkit.formats.history import DAMAGED, INDEX, LOG, History, merge_histories
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.formats.opening import open_artifact_folder
from ngramkit.formats.replacing import replace_text
from ngramkit.formats.request_log import Mark, PastRequest, RequestLog
from ngramkit.formats.safetensors import write_arrays
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.kernels.suffix.sort import sort_shard

FORKED = multiprocessing.get_context("fork")


def test_what_one_adds_all_read_once(history):
    other = open_artifact_folder(history.path)
    history.append(ids(5, 6, 7), 2)
    other.append(ids(8), 1)
    for one in (history, other):
        requests, restarted = one.news()
        assert [(r.tokens.tolist(), r.prompt) for r in requests] == [([5, 6, 7], 2), ([8], 1)]
        assert not restarted
        assert one.news() == ([], False)


def _write_for_ever(path, started):
    history = History.open(path)
    for i in range(1_000_000):
        history.append(np.full(2_000, i % 100, np.int32), 5)
        started.set()


@pytest.mark.attack
def test_killed_writers_lose_at_most_the_request_in_flight(history):
    for _ in range(5):
        started = FORKED.Event()
        writer = FORKED.Process(target=_write_for_ever, args=(history.path, started))
        writer.start()
        assert started.wait(20)
        time.sleep(0.01)
        before = len(held(history.path))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert len(held(history.path)) >= before
        history.append(ids(42), 1)
        assert held(history.path)[-1] == [42]
        for request in held(history.path):
            assert len(request) in (1, 2_000)
            assert len(set(request)) == 1
    assert list(verify_checksums_and_values(history))


def _write(path, writer, count):
    history = History.at(path, RECORD)
    for i in range(count):
        history.append(np.array([writer, i], np.int32), 1)


def test_two_writers_share_a_folder_that_neither_has_made(tmp_path):
    path, count = tmp_path / "new", 60
    writers = [FORKED.Process(target=_write, args=(path, w, count)) for w in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = held(path)
    for w in (1, 2):
        assert [r for r in found if r[0] == w] == [[w, i] for i in range(count)]


def test_trim_keeps_the_newest_and_readers_notice(history):
    reader = History.open(history.path)
    for request in ([1] * 5, [2] * 4, [3] * 3):
        history.append(ids(*request), 1)
    assert len(reader.news()[0]) == 3
    assert keep_newest_requests(history, 8) == (1, 0)
    requests, restarted = reader.news()
    assert restarted
    assert [r.tokens.tolist() for r in requests] == [[2] * 4, [3] * 3]
    history.append(ids(9), 1)
    assert held(history.path) == [[2] * 4, [3] * 3, [9]]
    assert keep_newest_requests(history, 0) == (3, 0)
    with pytest.raises(UsageError):
        keep_newest_requests(history, -1)


def test_requests_expire_by_what_was_noted_of_their_age(history):
    assert drop_older_than(history, 100.0, 50.0) == (0, 0)
    for at, tokens in ((100.0, [1]), (200.0, [2]), (300.0, [3])):
        history.append(ids(*tokens), 1)
        assert drop_older_than(history, 1e6, at) == (0, 0)
    assert drop_older_than(history, 201.0, 300.0) == (0, 0)
    assert drop_older_than(History.open(history.path), 50.0, 300.0) == (2, 0)
    assert held(history.path) == [[3]]
    history.append(ids(4), 1)
    drop_older_than(history, 1e6, 400.0)
    assert drop_matching(history, lambda request: request.tokens[0] == 3) == (1, 0)
    history.append(ids(5), 1)
    assert drop_older_than(history, 51.0, 450.0) == (0, 0)
    assert drop_older_than(history, 50.0, 450.0) == (1, 0)
    assert held(history.path) == [[5]]
    keep_newest_requests(history, 0)
    history.append(ids(6), 1)
    assert drop_older_than(history, 1.0, 1e9) == (0, 0)  # nothing is known of its age


def test_requests_expire_by_ages_of_an_earlier_version(history):
    for token in (1, 2, 3):
        history.append(ids(token), 1)
    body = {"generation": 1, "requests": [[100.0, 2], [200.0, 3]]}
    (history.path / "ages.json").write_text(json.dumps(body))
    assert drop_older_than(history, 100.0, 250.0) == (2, 0)
    assert held(history.path) == [[3]]


def test_no_younger_request_expires_for_one_that_was_damaged_or_trimmed(history):
    for i in range(10):
        history.append(ids(i), 1)
    drop_older_than(history, 1e6, 100.0)
    for i in range(10, 20):
        history.append(ids(i), 1)
    flip(history, 5)
    assert drop_older_than(history, 100.0, 250.0) == (9, 20)
    assert held(history.path) == [[i] for i in range(10, 20)]
    assert (history.path / DAMAGED).stat().st_size == 20
    keep_newest_requests(History.open(history.path), 5)  # by another process
    assert drop_older_than(history, 100.0, 300.0) == (0, 0)
    assert held(history.path) == [[i] for i in range(15, 20)]


def flip(history, number):
    """Damage a request of one token."""
    raw = bytearray(history.log.path.read_bytes())
    raw[16 + 20 * number + 16] ^= 1
    history.log.path.write_bytes(raw)


def test_damage_is_put_aside_or_deleted_and_counted(history, caplog):
    for i in range(4):
        history.append(ids(i), 1)
    assert keep_newest_requests(history, 100) == (0, 0)
    assert not (history.path / DAMAGED).exists()
    flip(history, 1)
    history.append(ids(9), 1)  # it is read, and that is said once
    assert len(history.news()[0]) == 4
    (said,) = [each.getMessage() for each in caplog.records if "is damaged" in each.getMessage()]
    assert "20 bytes" in said
    with pytest.raises(ArtifactError, match="damaged"):
        merge_histories([history], history.path.with_name("merged"))
    assert not list(history.path.parent.glob("merged*"))
    assert keep_newest_requests(history, 100) == (0, 20)
    assert keep_newest_requests(history, 100) == (0, 0)
    flip(history, 2)
    assert drop_matching(history, lambda request: False) == (0, 40)
    assert held(history.path) == [[0], [2], [9]]
    assert not (history.path / DAMAGED).exists()


def test_a_history_that_lost_its_manifest_is_not_begun_again(history):
    history.append(ids(1, 2), 1)
    raw = history.log.path.read_bytes()
    manifest = (history.path / MANIFEST_FILE).read_bytes()
    (history.path / MANIFEST_FILE).unlink()
    with pytest.raises(ArtifactError, match=MANIFEST_FILE):
        History.at(history.path, RECORD)
    assert history.log.path.read_bytes() == raw
    (history.path / MANIFEST_FILE).write_bytes(manifest)
    assert held(History.at(history.path, RECORD).path) == [[1, 2]]
    (history.path / MANIFEST_FILE).unlink()
    history.log.create()  # as a killed process leaves a new one
    assert held(History.at(history.path, RECORD).path) == []


def test_what_is_forgotten_is_in_no_file_that_a_killed_process_left(history):
    history.append(ids(1, 2), 1)
    history.news()
    shard = DatastoreShard(**sort_shard(np.array([1, 2, 100], np.uint16), 100))
    for name in (f"{INDEX}.tmp", f"{LOG}.tmp"):
        (history.path / name).write_text("text")
    drop_matching(history, lambda request: True)
    history.save_index(shard, history.mark, complete=True)  # by who began before
    assert sorted(path.name for path in history.path.iterdir()) == [MANIFEST_FILE, LOG]
    assert list(verify_checksums_and_values(history))


def test_a_file_that_a_killed_process_left_readable_is_closed(tmp_path):
    (tmp_path / f"{MANIFEST_FILE}.tmp").write_text("text")
    (tmp_path / f"{MANIFEST_FILE}.tmp").chmod(0o644)
    replace_text(tmp_path / MANIFEST_FILE, "{}", owner_only)
    assert (tmp_path / MANIFEST_FILE).stat().st_mode & 0o777 == 0o600


def test_a_log_is_not_read_again_for_each_request_that_is_added(history, monkeypatch):
    found, read = [], RequestLog.read

    def counted(log, after=None):
        reading = read(log, after)
        found.extend(reading.requests)
        return reading

    monkeypatch.setattr(RequestLog, "read", counted)
    for i in range(9):
        history.append(ids(i), 1)
    assert found == []


@pytest.mark.parametrize(
    "body",
    ["", "[", "[1]", '{"generation": 1, "requests": [[1, -3], "x"]}',
     '{"generation": 1, "ends": [[NaN, 5]]}', f'{{"generation": 1, "ends": [[1{"0" * 400}, 5]]}}'],
)  # fmt: skip
def test_an_age_that_is_damaged_does_not_count(history, body):
    history.append(ids(1), 1)
    (history.path / "ages.json").write_text(body)
    assert drop_older_than(history, 1.0, 1e9) == (0, 0)
    assert held(history.path) == [[1]]


def test_merge_puts_the_newest_of_each_last(tmp_path):
    sources = [History.at(tmp_path / name, RECORD) for name in "ab"]
    for i in range(3):
        sources[0].append(ids(10 + i), 1)
    sources[1].append(ids(20), 1)
    out, _ = merge_histories(sources, tmp_path / "both")
    assert held(out.path) == [[10], [11], [12], [20]]
    with pytest.raises(UsageError, match="exists"):
        merge_histories(sources, tmp_path / "both")
    foreign = History.at(tmp_path / "c", TokenizerRecord("other", 100, "e" * 64))
    with pytest.raises(ArtifactError, match="other"):
        merge_histories([*sources, foreign], tmp_path / "all")
    assert not list(tmp_path.glob("all*"))


def test_merge_takes_copies_once_and_samples_as_often_as_one_has_them(tmp_path):
    one, two = (History.at(tmp_path / name, RECORD) for name in "ab")
    for token in (10, 11, 10, 12):
        one.append(ids(token), 0)
    for token in (12, 10, 13):  # an overlapping pull
        two.append(ids(token), 0)
    both, dropped = merge_histories([one, two], tmp_path / "both")
    assert held(both.path) == [[10], [11], [10], [12], [13]]
    assert dropped == 2
    assert held(merge_histories([one, one], tmp_path / "same")[0].path) == [[10], [11], [10], [12]]
    two.append(ids(11), 1)  # a prompt alone, no answer
    assert sorted(held(merge_histories([one, two], tmp_path / "all")[0].path)).count([11]) == 2


def test_the_index_ends_where_its_mark_says(history):
    history.append(ids(1, 2), 1)
    history.news()
    arrays = sort_shard(np.array([1, 2, 100], np.uint16), 100)
    history.save_index(DatastoreShard(**arrays), history.mark, complete=True)
    history.append(ids(3), 1)
    fresh = History.open(history.path)
    assert fresh.load_index(1_000).tokens.tolist() == [1, 2, 100]
    assert [r.tokens.tolist() for r in fresh.news()[0]] == [[3]]
    assert len(list(verify_checksums_and_values(fresh))) == 3
    keep_newest_requests(history, 100)
    assert History.open(history.path).load_index(0) is None


def test_an_index_that_is_damaged_old_or_too_short_does_not_count(history):
    history.append(ids(1, 2), 1)
    history.news()
    shard = DatastoreShard(**sort_shard(np.array([1, 2, 100], np.uint16), 100))
    history.save_index(shard, history.mark, complete=False)
    assert History.open(history.path).load_index(3) is not None
    assert History.open(history.path).load_index(4) is None
    path = history.path / INDEX
    raw = bytearray(path.read_bytes())
    for at in (3, len(raw) // 2, len(raw) - 3):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert History.open(history.path).load_index(0) is None
        with pytest.raises(ArtifactError, match="damaged"):
            list(verify_checksums_and_values(history))
    history.save_index(shard, Mark(7), complete=True)
    assert History.open(history.path).load_index(0) is None


def test_an_index_is_extended_by_what_came_since(history):
    for text in ([1, 2], [3], [1, 2, 4]):
        history.append(ids(*text), 1)
        history.extend_index(1_000)
    history.extend_index(1_000)  # nothing is new
    index = History.open(history.path).load_index(10**6)
    assert index.tokens.tolist() == [1, 2, 100, 3, 100, 1, 2, 4, 100]
    firsts = [index.tokens[at:][:2].tolist() for at in index.suffix_array[:6]]
    assert firsts == [[1, 2], [1, 2], [2, 4], [2, 100], [3, 100], [4, 100]]
    assert len(list(verify_checksums_and_values(history))) == 3


def test_an_index_holds_the_newest_that_are_wanted_or_what_it_held(history):
    for i in range(6):
        history.append(ids(i, i), 1)
    history.extend_index(12)
    fresh = History.open(history.path)
    assert fresh.load_index(12).tokens[:2].tolist() == [2, 2]
    assert fresh.load_index(13) is None
    history.append(ids(6, 6), 1)
    history.extend_index(3)
    assert History.open(history.path).load_index(12).tokens[:2].tolist() == [3, 3]
    history.extend_index(100)  # the index is of no use for as many
    assert len(History.open(history.path).load_index(100).tokens) == 21


def test_requests_are_added_while_the_index_is_written(history, monkeypatch):
    def add(path, arrays):
        History.open(history.path).append(ids(7), 1)
        return write_arrays(path, arrays)

    history.append(ids(5, 6), 1)
    monkeypatch.setattr("ngramkit.formats.history.write_arrays", add)
    history.extend_index(1_000)
    index, added, complete = History.open(history.path).newest(1_000)
    assert (index.tokens.tolist(), added.tokens.tolist()) == ([5, 6, 100], [7, 100])
    assert complete


def test_bad_folders_are_refused(tmp_path, history):
    (tmp_path / "file").write_text("no history")
    with pytest.raises(ArtifactError, match="not a history"):
        History.at(tmp_path / "file", RECORD)
    with pytest.raises(ArtifactError, match="not a history"):
        History.at(tmp_path, RECORD)
    with pytest.raises(ArtifactError, match="small"):
        History.at(history.path, TokenizerRecord("other", 100, "e" * 64))
    (history.path / LOG).write_bytes(b"something else altogether")
    with pytest.raises(ArtifactError, match="header"):
        history.news()
    (history.path / LOG).unlink()
    with pytest.raises(ArtifactError, match="missing"):
        history.news()


def test_a_full_disk_leaves_the_log_as_it_was(history, monkeypatch):
    history.append(ids(1), 1)
    before = history.log.path.read_bytes()
    mark = History.open(history.path).log.read().mark

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            return self.file.write(data[:10])

    real = RequestLog.open_file
    monkeypatch.setattr(RequestLog, "open_file", lambda *a, **k: Full(real(*a, **k)))
    with pytest.raises(OSError, match="No space left"):
        history.log.append([PastRequest(np.array([7, 8], np.uint16), 1)], mark)
    assert history.log.path.read_bytes() == before
