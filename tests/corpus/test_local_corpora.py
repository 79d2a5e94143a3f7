"""Files of every kind, compressed or not, and errors for files that cannot be read."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import feather
from reporters import Notes

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus

TEXTS = ["one\ntwo", "", "drei ä €", "四"]
PACK = {"": lambda raw: raw, ".gz": gzip.compress, ".zst": zstandard.compress}


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def table(kind):
    data = pa.table({"text": TEXTS, "n": [1, 2, 3, 4]})
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(data, sink, row_group_size=2)
    else:
        opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with opened(sink, data.schema) as writer:
            writer.write_table(data, max_chunksize=3)
    return sink.getvalue().to_pybytes()


KINDS = {
    "a.jsonl": lines({"text": text, "id": "x"} for text in TEXTS) + b"\n  \n",
    "a.json": json.dumps([{"content": text, "id": "x"} for text in TEXTS]).encode(),
    "b.json": json.dumps(TEXTS).encode(),
    "a.parquet": table("parquet"),
    "file.arrow": table("file"),
    "stream.arrow": table("stream"),
}


def texts(pattern, **options):
    return [document.text for document in open_corpus(str(pattern), **options).documents()]


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", KINDS)
def test_tables(tmp_path, name, packed):
    path = tmp_path / (name + packed)
    path.write_bytes(PACK[packed](KINDS[name]))
    assert texts(path) == TEXTS


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py"])
def test_a_text_file_is_one_document(tmp_path, name, packed):
    path = tmp_path / (name + packed)
    path.write_bytes(PACK[packed](b"\xef\xbb\xbffirst\r\nsecond \xc3\xa4\n"))
    assert texts(path) == ["first\nsecond ä\n"]


def test_a_zst_file_of_several_frames(tmp_path):
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(b"one " * 50_000) + zstandard.compress(b"two"))
    assert texts(path) == ["one " * 50_000 + "two"]


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("suffix", PACK)
def test_the_content_tells_whether_a_file_is_packed(tmp_path, packed, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACK[packed](KINDS["a.jsonl"]))
    assert texts(path) == TEXTS
    path.write_bytes(gzip.compress(PACK[packed](KINDS["a.jsonl"])))  # as servers do to packed files
    assert texts(path) == TEXTS


def test_a_zstd_dictionary_is_named(tmp_path):
    samples = [f'{{"text": "sample number {i} of the corpus"}}'.encode() for i in range(500)]
    packer = zstandard.ZstdCompressor(dict_data=zstandard.train_dictionary(2048, samples))
    (tmp_path / "a.jsonl.zst").write_bytes(packer.compress(samples[0]))
    with pytest.raises(InputError, match="dictionary") as failure:
        texts(tmp_path / "a.jsonl.zst")
    assert "fetch" not in failure.value.hint


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz", "a.ndjson"])
def test_json_is_lines_or_one_document_by_its_content(tmp_path, name):
    path = tmp_path / name
    for raw in (
        KINDS["a.jsonl"],
        KINDS["a.json"],
        json.dumps([{"text": t} for t in TEXTS], indent=1).encode(),
    ):
        path.write_bytes(b"\xef\xbb\xbf" + raw)
        assert texts(path) == TEXTS
    path.write_bytes(b'{"text": "cut\n{"text": "b"}\n{"text": "c"}\n')
    assert texts(path, skip_bad=True) == ["b", "c"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
@pytest.mark.parametrize("turns", [False, True])
def test_json_lines_after_a_long_one_are_read(tmp_path, name, turns):
    long = "x" * (3 << 20)
    records = [[{"role": "user", "content": t}] if turns else {"text": t} for t in (long, "b")]
    raw = lines(records)
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert texts(tmp_path / name, skip_bad=True) == [long, "b"]


def test_json_of_one_long_line_or_after_blank_lines_is_read(tmp_path):
    path, long = tmp_path / "a.jsonl", "x" * (1 << 20)
    path.write_text(json.dumps([{"text": long}, {"text": "b"}]))
    assert texts(path) == [long, "b"]
    path.write_text("\n" * (1 << 20) + '{"text": "a"}\n{"text": "b"}\n')
    assert texts(path) == ["a", "b"]


def test_a_source_is_read_in_the_encoding_it_declares(tmp_path):
    for source in (
        b"# -*- coding: latin-1 -*-\nx = '\xe4'\n",
        "# -*- coding: utf-8-unix -*-\nx = 'ä'\n".encode(),  # as Emacs writes it
        "x = 1\n# coding: latin-1\ny = 'ä'\n".encode(),  # behind code: it declares nothing
    ):
        (tmp_path / "a.py").write_bytes(source)
        (text,) = texts(tmp_path / "a.py")
        assert "'ä'" in text


def test_folders_and_globs_are_sorted(tmp_path):
    for name in ("b/z.txt", "b/a.txt", "a.txt", "a.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(tmp_path) == ["a.txt", "b/a.txt", "b/z.txt"]
    assert texts(tmp_path / "**" / "a.txt") == ["a.txt", "b/a.txt"]
    assert texts(tmp_path / "b/*.txt") == ["b/a.txt", "b/z.txt"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**", "abc"),
        ("**/", "abc"),
        ("b/**", "bc"),
        ("**/**", "abc"),
        ("*/**", "bc"),
        ("**.txt", "a"),
    ],
)
def test_any_place_of_two_stars(tmp_path, pattern, found):
    (tmp_path / "b" / "c").mkdir(parents=True)
    for path in ("a.txt", "b/b.txt", "b/c/c.txt"):
        (tmp_path / path).write_text(path[-5])
    assert texts(f"{tmp_path}/{pattern}") == list(found)


def test_hidden_files_are_left_out_of_folders_and_globs_and_counted(tmp_path):
    for name in ("a.txt", ".git/b.txt", "__MACOSX/c.txt", "sub/._d.txt", "e.png", ".f/g.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    notes = Notes()
    assert texts(tmp_path, reporter=notes) == ["a.txt"]
    assert "3 files (hidden)" in notes
    assert "1 file (of kinds that are not read)" in notes
    assert texts(tmp_path / "**" / "*.txt", reporter=notes) == ["a.txt"]
    assert texts(tmp_path / "sub" / "._*.txt") == ["sub/._d.txt"]  # it is asked for
    assert texts(tmp_path / ".git") == texts(f"{tmp_path}/.git/*.txt") == [".git/b.txt"]
    assert texts(f"file://{tmp_path}") == ["a.txt"]


def test_pipes_sockets_and_links_of_a_folder_are_counted(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    (folder / "below").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").symlink_to(folder / "a.txt")  # a file's link is read
    (folder / "c.txt").symlink_to(folder / "missing.txt")
    (folder / "d").symlink_to(folder / "below")
    os.mkfifo(folder / "e.jsonl")
    monkeypatch.chdir(folder)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("below/f.txt")
        notes, of_glob = Notes(), Notes()
        assert texts(folder, reporter=notes) == ["a", "a"]
        assert texts(f"{folder}/**/*.*", reporter=of_glob) == ["a", "a"]
    assert "2 files (links that do not lead to a file)" in notes
    assert "1 file (links that do not lead to a file)" in of_glob  # the other is to a folder
    assert "2 files (pipes, sockets or devices)" in notes
    assert "2 files (pipes, sockets or devices)" in of_glob


def test_folders_that_cannot_be_read_are_counted(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")
    for name in ("b", ".hidden"):
        (tmp_path / name).mkdir()
    listed = os.scandir

    def scandir(path):  # tests may run as root, who can read any folder
        if Path(path).name in ("b", ".hidden"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    access = os.access
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(
        os, "access", lambda path, mode: path.name not in ("b", ".hidden") and access(path, mode)
    )
    for place in (tmp_path, f"{tmp_path}/**/*.txt", f"{tmp_path}/**"):
        notes = Notes()
        assert texts(place, reporter=notes) == ["a"]
        assert "1 folder (unreadable)" in notes
    assert texts(f"{tmp_path}/*.txt", reporter=Notes()) == ["a"]


def test_a_glob_skips_files_of_a_folder_that_can_be_listed_but_not_entered(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    stat, access = os.stat, os.access

    def refusing(path, **how):
        if Path(path).parent == tmp_path / "b":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", refusing)
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != tmp_path / "b" and access(path, mode)
    )
    for glob in ("*/x.txt", "*/*.txt", "**/*.txt"):
        notes = Notes()
        assert texts(f"{tmp_path}/{glob}", reporter=notes) == ["a"]
        assert "1 folder (unreadable)" in notes


def test_a_dataset_in_a_folder_is_read_without_what_describes_it(tmp_path):
    (tmp_path / "a.arrow").write_bytes(KINDS["stream.arrow"])
    for name in ("dataset_info.json", "state.json", "dataset_infos.json", "dataset_dict.json"):
        (tmp_path / name).write_text('{"citation": "", "license": ""}')
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# A card\n")
    notes = Notes()
    assert texts(tmp_path, reporter=notes) == TEXTS
    assert "5 files (about the dataset)" in notes
    (tmp_path / "README.md").write_text("# Notes\n")  # an ordinary text
    assert texts(tmp_path) == ["# Notes\n", *TEXTS]


def test_a_changed_file_is_noticed_a_moved_folder_is_not(tmp_path):
    for folder in ("here/texts", "there/texts"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("a")
        (tmp_path / folder / "b.txt").write_text("b")
    first = open_corpus(str(tmp_path / "here/texts/*.txt")).record()
    assert first["id"] == "texts/*.txt"
    assert open_corpus(str(tmp_path / "there/texts/*.txt")).record() == first
    (tmp_path / "here/texts/a.txt").write_text("changed")
    assert open_corpus(str(tmp_path / "here/texts/*.txt")).record() != first


def test_turns_and_columns(tmp_path):
    path = tmp_path / "chats.jsonl"
    chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    path.write_bytes(lines([{"messages": chat, "data": ["a", "b"], "title": "t"}]))
    assert texts(path) == ["Hi.", "Hello!"]  # a conversation under its usual name
    assert texts(path, column="title") == ["t"]
    assert texts(path, column="data", join_turns=True) == ["a\n\nb"]


CHAT = [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello!"}]
ASKED = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "held"])
@pytest.mark.parametrize(
    "record", [{"id": "1", "conversations": CHAT}, {"source": "a", "messages": ASKED}]
)
def test_a_conversation_is_read_rather_than_its_id(tmp_path, name, record):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([record]), path)
    else:
        path.write_bytes(lines([record]) if name == "a.jsonl" else json.dumps([record]).encode())
    corpus = open_corpus([record]) if name == "held" else open_corpus(path)
    assert [document.text for document in corpus.documents()] == ["Hi.", "Hello!"]


def test_a_conversation_may_be_the_record_itself(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([CHAT]))
    assert texts(tmp_path / "a.json") == ["Hi.", "Hello!"]
    (joined,) = open_corpus([CHAT], join_turns=True).documents()
    assert joined.text == "Hi.\n\nHello!"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_document_may_be_one_conversation(tmp_path, name):
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    (tmp_path / name).write_text(json.dumps([*ASKED, call]))
    asked, answer, called = texts(tmp_path / name)
    assert (asked, answer) == ("Hi.", "Hello!")
    assert '"name": "f"' in called
    assert texts(tmp_path / name, join_turns=True) == [f"Hi.\n\nHello!\n\n{called}"]
    assert texts(tmp_path / name, column="content") == ["Hi.", "Hello!", ""]
    (tmp_path / name).write_text('[{"from": "a@b.c", "content": "c", "text": "t"}]')
    assert texts(tmp_path / name) == ["t"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow", "held"])
def test_a_conversation_may_be_json_in_a_text(tmp_path, kind):
    cells = [json.dumps(CHAT), " " + json.dumps([None, *ASKED]), "plain", '["a", "b"]', "[1", "[]"]
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_bytes(lines({"messages": cell} for cell in cells))
    elif kind == "csv":
        quoted = ('"' + cell.replace('"', '""') + '"\n' for cell in cells)
        path.write_text("messages\n" + "".join(quoted))
    elif kind == "parquet":
        pq.write_table(pa.table({"messages": cells}), path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, pa.schema({"messages": pa.string()})) as writer:
            writer.write_table(pa.table({"messages": cells}))
    corpus = open_corpus([{"messages": c} for c in cells] if kind == "held" else str(path))
    read = [document.text for document in corpus.documents()]
    assert read == ["Hi.", "Hello!", "", "Hi.", "Hello!", *cells[2:]]


def test_json_in_a_column_of_plain_text_is_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines([{"content": json.dumps(CHAT)}]))
    assert texts(path) == [json.dumps(CHAT)]


def test_turns_without_text_and_in_parts(tmp_path):
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        None,
    ]
    (tmp_path / "a.jsonl").write_bytes(lines([{"messages": turns}]))
    first, second, call, last = texts(tmp_path / "a.jsonl")
    assert (first, second, last) == ("ab", "", "")
    assert '"name": "f"' in call


UNCLEAR = {
    "null": ([{"url": "u", "body": None}, {"url": "v", "body": "b"}], "body", ["", "b"]),
    "late": ([{"url": "u"}] * 3 + [{"url": "v", "body": "b"}], "url", ["u", "u", "u", "v"]),
    "wrapped": (
        [{"version": "1", "data": [{"text": "a"}, {"text": "b"}]}],
        "data.text",
        ["a", "b"],
    ),
    "inside": (
        [{"id": "1", "meta": {"text": "a"}}, {"id": "2", "meta": None}],
        "meta.text",
        ["a", ""],
    ),
    "several": ([{"instruction": "i", "output": "o"}], "output", ["o"]),
    "pair": ([{"chosen": CHAT, "rejected": CHAT}], "chosen", ["Hi.", "Hello!"]),
    "parts": ([{"id": "1", "data": ["a", "b"]}], "data", ["a", "b"]),
}


@pytest.mark.parametrize("name", UNCLEAR)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "held"])
def test_an_unclear_column_is_asked_for_and_can_be_given(tmp_path, name, kind):
    records, column, expected = UNCLEAR[name]
    path = tmp_path / f"a.{kind}"
    path.write_bytes(lines(records))
    if kind == "parquet":
        names = dict.fromkeys(key for record in records for key in record)
        pq.write_table(pa.table({n: [r.get(n) for r in records] for n in names}), path)
    corpus = records if kind == "held" else path
    read = partial(open_corpus, corpus)
    with pytest.raises(InputError, match="among the columns") as failure:
        list(read().documents())
    assert column in failure.value.hint
    assert [document.text for document in read(column=column).documents()] == expected


def test_the_first_record_alone_does_not_decide_the_column(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines([{"url": "u"}, {"url": "v", "text": "b"}, {"text": None, "url": "w"}]))
    with pytest.raises(InputError, match="line 1: it has no 'text'"):
        texts(path)
    assert texts(path, skip_bad=True) == ["b", ""]


def test_licences_and_repositories_of_later_records_count(tmp_path):
    path, excluded = tmp_path / "a.jsonl", tmp_path / "excluded.txt"
    excluded.write_text("a/b\n")
    repositories = [{}, {"repo": "a/b"}, {"repo_name": None, "repo": "A/B"}, {"repo": 42}]
    licenses = [{}, {"license": "mit"}, {"licenses": ["mit"]}, {"license": True}]
    rows = zip("wxyz", repositories, licenses, strict=True)
    path.write_bytes(lines({"text": t, **repo, **licence} for t, repo, licence in rows))
    assert texts(path, exclude=excluded) == ["w", "z"]
    assert texts(path, licenses=["mit"]) == ["x", "y"]


def test_licences_and_repositories_are_found(tmp_path):
    path = tmp_path / "code.jsonl"
    path.write_bytes(lines([{"content": "x", "license": "MIT", "repo_name": "a/b"}]))
    (document,) = open_corpus(str(path)).documents()
    assert (document.licenses, document.repository) == (("MIT",), "a/b")


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"test": "b"}\n', r"a\.jsonl, line 2: it has no 'text'"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": 5}\n',
            r"a\.jsonl, line 2: it must be a text, got int",
        ),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"a\.jsonl, line 2: not UTF-8"),
        ("a.jsonl", b'{"x": "a", "y": "b"}\n', "among the columns"),
        ("a.json", b"[1, 2]", r"a\.json, record 0 must be a text or an object, got int"),
        ("a.txt", b"ab\xff", r"a\.txt as utf-8: byte 2"),
        ("a.txt", "words".encode("utf-16"), r"a\.txt must be UTF-8 text, got UTF-16"),
        ("a.txt", "words".encode("utf-16-le"), r"a\.txt must be UTF-8 text, got binary data"),
        ("a.jsonl", b'{"text": "a\xff\0"}', r"a\.jsonl, line 1: it holds zero bytes"),
        ("a.py", b"# coding: klingon\n", "klingon"),
        ("a.parquet", b"PAR1 not really", r"a\.parquet is damaged"),
        ("a.arrow", b"ARROW1 not really", r"a\.arrow is damaged"),
        ("a.txt.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], r"a\.txt\.gz is damaged"),
        ("a.txt.zst", zstandard.compress(b"text" * 99)[:-1], r"a\.txt\.zst is damaged"),
        ("a.jsonl.zst", b"", r"a\.jsonl\.zst is damaged"),
        ("a.jsonl", b"\xfd7zXZ\0", r"a\.jsonl: it is compressed as xz"),
        ("a.csv.gz", b"BZh91AY&SY", r"a\.csv\.gz: it is compressed as bzip2"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16"), r"a\.jsonl must be UTF-8, got UTF-16"),
        ("a.csv", "text\na\n".encode("utf-16"), r"a\.csv must be UTF-8, got UTF-16"),
        ("a.bin", b"", "its kind of file is not supported"),
    ],
)
def test_errors_name_the_unreadable_file(tmp_path, name, raw, said):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError, match=said):
        texts(tmp_path / name)


def test_a_missing_column(tmp_path):
    (tmp_path / "a.parquet").write_bytes(KINDS["a.parquet"])
    with pytest.raises(InputError, match="unknown column 'words'") as caught:
        texts(tmp_path / "a.parquet", column="words")
    assert caught.value.hint == "Choose one of its columns: text, n."


def test_a_column_of_texts_is_refused_and_one_among_records_costs_only_itself(tmp_path):
    (tmp_path / "texts.json").write_text('["a", "b"]')
    with pytest.raises(InputError, match=r"record 0 must be an object with columns, got str") as no:
        texts(tmp_path / "texts.json", column="x")
    assert "Or leave out column." in no.value.hint
    lines = ['"not a record"', '{"x": "a", "y": "b"}', '{"x": "c", "y": "d"}']
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    assert texts(tmp_path / "lines.jsonl", column="x", skip_bad=True) == ["a", "c"]


def test_a_column_of_plain_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    for corpus in (tmp_path / "a.txt", tmp_path, f"file://{tmp_path}/a.txt", f"{tmp_path}/*.txt"):
        with pytest.raises(UsageError, match="plain text has no columns"):
            open_corpus(corpus, column="body")
    (tmp_path / "b.jsonl").write_bytes(lines([{"body": "b", "text": "c"}]))
    assert texts(tmp_path, column="body") == ["a", "b"]


def test_an_unknown_corpus():
    with pytest.raises(UsageError, match="Did you mean openwebtext"):
        open_corpus("openwebtex")
    with pytest.raises(InputError, match="no file matches"):
        open_corpus("nowhere/*.txt")
    with pytest.raises(UsageError, match="revision"):
        open_corpus("python-stdlib", revision="main")
    with pytest.raises(InputError, match="unknown split 'test'"):
        open_corpus("python-stdlib", split="test")


def test_the_standard_library_and_its_held_out_tenth():
    train, held, everything = (
        open_corpus("python-stdlib", split=split).source.names
        for split in ("train", "held-out", "all")
    )
    assert sorted([*train, *held]) == list(everything)
    assert 0.05 < len(held) / len(everything) < 0.15
    assert open_corpus("python-stdlib").source.names == train


# Tables of text, and bad records.

CSV = 'id,text,license\r\n1,"one\n\ntwo ""2""",mit\r\n\r\n2,,gpl\n3,"drei ä €",\n4,四,mit\n'


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_separated_values(tmp_path, name, separator, packed):
    path = tmp_path / (name + packed)
    path.write_bytes(PACK[packed](b"\xef\xbb\xbf" + CSV.replace(",", separator).encode()))
    assert texts(path) == ['one\n\ntwo "2"', "", "drei ä €", "四"]
    assert texts(path, licenses=["mit"]) == ['one\n\ntwo "2"', "四"]
    assert texts(path, column="id") == ["1", "2", "3", "4"]


def test_separated_values_without_a_clear_column_or_any_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="among the columns") as failure:
        texts(path)
    assert "column, one of a, b" in failure.value.hint
    path.write_text("text,text\n1,2\n")
    with pytest.raises(InputError, match="several columns 'text'"):
        texts(path)
    for empty in ("", "text\n"):
        path.write_text(empty)
        assert texts(path) == []


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_two_columns_of_one_name_in_a_table(tmp_path, kind):
    table = pa.table([["a b"], ["c d"]], names=["text", "text"])
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path, compression="uncompressed")
    for source in (str(path), table):
        with pytest.raises(InputError, match="several columns 'text'"):
            list(open_corpus(source).documents())


STRAY = (
    'id\ttext\n1\t"Start\n2\tmiddle\n3\tend"\n4\t"a" b\n5\t"q ""r"""\n6\t"two\nlines"\n7\t"open\n'
)


def test_a_line_of_a_tsv_that_has_all_values_is_a_row(tmp_path):
    (tmp_path / "a.tsv").write_text(STRAY)
    read = ['"Start', "middle", 'end"', '"a" b', 'q "r"', "two\nlines", '"open']
    assert texts(tmp_path / "a.tsv") == read


def test_a_line_of_a_tsv_with_a_separator_in_quotes_is_a_row(tmp_path):
    (tmp_path / "a.tsv").write_text('a\tb\ttext\n"1\t2"\tx\n3\t4\t"y\tz"\n5\t6\n')
    corpus = open_corpus(tmp_path / "a.tsv", skip_bad=True)
    assert [document.text for document in corpus.documents()] == ["x", "y\tz"]
    assert "line 4 has 2 values for 3 columns" in corpus.skipped.first


def test_the_size_that_ends_an_open_quote_is_recorded(tmp_path):
    (tmp_path / "a.csv").write_text('text\n"a\n' + "l\n" * 50 + '"\nb\n')
    whole, cut = (open_corpus(tmp_path / "a.csv", skip_bad=True, max_document=n) for n in (99, 200))
    assert len(texts(tmp_path / "a.csv", skip_bad=True, max_document=99)) == 51
    assert len(texts(tmp_path / "a.csv", skip_bad=True, max_document=200)) == 2
    assert whole.record() != cut.record()


def test_an_open_quote_costs_one_record(tmp_path):
    (tmp_path / "a.csv").write_text(
        'id,text\n1,"open\n' + "2,b\n" * 50 + '3,"x"y\n4,c\n5,"end\n6,d\n'
    )
    corpus = open_corpus(tmp_path / "a.csv", skip_bad=True)
    assert [document.text for document in corpus.documents()] == ["b"] * 50 + ["c", "d"]
    assert corpus.skipped.counts.bad == 3
    assert "line 2" in corpus.skipped.first


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_tells_the_separator(tmp_path, name, separator):
    path = tmp_path / name
    path.write_text(CSV.replace(",", separator))
    assert texts(path) == ['one\n\ntwo "2"', "", "drei ä €", "四"]
    path.write_text(f"sep={separator}\r\n" + CSV.replace(",", separator))  # as Excel wants it
    assert texts(path, licenses=["gpl"]) == [""]
    path.write_text("text\na; b\nc | d\n")
    assert texts(path) == ["a; b", "c | d"]


def test_a_row_of_any_size_is_read_and_a_larger_one_than_allowed_is_not(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text\n"' + "word\n" * 60_000 + '"\n')  # more than csv's own limit
    assert len(texts(path)[0]) == 300_000
    with pytest.raises(InputError, match=r"a\.csv, line 2: a document of more than 1,000 bytes"):
        list(open_corpus(str(path), max_document=1000).documents())


# file: (content, the documents that are good, what is said of the first bad record, how many are)
BAD = {
    "a.jsonl": (
        b'{"text": "a"}\n{"text": \n\n{"test": "b"}\n{"text": 5}\n{"text": "\xff"}\n'
        b'{"text": "c"}\n',
        ["a", "c"],
        "line 2: not JSON",
        4,
    ),
    "first.jsonl": (b'3\n{"x": 1\n{"text": "c"}\n', ["c"], "line 1 must be", 2),
    "a.json": (b'[{"text": "a"}, {"test": "b"}, 5]', ["a"], "record 1: it has no 'text'", 2),
    "b.json": (b'[{"text": "a"}', [], "not JSON", 1),
    "a.csv": (
        b'id,text\n1,a\n2\n3,b,c\n4,"x"y\n5,\xff\n6,"d\ne"\n7,"f',
        ["a", "d\ne"],
        "line 3 has 1 value for 2 columns",
        5,
    ),
    "a.txt": (b"ab\xff", [], "as utf-8", 1),
    "a.py": (b"# coding: klingon\n", [], "klingon", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_an_error_that_says_how_to_go_on(tmp_path, name):
    raw, good, said, bad = BAD[name]
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError, match=said) as failure:
        texts(tmp_path / name)
    assert name in str(failure.value)
    assert "skip_bad=True" in failure.value.hint
    corpus = open_corpus(str(tmp_path / name), skip_bad=True)
    assert [document.text for document in corpus.documents()] == good
    assert corpus.skipped.counts.bad == bad
    assert said in corpus.skipped.first


def test_bad_records_of_a_folder_are_counted_wherever_reading_begins(tmp_path):
    for name, (raw, *_) in BAD.items():
        (tmp_path / name).write_bytes(raw)
    corpus = open_corpus(str(tmp_path), skip_bad=True)
    whole = list(corpus.documents())
    count = corpus.skipped.counts.bad
    assert count == sum(bad for *_, bad in BAD.values())
    for document in whole:
        assert list(corpus.documents(document.end)) == whole[document.end.kept :]
        assert corpus.skipped.counts.bad == count


def test_a_misspelt_column_is_not_taken_for_bad_records(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "a.jsonl").write_text('{"x": "a", "y": "b"}\n')
    with pytest.raises(InputError, match="unknown column 'txt'"):
        texts(tmp_path / "a.csv", column="txt", skip_bad=True)
    with pytest.raises(InputError, match="among the columns"):
        texts(tmp_path / "a.jsonl", skip_bad=True)
    with pytest.raises(InputError, match="only 1 bad record"):
        tokenize(tmp_path / "a.jsonl", "demo", tmp_path / "t", column="txt", skip_bad=True)


def test_the_manifest_counts_bad_records_and_the_plan_knows_of_the_option(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(BAD["a.jsonl"][0])
    (tmp_path / "b.jsonl").write_bytes(b"{\n" + lines([{"text": "b"}]))
    skipping = {"skip_bad": True}
    store = tokenize(tmp_path / "*.jsonl", "demo", tmp_path / "t", **skipping)
    assert store.manifest.corpus["bad_records"] == 5
    assert store.manifest.corpus["skip_bad"] is True
    assert store.manifest.counts["documents"] == 3
    mixed = tokenize(
        [tmp_path / "a.jsonl", (tmp_path / "b.jsonl", 1.0)], "demo", tmp_path / "m", **skipping
    )
    assert mixed.manifest.corpus["bad_records"] == 5
    limited = tokenize(tmp_path / "*.jsonl", "demo", tmp_path / "l", limit=2, **skipping)
    assert limited.manifest.corpus["bad_records"] == 4  # what stands before the last document
