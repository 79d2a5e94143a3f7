"""`ngramkit forecast`, as an operator runs it: a log in, a sentence out."""

from __future__ import annotations

import json

import ngramkit

TEXT = "    return self.name, self.value\n" * 4


def test_a_log_is_forecast_and_drawn(ngramkit_cli, tmp_path):
    rows = [
        {
            "category": "$5 to $9",
            "custom_id": str(i),
            "response": {"status_code": 200, "body": {"choices": [{"text": TEXT * (1 + i % 2)}]}},
            "error": None,
        }
        for i in range(6)
    ]
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "profile.json").write_text("{}")
    ngramkit.build_datastore("python-stdlib", tmp_path / "artifacts/d", model="demo", limit=5)
    options = ["--model", "demo", "--concurrency", "2"]
    told, costly, wrong, none, many, spoilt = ngramkit_cli(
        ["forecast", "out.jsonl", *options, "--budget", "4,8", "--plot", "warm.png"],
        ["forecast", "out.jsonl", *options, "--pass-cost", "4", "--no-store", "--json"],
        ["forecast", "out.jsonl", *options, "--budget", "x"],
        ["forecast", "out.jsonl", *options, "--pass-cost", "nowhere"],
        ["forecast", "out.jsonl", *options, "--pass-cost", "10"],
        ["forecast", "out.jsonl", *options, "--pass-cost", "profile.json"],
    )
    assert told.code == 0, told.err
    shown = " ".join(told.out.split())
    assert "6 requests" in shown
    assert "by kind of request" in shown
    assert "With drafts of at most" in shown.rpartition("tokens/step from")[2]
    assert "a pass of 9 tokens costs 1.06 times" in shown
    assert (tmp_path / "warm.png").read_bytes().startswith(b"\x89PNG")
    assert costly.json["pass_cost"] == 4
    assert costly.json["results"][0]["requests"] == 6
    assert costly.json["results"][0]["time_share"] > costly.json["results"][0]["passes_share"]
    assert (wrong.code, none.code, many.code, spoilt.code) == (2, 3, 2, 3)
    assert "like 8,16" in wrong.err
    assert "nowhere" in none.err
    assert "--pass-cost must be" in many.err
    assert "profile" in spoilt.err
