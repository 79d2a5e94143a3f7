"""Damaged files of strangers that are no artifacts are read, or refused in one line.

A share of what `python -m tests.attacks.fuzz` tries; those below fell once, or nearly.
"""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import in_child

from attacks.file_victims import FILE_KINDS, table
from attacks.fuzz import fuzz, warmed_files
from ngramkit.basics.errors import InputError
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer

from . import tally

MUTATED = 200  # of each kind


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return warmed_files(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_mutated_files(whole, kind):
    report = fuzz(kind, whole[kind], range(3_000_000, 3_000_000 + MUTATED))
    assert not report.failures
    assert set(report.outcomes) == {"read", "refused"}
    for outcome, tries in report.outcomes.items():
        tally(f"mutated {kind} files", outcome, tries)


def documents(path, **options):
    return [document.text for document in open_corpus(path, **options).documents()]


def refused(path, said, **options):
    def read():
        with pytest.raises(InputError, match=said):
            documents(path, **options)

    assert in_child(read) == "done"


def written(path, batch):
    with pa.ipc.new_stream(path, batch.schema) as stream:
        stream.write_batch(batch)


@pytest.mark.parametrize("offsets", [(0, 1 << 30), (9, 0), (-5, 4), (1 << 30, (1 << 30) + 9)])
def test_offsets_that_lead_outside(tmp_path, offsets):
    """pyarrow would read memory outside the array, and may crash."""
    path = tmp_path / "a.arrow"
    written(path, pa.record_batch([["x" * 77]], names=["text"]))
    raw, true = path.read_bytes(), struct.pack("<ii", 0, 77)
    at = raw.rindex(true)
    path.write_bytes(raw[:at] + struct.pack("<ii", *offsets) + raw[at + len(true) :])
    refused(path, "is damaged")
    tally("offsets and indices that lead outside", "refused")


def test_a_dictionarys_index_that_leads_outside(tmp_path):
    entries = pa.DictionaryArray.from_arrays(
        pa.array([0, 1 << 20], pa.int32()), pa.array(["a", "b"]), safe=False
    )
    written(tmp_path / "a.arrow", pa.record_batch([entries], names=["text"]))
    refused(tmp_path / "a.arrow", "is damaged", column="text")
    tally("offsets and indices that lead outside", "refused")


def test_files_of_every_form_are_read(whole):
    """Also lists as dictionaries over several row groups, and delta-encoded texts."""
    wanted = table()["text"].to_pylist()
    turns = [turn["content"] for row in table()["turns"].to_pylist() for turn in row]
    for kind in ("parquet", "arrow"):
        for path in sorted(whole[kind].iterdir()):
            assert documents(path) == wanted, path
            assert [text for text in documents(path, column="turns") if text] == turns, path


@pytest.mark.parametrize("far", [1 << 24, (1 << 31) - 1, (1 << 32) - 1])
def test_ids_far_apart(whole, tmp_path, far):
    """tokenizers would walk over all ids between, and run out of memory."""
    body = json.loads((whole["tokenizer.json"] / "words.json").read_text())
    body["model"]["vocab"]["##e"] = far
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))

    def load():
        with pytest.raises(InputError, match="its ids must be below"):
            load_tokenizer(str(tmp_path))

    assert in_child(load) == "done"
    tally("tokenizers that fail in Rust", "refused")


def test_long_numbers_that_are_no_ids(whole, tmp_path):
    body = json.loads((whole["tokenizer.json"] / "whole.json").read_text())
    body["model"]["vocab"]["123456789012"] = max(body["model"]["vocab"].values()) + 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(body, indent=1))
    assert load_tokenizer(str(tmp_path)).encode("12").size == 2


def test_a_panic_is_an_error_of_ours(whole, tmp_path):
    """In Python it is no Exception, so it would end any process."""
    body = json.loads((whole["tokenizer.json"] / "pieces.json").read_text())
    body["decoder"] = {"type": "Strip", "content": "<", "start": 0, "stop": 1 << 63}
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))

    def decode():
        tokenizer = load_tokenizer(str(tmp_path))
        with pytest.raises(InputError, match="cannot run the tokenizer"):
            [tokenizer.decode([token]) for token in range(tokenizer.record.vocabulary)]

    assert in_child(decode) == "done"
    tally("tokenizers that fail in Rust", "refused")


@pytest.mark.parametrize("far", [90, (1 << 32) - 1])
def test_an_id_that_only_the_template_has(whole, tmp_path, far):
    """A model would look it up behind its embeddings."""
    body = json.loads((whole["tokenizer.json"] / "pieces.json").read_text())
    body["post_processor"]["special_tokens"]["<s>"]["ids"] = [far]
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.encode("de").size
    with pytest.raises(InputError, match="outside its vocabulary"):
        tokenizer.encode_prompt("de")
    tally("tokenizers that fail in Rust", "refused")


def test_a_vocabulary_without_its_unknown_token(whole, tmp_path):
    body = json.loads((whole["tokenizer.json"] / "whole.json").read_text())
    del body["model"]["vocab"]["<unk>"]
    body["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))
    with pytest.raises(InputError, match=r"cannot run the tokenizer"):
        load_tokenizer(str(tmp_path))
    tally("tokenizers that fail in Rust", "refused")


LONG = 2 << 20


BOMBS = ("a list of entries", "structs of entries", "a buffer that unpacks", "a length that lies",
         "values without bytes", "a nested parquet", "differences")  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
def test_bombs_of_tables(tmp_path, what):
    """Kilobytes that unpack to gigabytes are refused before they are unpacked."""
    path = tmp_path / ("a.parquet" if what in ("a nested parquet", "differences") else "a.arrow")
    said = "a document of more than"
    entries = pa.DictionaryArray.from_arrays(
        pa.array([0] * 300_000, pa.int32()), pa.array(["x" * LONG])
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 300_000], pa.int32()), entries)
    zstd = pa.ipc.IpcWriteOptions(compression="zstd")
    if what == "structs of entries":
        turns = pa.StructArray.from_arrays([entries, entries], ["role", "content"])
        lists = pa.ListArray.from_arrays(pa.array([0, 300_000], pa.int32()), turns)
    if what in ("a list of entries", "structs of entries"):
        with pa.ipc.new_file(path, pa.schema([("text", lists.type)]), options=zstd) as file:
            file.write_batch(pa.record_batch([lists], names=["text"]))
    elif what in ("a buffer that unpacks", "a length that lies"):
        said = "would unpack to"
        zeros = pa.array([bytes(96 << 20 if "unpacks" in what else LONG)], pa.large_binary())
        batch = pa.record_batch([zeros, pa.array(["x"])], names=["zeros", "text"])
        with pa.ipc.new_stream(path, batch.schema, options=zstd) as stream:
            stream.write_batch(batch)
        if "lies" in what:
            raw = path.read_bytes()
            length = LONG.to_bytes(8, "little")
            assert raw.count(length + b"\x28\xb5\x2f\xfd") == 1
            path.write_bytes(raw.replace(length, (1 << 45).to_bytes(8, "little")))
    elif what == "values without bytes":
        said = "holds more than 4,194,304 values"
        nulls = pa.nulls(5_000_000, pa.null())
        lists = pa.ListArray.from_arrays(pa.array([0, 5_000_000], pa.int32()), nulls)
        written(path, pa.record_batch([lists], names=["text"]))
    elif what == "a nested parquet":
        texts = pa.array([["x" * LONG] * 50])
        pq.write_table(pa.table({"text": texts}), path, compression="zstd")
    else:
        texts = pa.array(["x" * (LONG + n % 2) for n in range(100)])
        options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
        pq.write_table(pa.table({"text": texts}), path, compression="zstd", **options)
    del entries, lists
    most = 1 << 20 if what in ("differences", "a buffer that unpacks") else 64 << 20
    assert path.stat().st_size < 5 << 20

    def read():
        import resource
        from pathlib import Path

        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (768 << 20),) * 2)
        with pytest.raises(InputError, match=said):
            for _ in open_corpus(path, column="text", max_document=most).documents():
                pass

    assert in_child(read) == "done"
    tally("bombs of .arrow and .parquet", "refused")


def varint(number):
    """Of Thrift's compact protocol."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while True:
        found.append(left & 0x7F | (0x80 if left > 0x7F else 0))
        left >>= 7
        if not left:
            return bytes(found)


def element(name, children=None, repeated=1):
    """A part of a parquet file's schema: a group of `children`, or a column of bytes."""
    text = name.encode()
    group = children is not None
    kind = b"" if group else b"\x15" + varint(6)
    named = bytes([0x35 if group else 0x25]) + varint(repeated)
    named += b"\x18" + bytes([len(text)]) + text
    return kind + named + (b"\x15" + varint(children) if group else b"") + b"\0"


def footer(elements, listed=None):
    """Of a parquet file without rows, whose schema says that it has `listed` parts."""
    count, size = len(elements) if listed is None else listed, bytearray()
    while count > 0x7F:
        size.append(count & 0x7F | 0x80)
        count >>= 7
    size.append(count)
    schema = b"\x19\xfc" + bytes(size) + b"".join(elements)
    return b"\x15" + varint(1) + schema + b"\x16" + varint(0) + b"\x19\x0c\0"


def nested(depth, repeated=1):
    groups = [element("a", 1, repeated) for _ in range(depth)]
    return footer([element("schema", 1), *groups, element("text")])


FOOTERS = {
    "nested 1,000 deep": lambda: nested(1_000),
    "nested 100,000 deep": lambda: nested(100_000),
    "lists in lists, 1,000 deep": lambda: nested(1_000, 2),
    "lists in lists, 100,000 deep": lambda: nested(100_000, 2),
    "nested a million deep": lambda: nested(1_000_000),
    "a million columns": lambda: footer(
        [element("schema", 1_000_000), *[element(f"c{n}") for n in range(1_000_000)]]
    ),
    "thousands of millions of columns": lambda: footer(
        [element("schema", (1 << 31) - 1), element("text")]
    ),
    "fewer than no columns": lambda: footer([element("schema", -5), element("text")]),
    "a list that says it is longer": lambda: footer([element("schema", 1)], (1 << 31) - 1),
}


@pytest.mark.parametrize("what", FOOTERS)
def test_footers_that_nest_and_lie(tmp_path, what):
    """What pyarrow makes of a schema is made before a row is asked for."""
    raw = FOOTERS[what]()
    for claimed in (None, 0xFFFF_FFF0, 0):
        length = struct.pack("<I", len(raw) if claimed is None else claimed)
        (tmp_path / "a.parquet").write_bytes(b"PAR1" + raw + length + b"PAR1")
        refused(tmp_path / "a.parquet", "is damaged")
        tally("bombs of .arrow and .parquet", "refused")


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_footer_that_nests_as_deep_as_is_read(tmp_path, repeated):
    raw = nested(90, repeated)
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + raw + struct.pack("<I", len(raw)) + b"PAR1")
    assert documents(tmp_path / "a.parquet", column="a") == []
    tally("bombs of .arrow and .parquet", "read in bounded time")


@pytest.mark.parametrize("levels", [60, 1_000])
def test_an_arrow_schema_that_nests(tmp_path, levels):
    kind = pa.string()
    for _ in range(levels):
        kind = pa.list_(kind)
    with pa.ipc.new_stream(tmp_path / "a.arrow", pa.schema([("text", kind)])):
        pass
    if levels == 60:
        assert documents(tmp_path / "a.arrow") == []
    else:
        refused(tmp_path / "a.arrow", "is damaged")
    outcome = "read in bounded time" if levels == 60 else "refused"
    tally("bombs of .arrow and .parquet", outcome)


def test_a_table_of_many_columns(tmp_path):
    """Columns are read one by one, and an error names a few of them."""
    wide = pa.table({f"c{n}": [n] for n in range(20_000)} | {"text": ["x"]})
    pq.write_table(wide, tmp_path / "a.parquet")
    assert documents(tmp_path / "a.parquet") == ["x"]
    pq.write_table(wide.drop(["text"]), tmp_path / "b.parquet")
    with pytest.raises(InputError) as error:
        documents(tmp_path / "b.parquet")
    assert len(f"{error.value} {error.value.hint}") < 2000
    tally("tables of 20,000 columns", "read, or a short error", 2)
