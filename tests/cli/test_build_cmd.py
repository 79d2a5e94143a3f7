import json

from typer.testing import CliRunner

from ngramkit_cli.main import app

KEYS = {
    "command", "artifact", "seconds", "documents", "bad_records", "tokens", "bytes",
    "tokens_per_second", "peak_rss_bytes", "shards",
}  # fmt: skip


def run(*words):
    done = CliRunner().invoke(app, ["build-datastore", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_a_token_store_becomes_a_datastore(tmp_path, token_store):
    store = token_store([[1, 2, 3]] * 50, 20)
    words = ("--tokens", store.path, "--out", tmp_path / "d", "--shard-tokens", 100, "--json")
    code, out, err = run(*words)
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert set(result) == KEYS
    assert (result["documents"], result["tokens"], result["shards"]) == (50, 150, 2)
    assert result["bytes"] == sum(p.stat().st_size for p in (tmp_path / "d").glob("shard-*"))
    code, _, err = run(*words)
    assert code == 0
    assert "up to date" in err


def test_a_broken_row_stops_a_build_or_is_skipped_and_counted(tmp_path):
    table = tmp_path / "answers.csv"
    table.write_text('id,answer\n1,"one\nline"\n2\n3,two words\n')
    words = ("--corpus", table, "--column", "answer", "--model", "demo", "--out", tmp_path / "d")
    code, _, err = run(*words)
    assert code == 3
    said = " ".join(err.split())
    assert "answers.csv, line 4 has 1 value for 2 columns" in said
    assert "--skip-bad goes on behind it" in said
    code, out, err = run(*words, "--skip-bad", "--json")
    assert code == 0, err
    assert "skipped 1 bad record; the first: " in " ".join(err.split())
    result = json.loads(out.splitlines()[-1])
    assert (result["documents"], result["bad_records"]) == (2, 1)
    card = (tmp_path / "d" / "README.md").read_text()
    assert "Records that could not be read were left out: 1." in card
    assert "--skip-bad" in card
