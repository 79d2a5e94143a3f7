"""`ngramkit history`, `decode --history` and `bench`, as a user runs them, over the demo model."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np

import ngramkit
from ngramkit.basics.models import resolve_model
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.history import LOG, History
from ngramkit.formats.tokenizer_record import TokenizerRecord

BENCH_KEYS = {
    "spec_bench",
    "drafter", "tokens", "passes", "tokens_per_step", "tokens_per_second", "speedup",
    "speedup_low", "speedup_high", "identical", "by_category", "draft_seconds", "verify_seconds",
    "seconds", "accepted_lengths", "differing", "near_ties", "drafted", "speedup_interval",
    "learns", "tokens_per_step_low", "tokens_per_step_high", "tokens_per_step_interval",
}  # fmt: skip
DECODE = [
    "decode",
    "--drafter",
    "ssd",
    "--prompt",
    "def main(self):\n",
    "--max-new-tokens",
    "24",
    "--budget",
    "16",
]


def test_requests_are_remembered_across_commands(ngramkit_cli, tmp_path):
    first, second, forgotten, compared, inspected, shown, verified, trimmed, merged, told = (
        ngramkit_cli(
            [*DECODE, "--history", "past", "--json"],
            [*DECODE, "--history", "past", "--json"],
            [*DECODE, "--history", "past", "--no-store", "--history-tokens", "1000", "--json"],
            [*DECODE, "--history", "past", "--no-store", "--compare", "--json"],
            ["history", "inspect", "past", "--last", "1", "--json"],
            ["history", "inspect", "past", "--last", "1"],
            ["verify", "past", "--json"],
            ["history", "trim", "past", "--tokens", "35", "--json"],
            ["history", "merge", "past", "past", "--out", "both", "--json"],
            ["history", "merge", "past", "past", "--out", "again", "-q"],
        )
    )
    assert (first.code, second.code, forgotten.code) == (0, 0, 0), first.err
    assert first.json["token_ids"] == second.json["token_ids"] == forgotten.json["token_ids"]
    assert second.json["passes"] <= math.ceil(first.json["passes"] / 3)
    assert forgotten.json["passes"] == second.json["passes"]
    assert compared.json["identical"]
    asked = first.json["prompt_tokens"] + first.json["new_tokens"]
    assert inspected.json["requests"] == 2
    assert inspected.json["tokens"] == 2 * asked
    assert repr("def main(self):\n") in shown.out
    assert verified.json["ok"]
    assert trimmed.json["dropped"] == 1
    assert trimmed.json["tokens"] == asked
    assert (merged.json["requests"], merged.json["dropped"]) == (1, 1)  # itself twice
    assert "1 copy dropped" in told.out, "a result is printed under -q too"
    assert told.err == ""
    assert History.open(tmp_path / "both").tokenizer == load_tokenizer("demo").record


def test_a_prompt_that_was_not_remembered_is_said(ngramkit_cli, tmp_path):
    tokenizer = load_tokenizer("demo")
    History.at(tmp_path / "past", tokenizer.record).append(tokenizer.encode("an answer"), 0)
    (shown,) = ngramkit_cli(["history", "inspect", "past", "--last", "1"])
    assert "> (its prompt was not remembered)\n< 'an answer'" in shown.out


def test_requests_are_forgotten_by_what_they_say(ngramkit_cli, tmp_path):
    tokenizer = load_tokenizer("demo")
    past = History.at(tmp_path / "past", tokenizer.record)
    for text in ("mail jane@example.org", "an answer", "ask jane@example.org again"):
        past.append(tokenizer.encode(text), 0)
    log = tmp_path / "past" / LOG
    log.write_bytes(log.read_bytes() + b"damage of somebody's text")
    (tmp_path / "all.partial").mkdir()  # as a merge leaves it that was killed
    (tmp_path / "all.partial" / LOG).write_bytes(log.read_bytes())
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "manifest.json").write_text("{}")
    some, none, unsaid, rest = ngramkit_cli(
        ["history", "forget", "past", "--text", "jane@example.org", "--json"],
        ["history", "forget", "past", "--text", "jane@example.org", "--json"],
        ["history", "forget", "past"],
        ["history", "forget", "past", "--everything", "--yes", "--json"],
    )
    assert (some.json["dropped"], some.json["requests"], none.json["dropped"]) == (2, 1, 0)
    assert (unsaid.code, rest.json["dropped"], rest.json["requests"]) == (2, 1, 0)
    assert (some.json["damaged_bytes"], none.json["damaged_bytes"]) == (25, 0)
    assert past.news()[0] == []
    assert [path.name for path in tmp_path.glob("*.partial*")] == ["other.partial"]
    left = b"".join(file.read_bytes() for file in (tmp_path / "past").iterdir())
    assert b"somebody" not in left
    assert log.stat().st_size == 16


def test_a_history_without_its_tokenizer_is_read_by_another_copy(ngramkit_cli, tmp_path):
    """An engine that shows no tokenizer, as llama-cpp-python, and a model's folder that moved."""
    tokenizer = load_tokenizer("demo")
    records = {
        "engine": TokenizerRecord.unknown(5000),
        "moved": replace(tokenizer.record, id="./moved"),
    }
    for name, record in records.items():
        past = History.at(tmp_path / name, record)
        for text in ("mail jane@example.org", "an answer"):
            past.append(tokenizer.encode(text), 0)
        forget = ["history", "forget", name, "--text", "jane@example.org"]
        refused, unread, shown, forgotten = ngramkit_cli(
            forget,
            ["history", "inspect", name, "--last", "1"],
            ["history", "inspect", name, "--last", "1", "--model", "demo"],
            [*forget, "--model", "demo", "--json"],
        )
        for each in (refused, unread):
            assert each.code != 0
            assert "Give --model." in each.err
        assert "< 'an answer'" in shown.out
        assert (forgotten.json["dropped"], forgotten.json["requests"]) == (1, 1)
    wide = History.at(tmp_path / "wide", TokenizerRecord.unknown(5000))
    wide.append(np.array([4999], np.int32), 0)
    narrow = History.at(tmp_path / "narrow", TokenizerRecord.unknown(4000))
    narrow.append(tokenizer.encode("mail jane@example.org"), 0)
    other = replace(tokenizer.record, fingerprint="0" * 64, encodes=None)
    History.at(tmp_path / "other", other).append(tokenizer.encode("an answer"), 0)
    lacking, more, differing = ngramkit_cli(
        ["history", "inspect", "wide", "--last", "1", "--model", "demo"],
        ["history", "forget", "narrow", "--text", "jane", "--model", "demo"],
        ["history", "forget", "other", "--text", "jane", "--model", "demo"],
    )
    for refused in (lacking, more):
        assert "Give the --model that wrote it." in refused.err
    assert "Give the --model whose tokenizer it has." in differing.err
    assert len(narrow.read().requests) == 1


def test_a_history_of_an_unknown_tokenizer_fits_one_with_as_many_ids(ngramkit_cli, tmp_path):
    tokenizer = load_tokenizer("demo")
    record = tokenizer.record
    records = {
        "engine": TokenizerRecord.unknown(record.vocabulary),
        "known": record,
        "other": replace(record, fingerprint="0" * 64, encodes=None),
        "wide": TokenizerRecord.unknown(5000),
    }
    for name, each in records.items():
        History.at(tmp_path / name, each).append(tokenizer.encode(f"an answer of {name}"), 0)
    (tmp_path / "a.jsonl").write_text('{"prompt": "q", "output": "an answer"}\n')
    import_ = ["history", "import", "a.jsonl", "--json", "--out"]
    added, unsaid, refused, merged, differing, decoded = ngramkit_cli(
        [*import_, "engine", "--model", "demo"],
        [*import_, "engine"],
        [*import_, "wide", "--model", "demo"],
        ["history", "merge", "engine", "known", "--out", "both", "--json"],
        ["history", "merge", "engine", "known", "other", "--out", "three"],
        [*DECODE, "--history", "engine", "--model", "demo", "--json"],
    )
    assert added.json["requests"] == 2
    assert "Give --model." in unsaid.err
    assert "Name another folder" in refused.err
    assert merged.json["requests"] == 3
    assert History.open(tmp_path / "both").tokenizer == record
    assert "cannot use" in differing.err
    assert decoded.code == 0


def test_history_commands_refuse_what_is_none(ngramkit_cli, tmp_path):
    record = load_tokenizer("demo").record
    good = History.at(tmp_path / "good", record)
    good.append(np.array([1, 2, 3], np.int32), 1)
    bad = History.at(tmp_path / "bad", record)
    (bad.path / LOG).write_bytes(b"")
    torn = History.at(tmp_path / "torn", record)
    (torn.path / LOG).write_bytes((good.path / LOG).read_bytes() + b"damage")
    missing, damaged, exists, elsewhere, merged = ngramkit_cli(
        ["history", "inspect", "nothing", "--json"],
        ["verify", "bad"],
        ["history", "merge", "good", "--out", "bad"],
        [*DECODE, "--history", "good/requests.log"],
        ["history", "merge", "good", "torn", "--out", "all"],
    )
    assert (missing.code, damaged.code, exists.code, elsewhere.code) == (3, 3, 2, 3)
    assert merged.code == 3
    assert "torn" in merged.err
    assert "no such history: nothing" in missing.json["error"]
    assert "is damaged" in damaged.err
    assert "exists" in exists.err
    assert "is not a history" in elsewhere.err


def test_usage_errors_in_json_name_the_whole_command(ngramkit_cli):
    none, missing, wrong = ngramkit_cli(
        ["history", "trim", "past", "--json"],
        ["history", "import", "--out", "past", "--json"],
        ["history", "inspect", "past", "--last", "x", "--json"],
    )
    assert {each.code for each in (none, missing, wrong)} == {2}
    names = [each.json["command"] for each in (none, missing, wrong)]
    assert names == ["history trim", "history import", "history inspect"]


def test_an_import_refuses_another_models_history_before_it_reads_the_log(ngramkit_cli, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a", "output": "b"}\n')
    record = load_tokenizer("demo").record
    History.at(tmp_path / "past", replace(record, encodes=None, fingerprint="0" * 64))
    (refused,) = ngramkit_cli(
        ["history", "import", "log.jsonl", "--out", "past", "--model", "demo"]
    )
    assert refused.code == 3
    assert "Name another folder" in refused.err
    assert "log:" not in refused.err


def test_logs_become_a_history(ngramkit_cli, tmp_path):
    text = "    return self.name\n" * 4
    rows = [{"prompt": "def main(self):\n", "output": text, "step": n} for n in range(3)]
    for n, row in enumerate(rows):
        (tmp_path / f"{n}.jsonl").write_text(json.dumps(row))
    named = ["--model", "demo", "--out", "past"]
    first, more, _, empty, other = ngramkit_cli(
        ["history", "import", "0.jsonl", "1.jsonl", *named, "--json"],
        ["history", "import", "2.jsonl", "--out", "past", "--tokens", "60", "--json"],
        ["history", "import", "2.jsonl", "--model", "demo", "--out", "whole", "--prompts",
         "--columns", "prompt=prompt,output=output,run=step", "--json"],
        ["history", "import", "2.jsonl", *named, "--format", "verl"],
        ["history", "import", "2.jsonl", *named, "--columns", "prompt"],
    )  # fmt: skip
    assert (first.code, first.json["imported"], first.json["requests"]) == (0, 2, 2), first.err
    size = first.json["tokens"] // 2
    assert (more.json["requests"], more.json["tokens"], more.json["dropped"]) == (
        (60 // size), 60 // size * size, 3 - 60 // size,
    )  # fmt: skip
    tokenizer = load_tokenizer("demo")
    (request,) = History.open(tmp_path / "whole").log.read().requests
    assert tokenizer.decode(request.tokens[: request.prompt]).strip() == "def main(self):"
    (kept, *_) = History.open(tmp_path / "past").log.read().requests
    assert (kept.prompt, tokenizer.decode(kept.tokens[:-1]).strip()) == (0, text.strip())
    assert (empty.code, other.code) == (3, 2)
    assert "`input` must be" in empty.err
    assert "--columns': it must be a list like FIELD=VALUE" in other.err


def test_a_field_may_be_named_once(ngramkit_cli, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "a", "output": "b", "model": "m"}')
    importing = ["history", "import", "log.jsonl", "--model", "demo", "--out", "past"]
    (twice,) = ngramkit_cli([*importing, "--where", "model=m,model=n"])
    assert twice.code == 2
    assert "--where': it must name each field once, got 'model=m,model=n'" in twice.err


def test_inspect_prints_what_python_returns(ngramkit_cli, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "import os", "output": "import sys"}')
    _, shown = ngramkit_cli(
        ["history", "import", "log.jsonl", "--model", "demo", "--out", "past"],
        ["history", "inspect", "past", "--last", "1", "--json"],
    )
    found = ngramkit.history_inspect(tmp_path / "past", last=1).to_dict()
    assert shown.json["last"] == found["last"] != []
    assert found.keys() <= shown.json.keys()


def test_replay_reads_a_history_and_leaves_it_alone(ngramkit_cli, tmp_path):
    lines = [{"prompt": "def main(self):\n", "output": "    return self.name\n" * 4}]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tokenizer = load_tokenizer("demo")
    past = History.at(tmp_path / "past", tokenizer.record)
    past.append(tokenizer.encode(lines[0]["prompt"] + lines[0]["output"]), 5)
    before = (past.path / LOG).read_bytes()
    replay = ["replay", "--answers", "answers.jsonl", "--drafter", "ssd", "--budget", "16"]
    cold, warm, kept = ngramkit_cli(
        [*replay, "--json"],
        [*replay, "--history", "past", "--json"],
        [*replay, "--history", "past", "--keep-state", "--json"],
    )
    assert cold.code == 2
    assert "--history" in cold.err  # ssd has nothing to draft from
    assert warm.json["results"][0]["tokens_per_step"] > 3
    assert kept.json["results"][0]["passes"] == warm.json["results"][0]["passes"]
    assert (past.path / LOG).read_bytes() == before


def test_bench_measures_and_goes_on(ngramkit_cli, tmp_path):
    asked = [{"prompt": text} for text in ("def main(self):\n", "import os\nimport")]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    short = ["bench", "--max-new-tokens", "12", "--drafter", "ssd", "--drafter", "context"]
    mine = [*short, "--questions", "asked.jsonl"]
    first, again, told, other, embedded, none, missing, unasked = ngramkit_cli(
        [*mine, "--json"],
        [*mine, "--json"],
        mine,
        [*mine, "--budget", "3"],
        [*short, "--limit", "1", "--json"],
        [*mine, "--drafter", "none"],
        [*short, "--questions", "nothing.jsonl"],
        [*short, "--model", resolve_model("demo"), "--out", "x"],
    )
    assert first.code == 0, first.err
    assert [row["drafter"] for row in first.json["results"]] == ["none", "ssd", "context"]
    assert all(set(row) == BENCH_KEYS for row in first.json["results"])
    assert all(row["identical"] for row in first.json["results"])
    assert first.json["artifact"] == "bench/asked-demo"
    assert again.json["results"] == first.json["results"]
    assert len(first.json["questions"]) == 6
    assert [pair["of"] for pair in first.json["ratios"]] == ["ssd", "ssd"]
    assert "every answer is the same as without drafts" in told.out
    assert "ratios of tokens/s" in told.out
    assert "intervals of ssd: no interval: requests depend on each other" in told.out
    assert re.search(r"^none +1\.00 +[\d.,]+ +1\.00$", told.out, re.M)  # and no interval
    assert "resuming: 6 answers" in again.err
    assert other.code == 2
    assert "--force" in other.err
    assert embedded.json["artifact"] == "bench/python-stdlib-demo"
    page = (tmp_path / "bench" / "python-stdlib-demo" / "report.html").read_text()
    assert "demo on python-stdlib, 1 question" in page
    assert (none.code, missing.code, unasked.code) == (0, 3, 2)
    assert "--questions" in unasked.err
    found = {path.name for path in (tmp_path / "bench" / "asked-demo").iterdir()}
    answers = {f"answers-{name}.jsonl" for name in ("none", "ssd", "context")}
    drawn = {
        f"{name}.{kind}" for name in ("speedups", "budgets", "lengths") for kind in ("png", "pdf")
    }
    texts = {"results.json", "results.csv", "table.md", "table.tex"}
    assert found == {"runs.jsonl", "report.html", *texts, *drawn, *answers}
