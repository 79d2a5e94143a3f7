"""A token store holds every document's ids, whatever the batches, pieces, shards or kills."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
from collections import Counter
from contextlib import suppress
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, strategies as st
from reporters import Notes

from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.basics.progress import Reporter
from ngramkit.builders import tokens as builder
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import encoding
from ngramkit.corpus.document import BEGINNING, Document, Position
from ngramkit.corpus.encoding import EncodedBatch
from ngramkit.corpus.naming import without_checksum
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.artifact import verify_checksums_and_values
from ngramkit.formats.card import artifact_card
from ngramkit.formats.manifest import read_manifest
from ngramkit.formats.outputs import PROGRESS
from ngramkit.formats.resumable_writer import ArtifactWriter
from ngramkit.formats.safetensors import open_arrays

TEXTS = [f"def f{n}(x):\n    return x + {n}\n" * (n % 5) for n in range(60)]  # some are empty
LICENSES = ["MIT", "Apache-2.0", "GPL-3.0"]


@pytest.fixture(scope="module")
def demo():
    return load_tokenizer("demo")


@pytest.fixture
def corpus(tmp_path):
    for part in range(3):
        rows = range(part * 20, part * 20 + 20)
        records = [{"text": TEXTS[n], "license": LICENSES[n % 3], "repo": "a/b"} for n in rows]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / f"part-{part}.jsonl").write_text(lines)
    return open_corpus(str(tmp_path / "*.jsonl"))


def digests(store):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.path.iterdir()
    }


def expected(demo, texts, eos=True):
    tail = [demo.record.eos] if eos else []
    return [[*demo.encode(text), *tail] for text in texts]


def ids(store):
    return [document.tolist() for document in store.documents()]


@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("shard_tokens", [1, 100, 1 << 24])
def test_ids_in_whole_documents(corpus, demo, tmp_path, shard_tokens, eos):
    store = tokenize(corpus, "demo", tmp_path / "s", eos=eos, shard_tokens=shard_tokens)
    assert ids(store) == expected(demo, TEXTS, eos)
    assert list(verify_checksums_and_values(store))
    assert store.manifest.corpus["licenses"] == Counter(LICENSES[n % 3] for n in range(60))
    for shard in store.shards[:-1]:
        ends = shard.documents[1:]
        assert ends[-1] >= shard_tokens  # full
        assert len(ends) == 1 or ends[-2] < shard_tokens  # and not before its last document


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=8)), st.integers(1, 9))
def test_a_shard_ends_with_the_document_that_fills_it(batches, shard_tokens):
    expected, gathered = [], []
    for length in (length for lengths in batches for length in lengths):
        gathered.append(length)
        if sum(gathered) >= shard_tokens:
            expected.append(gathered)
            gathered = []
    expected += [gathered] if gathered else []
    shards = {}

    class Writer:
        def finished(self, name):
            return None

        def write(self, name, arrays, **facts):
            shards[name] = np.diff(arrays["documents"]).tolist()
            assert len(arrays["tokens"]) == sum(shards[name])

    cutter = builder.ShardCutter(Writer(), np.uint16, shard_tokens, positions=False)
    document = Document("", (), "")
    cutter.cut(
        EncodedBatch(
            [document] * len(lengths), np.zeros(sum(lengths), np.uint16), np.array(lengths)
        )
        for lengths in batches
    )
    assert list(shards.values()) == expected


def test_bytes_do_not_depend_on_batches(corpus, tmp_path, monkeypatch):
    first = tokenize(corpus, "demo", tmp_path / "one", shard_tokens=200)
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 50)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 3)
    assert digests(first) == digests(tokenize(corpus, "demo", tmp_path / "two", shard_tokens=200))


def test_an_interrupt_at_any_line_loses_and_doubles_nothing(tmp_path):
    lengths = [3, 4, 2, 5, 1]
    documents = [Document("", (), "", Position(kept=n + 1)) for n in range(len(lengths))]
    batches = [
        EncodedBatch([document], np.full(length, n, np.uint16), np.array([length]))
        for n, (document, length) in enumerate(zip(documents, lengths, strict=True))
    ]

    def cut(name, interrupt):
        """Return the tokens of all shards. Raise KeyboardInterrupt at the line `interrupt`."""
        lines = iter(range(interrupt + 1))

        def trace(frame, event, _):
            if frame.f_code.co_filename != builder.__file__:
                return None
            if event == "line" and next(lines, None) == interrupt:
                raise KeyboardInterrupt
            return trace

        with ArtifactWriter(tmp_path / name, "tokens", {"kind": name}) as writer:
            cutter = builder.ShardCutter(writer, np.uint16, 5, positions=True)
            left = batches[cutter.position.kept :]
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                cutter.cut(left)
            finally:
                sys.settrace(before)
            files = sorted(writer.partial.glob("shard-*"))
            return [open_arrays(file)["tokens"].tolist() for file in files]

    whole = cut("whole", 10_000)
    assert [*chain(*whole)] == [n for n, length in enumerate(lengths) for _ in range(length)]
    for line in range(10_000):
        with suppress(KeyboardInterrupt):
            assert cut(str(line), line) == whole
            break
        assert cut(str(line), 10_000) == whole
    assert line > 50


class KilledError(Exception):
    """Stands for SIGKILL: nothing of ours catches it."""


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_a_killed_build_reads_on_behind_its_last_shard(corpus, tmp_path, monkeypatch, shards):
    options = {"shard_tokens": 200}
    whole = tokenize(corpus, "demo", tmp_path / "whole", **options)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 4)

    write = builder.ArtifactWriter.write
    written = []

    def dying(self, name, arrays, **facts):
        if len(written) == shards:
            raise KilledError
        written.append(name)
        write(self, name, arrays, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(builder.ArtifactWriter, "write", dying)
        with pytest.raises(KilledError):
            tokenize(corpus, "demo", tmp_path / "killed", **options)
    assert not (tmp_path / "killed").exists()

    encoded = []
    encode = encoding.encode_and_end_documents
    monkeypatch.setattr(
        encoding,
        "encode_and_end_documents",
        lambda e, d, *args: encoded.extend(d) or encode(e, d, *args),
    )
    assert digests(tokenize(corpus, "demo", tmp_path / "killed", **options)) == digests(whole)
    skipped = sum(len(shard.documents) - 1 for shard in whole.shards[:shards])
    assert len(encoded) == len(TEXTS) - skipped


def count_encoded(monkeypatch):
    """Return the list that documents are added to as they are encoded."""
    encoded, encode = [], encoding.encode_and_end_documents
    monkeypatch.setattr(
        encoding,
        "encode_and_end_documents",
        lambda e, d, *args: encoded.extend(d) or encode(e, d, *args),
    )
    return encoded


@pytest.mark.parametrize("shard_tokens", [1 << 24, 200])
@pytest.mark.parametrize("batches", [1, 2, 7, 14])
def test_an_interrupted_build_loses_no_batch(corpus, tmp_path, monkeypatch, batches, shard_tokens):
    options = {"shard_tokens": shard_tokens}
    whole = tokenize(corpus, "demo", tmp_path / "whole", **options)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 4)
    encode, done = encoding.encode_and_end_documents, []

    def interrupted(*args):
        if len(done) == batches:
            raise KeyboardInterrupt
        done.append(1)
        return encode(*args)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "encode_and_end_documents", interrupted)
        patch.setattr(encoding, "ENCODER_THREADS", 1)
        with pytest.raises(KeyboardInterrupt) as stopped:
            tokenize(corpus, "demo", tmp_path / "store", **options)
    [note] = stopped.value.__notes__
    assert note.startswith(f"kept in {tmp_path}/store.partial: ")
    encoded, heard = count_encoded(monkeypatch), Notes()
    again = tokenize(corpus, "demo", tmp_path / "store", reporter=heard, **options)
    assert digests(again) == digests(whole)
    assert len(encoded) == len(TEXTS) - 4 * batches
    assert heard.lines[0].startswith(f"resuming after {4 * batches} documents, ")


@pytest.mark.parametrize("written", range(0, 24, 3))
def test_a_build_killed_between_shards_goes_on(corpus, tmp_path, monkeypatch, written):
    whole = tokenize(corpus, "demo", tmp_path / "whole", shard_tokens=200)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 3)
    monkeypatch.setattr(builder, "SAVE_SECONDS", 0)
    calls, write = [], builder.ArtifactWriter.write

    def dying(self, *args, **facts):
        if len(calls) == written:
            raise KilledError
        calls.append(args)
        write(self, *args, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(builder.ArtifactWriter, "write", dying)
        with pytest.raises(KilledError):
            tokenize(corpus, "demo", tmp_path / "killed", shard_tokens=200)
    again = tokenize(corpus, "demo", tmp_path / "killed", shard_tokens=200)
    assert digests(again) == digests(whole)


def test_what_is_kept_of_another_plan_is_not_taken(corpus, demo, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 4)
    monkeypatch.setattr(builder, "SAVE_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(builder.ShardCutter, "cut", stopped_half_way(builder.ShardCutter.cut))
        with pytest.raises(KeyboardInterrupt):
            tokenize(corpus, "demo", tmp_path / "store")
    store = tokenize(corpus, "demo", tmp_path / "store", eos=False)
    assert ids(store) == expected(demo, TEXTS, eos=False)


def stopped_half_way(cut):
    def stopping(self, batches):
        def few():
            for packed, _ in zip(batches, range(5), strict=False):
                yield packed
            raise KeyboardInterrupt

        cut(self, few())

    return stopping


def test_documents_left_out_are_counted_and_reported_also_by_a_resumed_build(
    corpus, tmp_path, monkeypatch
):
    opted_out = hashlib.sha256(TEXTS[1].encode()).hexdigest()
    (tmp_path / "opt-outs.txt").write_text(opted_out)
    options = {"licenses": ["mit", "Apache-2.0"], "exclude": tmp_path / "opt-outs.txt"}
    corpus = open_corpus(str(tmp_path / "*.jsonl"), **options)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 4)
    with monkeypatch.context() as patch:
        patch.setattr(builder.ShardCutter, "cut", stopped_half_way(builder.ShardCutter.cut))
        for name in ("store", "old"):
            with pytest.raises(KeyboardInterrupt):
                tokenize(corpus, "demo", tmp_path / name)
    notes = Notes()
    store = tokenize(corpus, "demo", tmp_path / "store", reporter=notes)
    assert store.manifest.corpus["left_out"] == {"unlicensed": 20, "opted_out": 1}
    assert "left out 20 documents (their licences are not listed)" in notes.lines
    assert "left out 1 document (they opted out)" in notes.lines
    card = artifact_card(store.manifest)
    assert "left out: 20." in card
    assert "left out: 1 (sha256" in card
    progress = tmp_path / "old.partial" / PROGRESS  # version 0.2.0 saved no counts
    written = progress.read_text()
    progress.write_text(re.sub(r'"opted_out": \d+, |, "unlicensed": \d+', "", written))
    assert "opted_out" in written
    assert "opted_out" not in progress.read_text()
    assert ids(tokenize(corpus, "demo", tmp_path / "old")) == ids(store)


def test_a_resumed_build_counts_bad_records_of_the_earlier_run(tmp_path, monkeypatch):
    lines = ["{", *(json.dumps({"text": text}) for text in TEXTS)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    corpus = open_corpus(str(tmp_path / "a.jsonl"), skip_bad=True)
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 4)
    with monkeypatch.context() as patch:
        patch.setattr(builder.ShardCutter, "cut", stopped_half_way(builder.ShardCutter.cut))
        with pytest.raises(KeyboardInterrupt):
            tokenize(corpus, "demo", tmp_path / "store")
    notes = Notes()
    again = open_corpus(str(tmp_path / "a.jsonl"), skip_bad=True)
    store = tokenize(again, "demo", tmp_path / "store", reporter=notes)
    assert store.manifest.corpus["bad_records"] == 1
    assert notes.lines[-1] == "skipped 1 bad record"


class Amounts(Reporter):
    """What was announced and how far it came, step by step."""

    def __init__(self):
        self.stages, self.steps = [], []

    def stage(self, name, total=None, unit="tokens"):
        self.stages.append((name, total, unit))

    def advance(self, amount, **counts):
        self.steps.append(amount)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "txt"])
def test_progress_goes_by_the_bytes_that_are_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 5)
    words = np.random.default_rng(1).integers(0, 1 << 62, (90, 60))
    texts = [" ".join(map(str, row)) for row in words]
    if kind == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")  # one row group
    elif kind == "txt":
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.txt").write_text(text)
    else:
        opened = gzip.open if kind.endswith("gz") else open
        with opened(tmp_path / f"a.{kind}", "wt") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    heard = Amounts()
    tokenize(str(tmp_path / ("*." + kind)), "demo", tmp_path / "store", reporter=heard)
    assert heard.stages == [("tokenize", size, "bytes")]
    assert sum(heard.steps) == size
    if kind in ("parquet", "txt"):  # the others are read in pieces that are larger than these
        assert max(heard.steps) < size / 2
    limited = Amounts()
    tokenize(str(tmp_path / ("*." + kind)), "demo", tmp_path / "few", limit=7, reporter=limited)
    assert limited.stages == [("tokenize", 7, "documents")]
    assert sum(limited.steps) == 7


def test_progress_over_parquet_goes_by_the_bytes_of_row_groups(tmp_path, monkeypatch):
    """Most rows are in the first group, most bytes in the second."""
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.setattr(encoding, "BATCH_DOCUMENTS", 50)
    digits = np.random.default_rng(1).integers(0, 10, (50, 2000))
    texts = [*["short"] * 450, *("".join(map(str, row)) for row in digits)]
    with parquet.ParquetWriter(tmp_path / "a.parquet", pa.schema({"text": pa.string()})) as writer:
        for part in (texts[:450], texts[450:]):
            writer.write_table(pa.table({"text": part}))
    heard = Amounts()
    tokenize(str(tmp_path / "a.parquet"), "demo", tmp_path / "store", reporter=heard)
    size = (tmp_path / "a.parquet").stat().st_size
    assert sum(heard.steps) == size
    assert max(heard.steps) > size * 0.9


def test_a_long_document_is_encoded_in_pieces(demo, tmp_path, monkeypatch):
    text = "".join(f"line {n} of a long text\n" for n in range(300))
    (tmp_path / "long.txt").write_text(text)
    monkeypatch.setattr(encoding, "PIECE_CHARACTERS", 1000)
    store = tokenize(open_corpus(str(tmp_path / "long.txt")), "demo", tmp_path / "s")
    assert ids(store) == expected(demo, [text])  # cut at lines' ends, where these ids break too

    (tmp_path / "line.txt").write_text("word " * 1000)  # no line ends: cut anywhere
    store = tokenize(open_corpus(str(tmp_path / "line.txt")), "demo", tmp_path / "t")
    assert demo.decode(next(store.documents())[:-1]) == "word " * 1000


def test_lone_surrogates_become_replacement_characters(demo, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800b \\ud83d\\ude00"}\n')
    store = tokenize(open_corpus(str(tmp_path / "a.jsonl")), "demo", tmp_path / "s")
    assert demo.decode(next(store.documents())[:-1]) == "a\ufffdb \U0001f600"


def test_a_finished_store_is_found_again(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = tokenize(corpus, "demo")
    assert store.path.parent.name == "artifacts"
    assert re.fullmatch(r"test_a_finished.+-demo-tokens-[0-9a-f]{8}", store.path.name)
    notes = []

    class Listening(Reporter):
        def note(self, text):
            notes.append(text)

    again = tokenize(corpus, "demo", reporter=Listening())
    assert (again.path, notes) == (store.path, [f"{store.path} is up to date"])
    assert tokenize(corpus, "demo", eos=False).path != store.path
    with pytest.raises(UsageError, match="exists"):
        tokenize(corpus, "demo", store.path, eos=False)


@pytest.mark.parametrize("happens", ["grows", "is removed", "is touched"])
def test_a_file_that_changes_while_it_is_read(corpus, tmp_path, monkeypatch, happens):
    monkeypatch.chdir(tmp_path)
    path, read, pinned = tmp_path / "part-1.jsonl", type(corpus).documents, corpus.record()

    def documents(self, at=BEGINNING):
        yield from read(self, at)
        if happens == "is removed":
            path.unlink()
        elif happens == "is touched":
            os.utime(path)
        else:
            path.write_text(path.read_text() + '{"text": "more"}\n')

    monkeypatch.setattr(type(corpus), "documents", documents)
    notes = Notes()
    store = tokenize(corpus, "demo", reporter=notes)
    assert store.manifest.counts["documents"] == len(TEXTS)
    if happens == "is touched":  # the same text
        assert store.manifest.corpus["sha256"] == pinned["sha256"]
        assert "changed" not in notes
        return
    assert "changed while it was read: the artifact has no checksum of its text" in notes
    assert "sha256" not in store.manifest.corpus
    assert store.manifest.corpus["id"] == pinned["id"]


def test_an_open_corpus_whose_files_changed_is_not_up_to_date(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = tokenize(corpus, "demo")
    (tmp_path / "part-0.jsonl").write_text('{"text": "other text"}\n')
    after = tokenize(corpus, "demo")
    assert after.manifest.counts["documents"] == before.manifest.counts["documents"] - 19
    assert after.manifest.corpus == {**open_corpus(str(tmp_path / "*.jsonl")).record(),
                                     "licenses": after.manifest.corpus["licenses"]}  # fmt: skip


def test_of_a_mixture_no_part_has_a_checksum_if_one_changed(corpus):
    mixed = open_corpus([corpus, "python-stdlib"]).record()
    parts = without_checksum(mixed)["mixed"]
    assert ["sha256" in part for part in mixed["mixed"]] == [True, True]
    assert ["sha256" in part for part in parts] == [False, False]


def test_a_damaged_store_is_replaced_with_force(corpus, tmp_path):
    store = tokenize(corpus, "demo", tmp_path / "s")
    whole, [shard] = digests(store), list(store.manifest.files)
    for damage in (b"", (store.path / shard).read_bytes()[:-1], None):
        if damage is None:
            (store.path / shard).unlink()
        else:
            (store.path / shard).write_bytes(damage)
        with pytest.raises(ArtifactError, match=shard) as caught:
            tokenize(corpus, "demo", store.path)
        assert caught.value.hint == "Replace it with force=True."
        assert digests(tokenize(corpus, "demo", store.path, force=True)) == whole


def test_a_build_returns_its_own_store_if_another_replaces_it_at_once(
    corpus, tmp_path, monkeypatch
):
    leave, out = builder.ArtifactWriter.__exit__, tmp_path / "store"

    def left(self, *error):
        leave(self, *error)
        if self.plan["parameters"]["eos"]:
            tokenize(corpus, "demo", out, eos=False, force=True)

    monkeypatch.setattr(builder.ArtifactWriter, "__exit__", left)
    store = tokenize(corpus, "demo", out, force=True)
    assert store.manifest.parameters["eos"] is True
    assert read_manifest(out).parameters["eos"] is False
    assert len(list(store.documents())) == len(TEXTS)


def test_a_build_replaces_its_own_damaged_tokens(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = tokenize(corpus, "demo")
    whole, [shard] = digests(store), list(store.manifest.files)
    (store.path / shard).write_bytes(b"")
    build_datastore(corpus, tmp_path / "d", model="demo")
    assert digests(store) == whole


def test_a_build_in_a_folder_that_cannot_be_written(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot write artifacts/.*: Permission denied") as caught:
        build_datastore(corpus, tmp_path / "d", model="demo")
    assert caught.value.hint == "Tokenize to another folder first and give it as tokens."


def test_a_build_whose_tokens_another_process_writes(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tokenize(corpus, "demo").path
    shutil.rmtree(path)
    with (
        ArtifactWriter(path, "tokens", {}),
        pytest.raises(InputError, match="another process is building") as caught,
    ):
        build_datastore(corpus, tmp_path / "d", model="demo")
    assert caught.value.hint.startswith("Wait for it, or tokenize to another folder")


def test_no_documents(tmp_path):
    (tmp_path / "none.jsonl").write_text("\n")
    corpus = open_corpus(str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="has no documents"):
        tokenize(corpus, "demo", tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none.jsonl"]


def test_a_vocabulary_above_16_bits_takes_32(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{n}": n for n in range(70_000)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "wide")
    (tmp_path / "a.txt").write_text("w1 w65535 w65536 w69999")
    store = tokenize(open_corpus(str(tmp_path / "a.txt")), str(tmp_path / "wide"), tmp_path / "s")
    assert store.shards[0].tokens.dtype == np.uint32
    assert ids(store) == [[1, 65535, 65536, 69999]]
