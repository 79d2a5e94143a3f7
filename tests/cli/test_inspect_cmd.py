"""build-frozen, inspect and verify as a user runs them."""

from __future__ import annotations

import shutil

import ngramkit


def test_build_inspect_and_verify(ngramkit_cli, tmp_path):
    (tmp_path / "a.txt").write_text("def main(): return 1\n" * 20 + "x = 5 * 7 + 8\n")
    build = ["build-frozen", "--corpus", "a.txt", "--out", "f", "--json"]
    (tmp_path / "log.jsonl").write_text('{"prompt": "a", "output": "b"}\n')
    ngramkit.history_import(tmp_path / "log.jsonl", tmp_path / "past", model="demo")
    built, again, whole, asked, looked, unknown, usage, foreign, once, past = ngramkit_cli(
        build,
        build,
        ["verify", "f", "--json"],
        ["inspect", "f", "--query", "def", "--json"],
        ["inspect", "f", "--top", "2"],
        ["inspect", "absent"],
        ["build-frozen", "--corpus", "a.txt", "--leader-len", "9", "--out", "g"],
        ["inspect", "f", "--model", "absent-model"],
        ["inspect", "f", "--query", "x ="],
        ["inspect", "past"],
    )
    assert built.code == 0
    keys = [
        "documents",
        "bad_records",
        "tokens",
        "bytes",
        "tokens_per_second",
        "peak_rss_bytes",
        "leaders",
        "followers",
    ]
    assert list(built.json) == ["command", "artifact", "seconds", *keys]
    assert "up to date" in again.err
    assert whole.json["ok"] is True
    assert "table.safetensors: checksum" in whole.json["checks"]
    answer = asked.json["query"]
    assert answer["matches"] == 20
    assert answer["continuations"][0]["text"].startswith(" main")
    assert answer["continuations"][0]["shown"].startswith("' main")
    assert "20 matches" in looked.out
    assert unknown.code == 3
    assert "no such artifact" in unknown.err
    assert usage.code == 2
    assert not (tmp_path / "g").exists()
    assert foreign.code == 2
    assert "1 match\n" in once.out
    assert "`ngramkit history inspect` shows them" in past.out
    assert "bytes" not in past.out


def test_verify_stops_at_a_flipped_bit(ngramkit_cli, tmp_path):
    from pathlib import Path

    golden = Path(__file__).parents[1] / "golden" / "frozen-table"
    table = Path(shutil.copytree(golden, tmp_path / "f")) / "table.safetensors"
    body = bytearray(table.read_bytes())
    body[-1] ^= 1
    table.write_bytes(body)
    (found,) = ngramkit_cli(["verify", "f", "--json"])
    assert found.code == 3
    assert "checksum" in found.json["error"]
    assert "Traceback" not in found.err
