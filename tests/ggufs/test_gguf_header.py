"""Headers of GGUF files: valid, damaged and hostile."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from gguf_files import text, value, write_gguf
from hypothesis import given, strategies as st

from ngramkit.basics.errors import InputError
from ngramkit.gguf import header
from ngramkit.gguf.header import read_header

METADATA = {"general.architecture": "llama", "a": 7, "b": [1, 2], "c": ["x", "y"], "d": True}
TENSORS = {"w": np.arange(64, dtype=np.float32).reshape(2, 32), "v": np.ones(3, np.float32)}
VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=6))
def test_written_metadata_is_read(tmp_path_factory, metadata):
    metadata.pop("general.alignment", None)
    path = tmp_path_factory.mktemp("gguf") / "a.gguf"
    found = read_header(write_gguf(path, metadata, TENSORS))
    plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.metadata.items()}
    assert plain == metadata
    assert {name: t.shape for name, t in found.tensors.items()} == {"w": (32, 2), "v": (3,)}


@pytest.mark.attack
def test_a_file_that_was_cut_short_is_refused_wherever_it_ends(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", METADATA, TENSORS)
    content = path.read_bytes()
    for end in range(0, len(content) - STEP_OF_PADDING, 3):
        path.write_bytes(content[:end])
        with pytest.raises(InputError):
            read_header(path)


STEP_OF_PADDING = 20  # behind the last tensor


@pytest.mark.attack
def test_damaged_bytes_are_refused_or_harmless(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", METADATA, TENSORS)
    content, dice = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(dice.choice((1, 1, 4, 8))):
            changed[dice.randrange(len(content) - 300)] = dice.choice((0, 1, 127, 128, 255))
        path.write_bytes(changed)
        try:
            read_header(path)
        except InputError:
            refused += 1
    assert refused > 500


def crafted(tensors=0, pairs=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


HUGE = struct.pack("<Q", 1 << 62)
PAIR = text("k")
CASES = {
    "no GGUF": b"GGML" + bytes(60),
    "empty": b"",
    "version 1": crafted(version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "too many tensors": crafted(tensors=1 << 40),
    "too many pairs": crafted(pairs=1 << 40),
    "an endless key": crafted(pairs=1, rest=HUGE),
    "an endless text": crafted(pairs=1, rest=PAIR + struct.pack("<I", 8) + HUGE),
    "an endless list": crafted(pairs=1, rest=PAIR + struct.pack("<II", 9, 8) + HUGE),
    "endless numbers": crafted(pairs=1, rest=PAIR + struct.pack("<II", 9, 4) + HUGE),
    "lists of lists": crafted(pairs=1, rest=PAIR + struct.pack("<II", 9, 9) + struct.pack("<Q", 1)),
    "an unknown type": crafted(pairs=1, rest=PAIR + struct.pack("<II", 13, 1)),
    "no UTF-8": crafted(pairs=1, rest=struct.pack("<Q", 1) + b"\xff" + value(1)),
    "a key twice": crafted(pairs=2, rest=(PAIR + value(1)) * 2),
    "no dimensions": crafted(tensors=1, rest=text("w") + struct.pack("<I", 0)),
    "five dimensions": crafted(tensors=1, rest=text("w") + struct.pack("<I", 5)),
    "an empty tensor": crafted(tensors=1, rest=text("w") + struct.pack("<IQIQ", 1, 0, 0, 0)),
    "an endless tensor": crafted(1, rest=text("w") + struct.pack("<IQIQ", 1, 1 << 60, 0, 0)),
    "far away": crafted(tensors=1, rest=text("w") + struct.pack("<IQIQ", 1, 1, 0, 1 << 62)),
    "a tensor of no type": crafted(tensors=1, rest=text("w") + struct.pack("<IQIQ", 1, 1, 99, 0)),
    "half a block": crafted(tensors=1, rest=text("w") + struct.pack("<IQIQ", 1, 33, 3, 0)),
    "no alignment": crafted(pairs=1, rest=text("general.alignment") + value(0)),
}  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize("case", CASES)
def test_crafted_headers_are_refused_in_a_line(tmp_path, case):
    path = tmp_path / "a.gguf"
    path.write_bytes(CASES[case])
    with pytest.raises(InputError) as refused:
        read_header(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.attack
def test_two_tensors_of_one_name_are_refused(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {}, {"w": np.ones(8), "v": np.ones(8)})
    path.write_bytes(path.read_bytes().replace(text("v"), text("w")))
    with pytest.raises(InputError, match="one name"):
        read_header(path)


def test_missing_and_unreadable_gguf_files(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_header(tmp_path / "nowhere.gguf")
    with pytest.raises(InputError, match="Is a directory"):
        read_header(tmp_path)


def test_block_sizes_are_those_of_the_gguf_package():
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    theirs = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: sizes for kind, sizes in theirs.items() if kind in header.BLOCKS} == {
        kind: sizes for kind, sizes in header.BLOCKS.items() if kind in theirs
    }
