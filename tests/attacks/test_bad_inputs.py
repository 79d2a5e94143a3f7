"""Command lines that make no sense, and machines that refuse: an error of its own for each."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from command_lines import run_here

from . import tally

pytestmark = pytest.mark.attack

HUGE = "99999999999999999999"
DECODE = "decode --drafter none --model demo --prompt def --max-new-tokens 2"
BUILD = "build-frozen --tokens none"
TOKENIZE = "tokenize --corpus a.txt --out t"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("some text, and some more")
    return tmp_path


def refused(words, code, said, attack="bad command lines"):
    """Check that the command ends with `code`, an error of one or two lines and the same in
    JSON."""
    result = run_here([*words, "--json"])
    shown = f"{words}: {result.code} {result.err}"
    assert result.code == code, shown
    assert said in result.err, shown
    assert "this is a bug" not in result.err, shown
    assert "Traceback" not in result.err, shown
    assert result.json["error"], shown
    tally(attack, f"an error, exit {code}")


LINES = [
    (f"{DECODE} --budget 1000000000", 2, "--budget"),
    (f"{DECODE} --budget -1", 2, "--budget"),
    (f"{DECODE} --seed -1 --temperature 1", 2, "--seed must be 0 to"),
    (f"{DECODE} --seed {HUGE} --temperature 1", 2, "--seed must be 0 to"),
    (f"{DECODE} --temperature nan", 2, "--temperature"),
    (f"{DECODE} --temperature 1e400", 2, "--temperature"),
    (f"{DECODE} --top-p 0 --temperature 1", 2, "--top-p must be above 0"),
    (f"{DECODE} --top-k -1 --temperature 1", 2, "--top-k"),
    (f"{DECODE} --max-new-tokens 1", 2, "--max-new-tokens is given 2 times"),
    (f"{DECODE} --no-such-option", 2, "--no-such-option"),
    (f"decode --drafter ssd --history h --history-tokens {HUGE} --prompt x", 2, "--history-tokens"),
    ("decode --drafter ssd --history h --history-tokens 0 --prompt x", 2, "--history-tokens"),
    (f"{TOKENIZE} --sample 0", 2, "--sample must be above 0"),
    (f"{TOKENIZE} --sample nan", 2, "--sample must be above 0"),
    (f"{TOKENIZE} --seed -1", 2, "--seed must be 0 to"),
    (f"{TOKENIZE} --limit 0", 2, "--limit must be at least 1"),
    (f"{TOKENIZE} --limit x", 2, "--limit"),
    (f"{TOKENIZE} --workers 100000", 2, "--workers must be 1 to 1024"),
    (f"{TOKENIZE} --workers -1", 2, "--workers"),
    (f"{TOKENIZE} --max-document 0", 2, "size"),
    (f"{TOKENIZE} --max-document {HUGE}T", 2, "size"),
    (f"{TOKENIZE} --max-document 5", 3, "a document of more than 5 bytes"),
    (f"{TOKENIZE} --split train --split all", 2, "--split is given 2 times"),
    (f"{TOKENIZE} --json", 2, "--json is given 2 times"),
    (f"tokenize --corpus a.txt --out {'x' * 300}", 2, "is too long"),
    ("tokenize --corpus a.txt --out a.txt/below", 2, "a.txt is not a folder"),
    ("tokenize --corpus nowhere/*.txt --out t", 3, "no file matches"),
    ("build-frozen --corpus a.txt --out f --followers " + HUGE, 2, "--followers must be 1 to"),
    ("build-frozen --corpus a.txt --out f --leaders " + HUGE, 2, "--leaders must be 1 to"),
    ("build-frozen --corpus a.txt --out f --leader-len 9", 2, "--leader-len must be 1 to 4"),
    ("build-frozen --corpus a.txt --out f --memory 0", 2, "size"),
    ("build-frozen --corpus a.txt --out f --memory 1e99", 2, "size"),
    (f"build-datastore --corpus a.txt --out d --workers {HUGE}", 2, "--workers must be 1 to 1024"),
    (f"model-bigram demo --out b --width {HUGE}", 2, "--width must be 1 to 1024"),
    ("model-bigram demo --out b --k 0", 2, "--k must be at least 1"),
    (f"inspect t --top {HUGE}", 2, "--top"),
    ("calibrate demo --time nan", 2, "--seconds must be 0 to 86400"),
    ("calibrate demo --time 1e300", 2, "--seconds must be 0 to 86400"),
    ("calibrate demo --time -1", 2, "--seconds must be 0 to 86400"),
    ("replay --answers a.txt --plot x.zzz", 2, "x.zzz"),
    ("toknize", 2, "tokenize"),
]


@pytest.mark.parametrize(("line", "code", "said"), LINES, ids=[line[:60] for line, *_ in LINES])
def test_command_lines(folder, line, code, said):
    refused(line.split(), code, said)
    assert not Path("t/manifest.json").exists()


def parquet(values, kind=None):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array(values, kind)}), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def broken_parquet():
    return parquet(["aaaaaaaa", "bbbbbbbb"]).replace(b"aaaaaaaa", b"aaa\xff\xfeaaa")


def uncompressed_broken():
    sink = pa.BufferOutputStream()
    table = pa.table({"text": ["aaaaaaaa", "bbbbbbbb"]})
    pq.write_table(table, sink, compression="none")
    return sink.getvalue().to_pybytes().replace(b"aaaaaaaa", b"aaa\xff\xfeaaa")


FILES = [
    ("p.parquet", uncompressed_broken, "is damaged"),
    ("p.parquet", lambda: b"PAR1", "is damaged"),
    ("a.arrow", lambda: b"ARROW1\0\0", "is damaged"),
    ("u.py", lambda: b"# coding: undefined\nx = 1\n", "unknown encoding"),
    ("u.py", lambda: b"# coding: punycode\nx = 1\n", "unknown encoding"),
    ("u.py", lambda: b"# coding: zlib\nx = 1\n", "not a text encoding"),
    ("u.py", lambda: b"# coding: no-such\nx = 1\n", "unknown encoding"),
    ("u.py", lambda: b"# coding: ascii\n\xff\n", "cannot be decoded"),
    ("u.txt", lambda: b"\xff\xfe\xfd", "cannot be decoded"),
    ("d.jsonl", lambda: b"[" * 100_000, "nests too deeply"),
    ("d.json", lambda: b"[" * 100_000, "nests too deeply"),
    ("d.jsonl", lambda: b'{"text": 7}\n', ""),
    ("d.jsonl", lambda: b"{\n", "not JSON"),
    ("d.jsonl.gz", lambda: b"no gzip", "not JSON"),
    ("d.jsonl.gz", lambda: b"\x1f\x8b\x08 no gzip", "is damaged"),
    ("d.txt.zst", lambda: b"\x28\xb5\x2f\xfd no zstd", "is damaged"),
    ("d.txt.gz", lambda: gzip.compress(b"x" * 10_000)[:-9], "is damaged"),
    ("d.txt.gz", lambda: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 5_000_000, "is damaged"),
    ("d.txt.zst", lambda: frame(31, 1), "is damaged"),
    ("d.txt.zst", lambda: frame(41, 1), "is damaged"),
    ("d.txt.zst", lambda: b"\x50\x2a\x4d\x18\xf0\xff\xff\xff" + b"x", "is damaged"),
]


@pytest.mark.parametrize(("name", "content", "said"), FILES, ids=range(len(FILES)))
def test_files(folder, name, content, said):
    Path(name).write_bytes(content())
    refused(["tokenize", "--corpus", name, "--out", "t"], 3, said, "bad files")


def frame(window, blocks):
    """A zst frame of blocks that each say one byte 2^17 times; its window has 2^`window` bytes."""
    block = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = ((1 << 17) << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"
    return b"\x28\xb5\x2f\xfd\0" + bytes([(window - 10) << 3]) + block * (blocks - 1) + last


ZEROS = 200 << 20  # bytes that each bomb unfolds to
BOMBS = {
    "z.txt.gz": lambda: gzip.compress(bytes(ZEROS)),
    "z.jsonl.gz": lambda: gzip.compress(bytes(ZEROS)),
    "z.txt.zst": lambda: zstandard.compress(bytes(ZEROS)),
    "z.jsonl.zst": lambda: zstandard.compress(b"{" + bytes(ZEROS)),
    "z.json.zst": lambda: zstandard.compress(bytes(ZEROS)),
    "blocks.txt.zst": lambda: frame(20, 100_000),  # 13 GB
    "frames.txt.zst": lambda: zstandard.compress(bytes(1 << 20)) * 200,
    "members.txt.gz": lambda: gzip.compress(bytes(1 << 20)) * 200,
    "z.parquet": lambda: parquet(["x" * (2 << 20)] * 300),
}
CHILD = """
import resource, sys
import ngramkit.builders.tokens, ngramkit.corpus.readers, ngramkit.corpus.tokenizer
from ngramkit.corpus.open import open_corpus
from ngramkit.basics.errors import NgramkitError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    try:
        found = sum(len(d.text) for d in open_corpus(name, max_document=1 << 20).documents())
    except NgramkitError as error:
        found = f"{type(error).__name__}: {error}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{name}\\t{grown >> 10}\\t{found}", flush=True)
"""


def test_bombs_are_refused_in_bounded_memory(folder):
    for name, content in BOMBS.items():
        Path(name).write_bytes(content())
    assert sum(Path(name).stat().st_size for name in BOMBS) < 2 << 20
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *BOMBS], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        name, grown, found = line.split("\t")
        assert "a document of more than" in found, line
        assert int(grown) < 120, line  # MiB
        tally("zip bombs", "refused in bounded memory")
    assert len(done.stdout.splitlines()) == len(BOMBS)


def test_endless_blank_lines_do_not_hang(folder):
    Path("b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' + b"\n" * (256 << 20)))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "b.jsonl.gz"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split("\t")[2].strip() == "1"
    tally("zip bombs", "read in bounded time")
