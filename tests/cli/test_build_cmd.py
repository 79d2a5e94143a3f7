"""`ngramkit build-datastore`: its JSON, and rows that cannot be read."""

import pytest
from command_lines import run_here

from ngramkit.formats.resumable_writer import ArtifactWriter

KEYS = {
    "command", "artifact", "seconds", "documents", "bad_records", "tokens", "bytes",
    "tokens_per_second", "peak_rss_bytes", "shards",
}  # fmt: skip


def run(*words):
    return run_here(["build-datastore", *map(str, words)])


def test_a_token_store_becomes_a_datastore(tmp_path, token_store):
    store = token_store([[1, 2, 3]] * 50, 20)
    words = ("--tokens", store.path, "--out", tmp_path / "d", "--shard-tokens", 100, "--json")
    done = run(*words)
    assert done.code == 0, done.err
    assert set(done.json) == KEYS
    assert [done.json[name] for name in ("documents", "tokens", "shards")] == [50, 150, 2]
    assert done.json["bytes"] == sum(p.stat().st_size for p in (tmp_path / "d").glob("shard-*"))
    again = run(*words)
    assert (again.code, "up to date" in again.err) == (0, True)
    assert done.json["tokens_per_second"] > 0
    assert again.json["tokens_per_second"] is None


def test_a_resumed_build_has_no_speed(tmp_path, token_store, monkeypatch):
    store = token_store([[1, 2, 3]] * 50, 20)
    words = ("--tokens", store.path, "--out", tmp_path / "d", "--shard-tokens", 100, "--workers", 1)
    record = ArtifactWriter.record

    def interrupted(writer, *shard, **facts):
        record(writer, *shard, **facts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactWriter, "record", interrupted)
        assert run(*words).code == 130
    resumed = run(*words, "--json")
    assert (resumed.code, resumed.json["tokens"]) == (0, 150)
    assert resumed.json["tokens_per_second"] is None


def test_a_broken_row_stops_a_build_or_is_skipped_and_counted(tmp_path):
    table = tmp_path / "answers.csv"
    table.write_text('id,answer\n1,"one\nline"\n2\n3,two words\n')
    words = ("--corpus", table, "--column", "answer", "--model", "demo", "--out", tmp_path / "d")
    stopped = run(*words)
    assert stopped.code == 3
    said = " ".join(stopped.err.split())
    assert "answers.csv, line 4 has 1 value for 2 columns" in said
    assert "Give --skip-bad to skip it." in said
    done = run(*words, "--skip-bad", "--json")
    assert done.code == 0, done.err
    assert "skipped 1 bad record; the first: " in " ".join(done.err.split())
    assert (done.json["documents"], done.json["bad_records"]) == (2, 1)
    card = (tmp_path / "d" / "README.md").read_text()
    assert "Records that could not be read were left out: 1." in card
    assert "--skip-bad" in card


def test_a_quoted_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a.txt").write_text("one two three")
    (tmp_path / "home" / "log.jsonl").write_text('{"prompt": "a b c", "output": " a b c"}')
    for line in (
        ["tokenize", "--corpus", "~/a.txt", "--out=~/tokens"],
        ["build-datastore", "--tokens=~/tokens", "--out=~/phrases"],
        ["export", "~/phrases", "--to", "jsonl", "--out=~/phrases.jsonl"],
        ["verify", "~/phrases"],
        ["replay", "--answers=~/log.jsonl", "--drafter", "context", "--model", "demo", "--out=~/r"],
    ):
        done = run_here(line)
        assert done.code == 0, done.err
    made = {path.name for path in (tmp_path / "home").iterdir()}
    assert made == {"a.txt", "log.jsonl", "tokens", "phrases", "phrases.jsonl", "r"}
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("option", ["--corpus", "--model"])
def test_a_tilde_of_nobody_is_part_of_a_name(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    given = {"--corpus": "a.txt", option: "~nobody-here/x.txt"}
    done = run_here(["tokenize", *(word for pair in given.items() for word in pair)])
    assert done.code in (2, 3)
    assert "bug in ngramkit" not in done.err
