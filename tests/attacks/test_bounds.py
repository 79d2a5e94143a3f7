"""Small inputs that ask for much: manifests, templates, pipes, devices. All end in time."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_lines import run_here
from forked import in_child

from attacks.crafted import sign
from ngramkit.basics import untrusted
from ngramkit.basics.errors import ArtifactError, InputError
from ngramkit.basics.untrusted import not_linked
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import chat
from ngramkit.corpus.chat import find_template, render_confined
from ngramkit.corpus.open import open_corpus
from ngramkit.evaluate.bench_runs import Runs
from ngramkit.formats.history import History
from ngramkit.formats.manifest import MANIFEST_FILE, Manifest, read_manifest
from ngramkit.formats.tokenizer_record import TokenizerRecord

from . import tally

TURNS = [{"role": "user", "content": "hello"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


MANIFESTS = {
    "empty objects": lambda size: b"[" + b"{}," * (size // 3) + b"{}]",
    "empty lists": lambda size: b"[" + b"[]," * (size // 3) + b"[]]",
    "numbers": lambda size: b"[" + b"1," * (size // 2) + b"1]",
    "deep lists": lambda size: b"[" + (b"[" * 24 + b"]" * 24 + b",") * (size // 49) + b"1]",
    "keys": lambda size: b"{" + b",".join(b'"%d":0' % i for i in range(size // 13)) + b"}",
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_a_manifest_of_many_values(folder, monkeypatch, what):
    """Values are counted first: 57 MB of them would be gigabytes of Python objects."""
    text = MANIFESTS[what](57_000_000)
    manifest = Manifest("datastore", "b", TokenizerRecord("x", 10, "f")).to_json()
    body = manifest.replace('"corpus": {}', '"corpus": {"merged": MANY}').encode()
    Path("art").mkdir()
    Path("art", MANIFEST_FILE).write_bytes(body.replace(b"MANY", text))

    def never(*_, **__):
        raise AssertionError("read value by value")

    monkeypatch.setattr(untrusted.json, "loads", never)
    with pytest.raises(ArtifactError, match="values"):
        read_manifest(Path("art"))
    result = run_here(["inspect", "art", "--json"])
    assert result.code == 3
    tally("manifests of millions of values", "refused, exit 3", 2)


def test_a_manifest_of_many_shards_is_read(folder):
    """70,000 of 64 million tokens each are four trillion."""
    files = {f"shard-{i:05d}.safetensors": json_text_record(i) for i in range(70_000)}
    manifest = Manifest("datastore", "b", TokenizerRecord("x", 10, "f"), files=files)
    Path("art").mkdir()
    Path("art", MANIFEST_FILE).write_text(manifest.to_json())
    assert read_manifest(Path("art")) == manifest
    tally("manifests of 70,000 shards", "read")


def test_an_artifact_of_more_shards_than_files_may_be_open(folder):
    """Each is mapped: 70,000 are more than one process may map."""
    shards, most = 70_000, 20_000
    store = tokenize(open_corpus(__file__), "demo", "tokens")
    record = build_datastore(store, "art").manifest
    for number in range(1, shards):
        if number % 60_000 == 1:  # more links to one file are not to be had everywhere
            shutil.copy("art/shard-00000.safetensors", "copy")
        os.link("copy", f"art/shard-{number:05d}.safetensors")
        if number % 60_000 == 0:
            Path("copy").unlink()

    def change(body):
        [listed] = record.files.values()
        each = {"bytes": listed.bytes, "sha256": listed.sha256}
        body["files"] = {f"shard-{number:05d}.safetensors": each for number in range(shards)}
        body["counts"] = {name: count * shards for name, count in record.counts.items()}

    sign(Path("art"), change, listed=False)

    def inspect():
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        result = run_here(["inspect", "art"])
        assert result.code == 3
        assert "ulimit -n" in result.err, result.err

    assert in_child(inspect) == "done"
    tally(f"artifacts of {shards:,} shards", "refused, exit 3")


def json_text_record(number):
    from ngramkit.formats.safetensors import FileRecord

    return FileRecord(number, f"{number:064x}")


TEMPLATES = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "a product": "{{ 'a' * 10000000000 }}",
    "a string that doubles": "{% set n = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "a list that doubles": "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "a filter": "{{ 'a' | center(10000000000) }}",
    "a format": "{{ '%10000000000d' % 1 }}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}"
    "{% endif %}{% endmacro %}{{ f(60) }}",
    "a macro that calls itself for ever": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "a long text": "{{ 'a' * 20000000 }}",
    "a way out": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "a class": "{{ ''.__class__.__mro__ }}",
    "no template": "{% for %}",
}


@pytest.mark.parametrize("what", TEMPLATES)
def test_templates_without_an_end(monkeypatch, what):
    monkeypatch.setattr(chat, "MAX_SECONDS", 1)
    with pytest.raises(InputError, match="cannot render this conversation"):
        render_confined(TEMPLATES[what], TURNS, {})
    assert render_confined("{{ messages[0].content }}", TURNS, {}) == "hello"
    tally("chat templates that do not end, or would leave the sandbox", "refused")


def test_a_models_own_template_is_confined(folder, monkeypatch):
    """From the command line too, and under every name for it."""
    import shutil
    from importlib.resources import files

    from ngramkit.corpus.chat import Message
    from ngramkit.corpus.tokenizer import load_tokenizer

    shutil.copytree(files("ngramkit") / "demo" / "model", "model")
    Path("model/chat_template.jinja").write_text(TEMPLATES["loops in loops"])
    monkeypatch.setattr(chat, "MAX_SECONDS", 1)
    tokenizer = load_tokenizer("./model")
    for name in ("own", "auto"):
        with pytest.raises(InputError, match="takes more than 1 s"):
            find_template(name, tokenizer).prompt([Message("user", "hello")])
    tally("chat templates that do not end, or would leave the sandbox", "refused", 2)


def test_a_template_renders_in_a_forked_child():
    """The parent's rendering process is not used by the child."""
    assert render_confined("{{ messages[0].content }}", TURNS, {}) == "hello"

    def render():
        assert render_confined("{{ messages[0].role }}", TURNS, {}) == "user"

    assert in_child(render) == "done"
    assert render_confined("{{ messages[0].content }}", TURNS, {}) == "hello"


DECODE = "decode --drafter context --model demo --max-new-tokens 2"
PIPES = [
    ("tokenize --corpus a.txt --out t --exclude PIPE", 3),
    ("tokenize --corpus a.txt --out t --exclude PIPE.jsonl", 3),
    ("tokenize --corpus PIPE.txt --out t", 3),
    ("import PIPE --from llama.cpp --model demo", 3),
    ("import PIPE --from rest-idx --model demo", 3),
    ("bench --model demo --questions PIPE.jsonl", 3),
    ("bench --model demo --questions PIPE.txt", 3),
    ("replay --answers PIPE.jsonl --drafter context --model demo", 3),
    ("build PIPE.toml", 3),
    ("inspect PIPE", 3),
    ("verify PIPE", 3),
    (f"{DECODE} --prompt-file PIPE", 2),
    (f"{DECODE} --prompt x --reference PIPE", 3),
    ("decode --drafter ssd --model demo --prompt x --history PIPE", 3),
    ("decode --drafter rest --model demo --prompt x --datastore PIPE", 3),
    ("decode --model PIPE.gguf --prompt x", 3),
    ("decode --model ./PIPE --prompt x", 3),
]


@pytest.mark.parametrize(("line", "code"), PIPES, ids=[line for line, _ in PIPES])
def test_a_pipe_that_nobody_writes_to(folder, line, code):
    Path("a.txt").write_text("some text")
    for name in ("PIPE", "PIPE.jsonl", "PIPE.txt", "PIPE.toml", "PIPE.gguf"):
        os.mkfifo(name)

    def run():
        result = run_here(line.split())
        assert result.code in (code, 2), (result.code, result.err)
        assert "this is a bug" not in result.err, result.err

    assert in_child(run) == "done"
    tally("pipes and devices where a file is named", "an error")


def test_settings_that_are_a_pipe(folder, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    Path("ngramkit").mkdir()
    os.mkfifo("ngramkit/settings.json")

    def run():
        assert run_here(["models"]).code == 3

    assert in_child(run) == "done"
    tally("pipes and devices where a file is named", "an error")


@pytest.mark.parametrize("option", ["--prompt-file", "--prompt x --reference"])
def test_a_device_without_an_end(folder, option):
    result = run_here(f"{DECODE} {option} /dev/zero".split())
    assert result.code == 3
    assert "has more than" in result.err
    tally("pipes and devices where a file is named", "an error")


@pytest.mark.parametrize("name", ["requests.damaged", "requests.log.tmp", "requests.log"])
def test_a_history_with_a_pipe_in_it(folder, name):
    """Where a file of it is to be written, too: opening it would wait for somebody to read."""
    history = History.at("h", TokenizerRecord("small", 30, "5" * 64, 1))
    for _ in range(3):
        history.append(np.arange(9, dtype=np.int32), 3)
    log = bytearray(history.log.path.read_bytes())
    log[60] ^= 1  # what `trim` puts aside
    history.log.path.write_bytes(log)
    Path("h", name).unlink(missing_ok=True)
    os.mkfifo(Path("h", name))

    def trim():
        result = run_here(["history", "trim", "h", "--tokens", "9"])
        if name.endswith(".tmp"):  # it is deleted like what a killed process left
            assert (result.code, Path("h", name).exists()) == (0, False), result.err
            return
        assert result.code == 3, result.err
        assert "not a plain file" in result.err

    assert in_child(trim) == "done"
    tally("pipes and devices where a file is named", "an error")


def test_a_benchmark_with_a_pipe_in_it(folder):
    Path("out").mkdir()
    os.mkfifo("out/runs.jsonl")

    def begin():
        with pytest.raises(InputError, match="not a plain file"):
            Runs(Path("out"), {"model": "demo"})

    assert in_child(begin) == "done"
    tally("pipes and devices where a file is named", "an error")


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_nothing_is_written_into_a_pipe_or_a_device(folder, mode):
    os.mkfifo("pipe")
    reading = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    for place in ("pipe", "/dev/null"):
        with pytest.raises(OSError, match="not a plain file"):
            open(place, mode, opener=not_linked)  # noqa: SIM115
    os.close(reading)
    tally("pipes and devices where a file is named", "an error", 2)


def test_a_pipe_that_somebody_writes_to_is_read(folder):
    """For example bash's <(...)."""
    reading, writing = os.pipe()
    os.write(writing, b"def f(")
    os.close(writing)
    result = run_here([*DECODE.split(), "--prompt-file", f"/dev/fd/{reading}"])
    os.close(reading)
    assert result.code == 0, result.err


def test_a_column_of_nulls_is_no_text(folder):
    pq.write_table(pa.table({"text": pa.array([None, None], pa.string())}), "p.parquet")
    result = run_here(["tokenize", "--corpus", "p.parquet", "--out", "t", "--model", "demo"])
    assert result.code == 3
    assert "has no text" in result.err
    assert "kept in" not in result.err  # the same command would come to the same end
    assert not Path("t").exists()
    assert not Path("t.partial").exists()
    tally("bad files", "an error, exit 3")


@pytest.mark.parametrize(
    "line",
    [
        "decode --prompt x --model",
        "tokenize --corpus a.txt --out t --model",
        "tokenize --out t --model demo --corpus",  # a path of no parts is the working folder
    ],
)
def test_an_empty_name_is_no_model_and_no_corpus(folder, line):
    Path("a.txt").write_text("some text")
    result = run_here([*line.split(), ""])
    assert result.code == 2
    assert f"{line.split()[-1]} is empty" in result.err
    assert not Path("t").exists()
    tally("bad command lines", "an error, exit 2")


def test_lines_without_an_end(folder):
    """A .jsonl of one line of gigabytes, folded into kilobytes."""
    import gzip

    from ngramkit.corpus.unpacking import MAX_DOCUMENT

    with gzip.open("q.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(b'{"text": "')
        for _ in range(MAX_DOCUMENT // (1 << 20) + 2):
            file.write(b"a" * (1 << 20))
    for line in (
        "bench --model demo --questions q.jsonl.gz",
        "tokenize --corpus a.txt --out t --model demo --exclude q.jsonl.gz",
    ):
        Path("a.txt").write_text("some text")
        result = run_here(line.split())
        assert result.code == 3, result.err
        assert "a document of more than" in result.err
        tally("bombs", "refused")


def test_values_without_an_end(folder):
    """A record of millions of empty lists is gigabytes of Python's objects."""
    Path("d.jsonl").write_text(json.dumps({"text": "x"})[:-1] + ', "more": [' + "[]," * 5_000_000)
    result = run_here(["tokenize", "--corpus", "d.jsonl", "--out", "t", "--model", "demo"])
    assert result.code == 3
    assert "holds more than 4,194,304 values" in result.err
    tally("bombs", "refused")


@pytest.mark.parametrize("content", [b"text\n" + b"," * 5_000_000, b'text\n"' + b"," * 5_000_000])
@pytest.mark.parametrize("skip", [[], ["--skip-bad"]])
def test_a_row_of_millions_of_values(folder, content, skip):
    """Five megabytes of commas would be hundreds of megabytes of Python's objects."""
    Path("d.csv").write_bytes(content)
    line = ["tokenize", "--corpus", "d.csv", "--out", "t", "--model", "demo", *skip]
    result = run_here(line)
    assert result.code == 3
    assert "d.csv, line 2: it holds more than 4,194,304 values" in result.err
    tally("bombs", "refused")


@pytest.mark.parametrize("quote", [b"", b'"'])
def test_a_row_without_an_end(folder, quote):
    """A .csv of one row of gigabytes, folded into kilobytes."""
    import gzip

    with gzip.open("q.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"text\n" + quote)
        for _ in range(66):
            file.write((b"a" * 1023 + (b"\n" if quote else b"a")) * 1024)
    result = run_here(["tokenize", "--corpus", "q.csv.gz", "--out", "t", "--model", "demo"])
    assert result.code == 3
    assert "line 2: a document of more than 67,108,864 bytes" in result.err
    tally("bombs", "refused")
