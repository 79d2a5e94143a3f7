"""The log of a history, byte by byte: torn, flipped."""

import struct
import zlib

import numpy as np
import pytest
from histories import held, ids
from hypothesis import given, settings, strategies as st

from ngramkit.basics.errors import ArtifactError
from ngramkit.formats.artifact import token_dtype, verify_checksums_and_values
from ngramkit.formats.eviction import keep_newest_requests
from ngramkit.formats.history import History
from ngramkit.formats.request_log import HEADER, PastRequest, RequestLog
from ngramkit.formats.tokenizer_record import TokenizerRecord


def test_the_log_is_these_bytes(history):
    history.append(ids(1, 2, 3), 1)
    raw = history.log.path.read_bytes()
    head = b"NGKLOG\x02\x00" + (1).to_bytes(4, "little")
    assert raw[:16] == head + zlib.crc32(head).to_bytes(4, "little")
    assert raw[16:28] == b"NGRQ" + struct.pack("<II", 3, 1)
    assert raw[28:32] == bytes.fromhex("cf7f6008")
    assert raw[32:] == b"\x01\x00\x02\x00\x03\x00" + b"\x00\x00"


def test_wide_ids_and_empty_requests(tmp_path):
    wide = History.at(tmp_path / "wide", TokenizerRecord("wide", 200_000, "a" * 64))
    wide.append(ids(199_999, 70_000), 2)
    wide.append(ids(), 0)
    assert held(wide.path) == [[199_999, 70_000], []]


def test_ids_that_no_tokenizer_has_end_a_request(history):
    history.append(ids(1, 2, 100, 3), 3)
    history.append(ids(1, -1), 2)
    assert held(history.path) == [[1, 2], [1]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=6),
    st.sampled_from([100, 100_000]),
    st.data(),
)
def test_a_log_torn_anywhere_keeps_what_was_whole(tmp_path_factory, requests, vocabulary, data):
    path = tmp_path_factory.mktemp("log") / "requests.log"
    log = RequestLog(path, token_dtype(vocabulary), vocabulary)
    log.create(PastRequest(np.array(r, np.uint16), 0) for r in requests)
    raw = path.read_bytes()
    ends = [HEADER.size]
    for r in requests:
        size = len(r) * log.width.itemsize
        ends.append(ends[-1] + 16 + size + -size % 4)
    assert ends[-1] == len(raw)
    cut = data.draw(st.integers(HEADER.size, len(raw)))
    path.write_bytes(raw[:cut])
    whole = sum(end <= cut for end in ends) - 1
    reading = log.read()
    assert [r.tokens.tolist() for r in reading.requests] == requests[:whole]
    assert reading.torn == cut - ends[whole]
    log.append([PastRequest(np.array([7], np.uint16), 1)], reading.mark)
    assert [r.tokens.tolist() for r in log.read().requests] == [*requests[:whole], [7]]
    assert log.read().torn == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_flipped_bit_costs_one_request(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("log") / "requests.log"
    log = RequestLog(path, token_dtype(100), 100)
    requests = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    log.create(PastRequest(np.array(r, np.uint16), 1) for r in requests)
    raw = bytearray(path.read_bytes())
    padding = {HEADER.size + 22, HEADER.size + 23}  # of the first record
    at = data.draw(st.integers(HEADER.size, len(raw) - 1).filter(lambda i: i not in padding))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    lost = 0 if at < 40 else 1 if at < 60 else 2
    reading = log.read()
    left = requests[:lost] + requests[lost + 1 :]
    assert [r.tokens.tolist() for r in reading.requests] == left
    assert reading.damaged > 0
    assert reading.torn == 0
    damage = b"".join(reading.damage)
    log.append([PastRequest(np.array([7], np.uint16), 1)], reading.mark)
    assert [r.tokens.tolist() for r in log.read().requests] == [*left, [7]]
    assert damage in b"".join(log.read().damage)


def test_every_flipped_bit_of_a_log_is_found(history):
    """The header's and the last record's too; nothing of it is deleted, trim puts it aside."""
    for request in ([1, 2, 3], [4, 5, 6]):
        history.append(ids(*request), 1)
    path = history.log.path
    raw = path.read_bytes()
    for bit in range(len(raw) * 8):
        at = bit // 8
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit % 8]) + raw[at + 1 :])
        with pytest.raises(ArtifactError, match="damaged"):
            list(verify_checksums_and_values(History.open(history.path)))
    History.open(history.path).append(ids(9), 1)
    assert raw[40:-1] in path.read_bytes()
    assert held(history.path) == [[1, 2, 3], [4, 5, 6], [9]]  # the last flip was in the padding
    path.write_bytes(raw[:-4] + b"\x07" + raw[-3:])
    fresh = History.open(history.path)
    fresh.append(ids(9), 1)
    assert held(history.path) == [[1, 2, 3], [9]]
    assert keep_newest_requests(fresh, 100) == (0, 24)
    assert (history.path / "requests.damaged").read_bytes()[:24] == raw[40:-4] + b"\x07" + raw[-3:]
    assert list(verify_checksums_and_values(fresh))
