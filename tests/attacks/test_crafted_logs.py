"""A history's log that is made to look like records: reading it takes no longer than its size."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from ngramkit.formats import request_log
from ngramkit.formats.request_log import PastRequest, RequestLog

from . import tally

SIZE = 1 << 20  # bytes
VALID = PastRequest(np.array([1, 2], np.uint16), 1)


def head(ids):
    return struct.pack("<4sIII", b"NGRQ", max(ids, 0), 0, 7)


def only_beginnings(log):
    return b"NGRQ" * (SIZE // 4)


def records_to_the_end(log):
    return b"".join(head((SIZE - 16 * i) // 2 - 8) for i in range(SIZE // 16))


def empty_records(log):
    return head(0) * (SIZE // 16)


def between_whole_ones(log):
    valid = log.path.read_bytes()[16:]
    each = len(valid) + 16
    return b"".join(valid + head((SIZE - each * (i + 1)) // 2) for i in range(SIZE // each))


@pytest.mark.parametrize(
    "filler", [only_beginnings, records_to_the_end, empty_records, between_whole_ones]
)
def test_damage_cannot_be_made_to_cost_more_than_its_size(tmp_path, monkeypatch, filler):
    log = RequestLog(tmp_path / "log", np.dtype(np.uint16), 1000)
    log.create([VALID])
    with log.path.open("ab") as file:
        file.write(filler(log))
    lengths = []
    crc32 = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda raw, *at: lengths.append(len(raw)) or crc32(raw, *at))
    reading = log.read()
    assert reading.requests[0].tokens.tolist() == [1, 2]
    assert reading.damaged + reading.torn > SIZE // 2
    # The log is looked at once, more in vain; the last look may go over, and it is tried twice.
    most = (
        request_log.FRUITLESS_BYTES_PER_LOG_BYTE * SIZE
        + request_log.FRUITLESS_BYTES_MORE
        + 4 * SIZE
    )
    assert sum(lengths) <= most
    assert len(lengths) <= 2 * (most // request_log.FRUITLESS_BYTES_PER_PLACE + SIZE // 16)
    tally("a history's log of near-valid records", "read in bounded time")


def test_a_whole_record_behind_damage_is_found(tmp_path):
    log = RequestLog(tmp_path / "log", np.dtype(np.uint16), 1000)
    log.create([VALID, VALID, VALID])
    raw = bytearray(log.path.read_bytes())
    raw[16 + 20 + 17] ^= 1  # an id of the second
    log.path.write_bytes(raw)
    reading = log.read()
    assert (len(reading.requests), reading.damaged) == (2, 20)
