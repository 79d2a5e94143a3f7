"""Questions by name: Spec-Bench from a web server, SPEED-Bench from the Hub's stand-in."""

from __future__ import annotations

import hashlib
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hub_datasets import text
from hub_standin import TOKEN
from reporters import Notes

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.evaluate import question_sets
from ngramkit.evaluate.question_sets import PLACEHOLDER, QuestionSet, find_set
from ngramkit.evaluate.records import Question, read_questions

LINES = [{"question_id": 1, "category": "rag", "turns": ["a\u2028", "b"]}]
ASKED = ["replay", "--answers", "answers.jsonl", "--model", "demo", "--template", "none",
         "--drafter", "prompt-lookup", "--budget", "8", "--json"]  # fmt: skip


@pytest.fixture
def spec_bench(tmp_path, monkeypatch):
    """Serve LINES as Spec-Bench; yield the served file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "web"
    folder.mkdir()
    file = folder / "question.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        url = f"http://127.0.0.1:{server.server_port}/{file.name}"
        monkeypatch.setattr(question_sets, "SPEC_BENCH_URL", url)
        monkeypatch.setattr(question_sets, "SPEC_BENCH_SHA256", digest)
        yield file
        server.shutdown()


def test_spec_bench_is_downloaded_once(spec_bench):
    for _ in range(2):
        found = read_questions("spec-bench")
        assert list(found) == [Question(1, "rag", ["a\u2028", "b"])]
        assert found.name == "spec-bench"
        spec_bench.unlink(missing_ok=True)


def test_a_changed_file_is_refused(spec_bench):
    spec_bench.write_text('{"prompt": "changed"}\n')
    with pytest.raises(InputError, match="it was changed"):
        read_questions("spec-bench")
    spec_bench.unlink()
    with pytest.raises(InputError, match="it does not exist"):
        read_questions("spec-bench")


def test_names_and_configurations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_set("speed-bench") == QuestionSet("speed-bench", "qualitative")
    assert find_set("speed-bench:throughput_8k").label == "speed-bench-throughput_8k"
    assert find_set("speed-bench.jsonl") is None
    named = find_set("speed-bench@v1.1")
    assert (named.revision, named.label, str(named)) == (
        "v1.1", "speed-bench-qualitative", "speed-bench:qualitative@v1.1"
    )  # fmt: skip
    for wrong in ("speed-bench@", "spec-bench@main"):
        with pytest.raises(UsageError, match="unknown revision"):
            find_set(wrong)
    for wrong in ("speed-bench:8k", "speed-bench:", "spec-bench:rag"):
        with pytest.raises(UsageError, match="unknown configuration"):
            find_set(wrong)
    (tmp_path / "spec-bench").write_text('{"prompt": "a file"}\n')
    assert list(read_questions(tmp_path / "spec-bench")) == [Question(1, "all", ["a file"])]


def test_prepared_files_have_messages_and_no_placeholders(tmp_path):
    path = tmp_path / "prepared.jsonl"
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    body = {"question_id": "x", "category": "qa", "messages": [*said, *said]}
    path.write_text(json.dumps(body))
    notes = Notes()
    assert list(read_questions(path, notes)) == [Question("x", "qa", ["a", "a"])]
    assert "left out 2 messages of other roles than user" in notes
    path.write_text(json.dumps({**body, "turns": [f"{PLACEHOLDER} USING SPECDEC_BENCH"]}))
    with pytest.raises(InputError, match="placeholder"):
        read_questions(path)


def answers_to(config):
    return "".join(
        json.dumps({"question_id": f"{config}-{n}", "choices": [{"turns": [text(n), text(n)]}]})
        + "\n"
        for n in range(3)
    )


def test_speed_bench_keeps_categories_and_lengths(hub, ngramkit_cli, tmp_path):
    (tmp_path / "answers.jsonl").write_text(answers_to("throughput_8k"))
    (found,) = ngramkit_cli(
        [*ASKED, "--questions", "speed-bench:throughput_8k"],
        env=hub.environment(tmp_path / "home", TOKEN),
    )
    assert found.code == 0, found.err
    assert "1 of 4 questions left out" in found.err
    assert "its own licence applies" in found.err
    (result,) = found.json["results"]
    assert result["by_category"].keys() == {"low_entropy", "mixed"}
    made = found.json["provenance"]
    name, _, commit = made["options"]["questions"].partition("@")
    assert name == "speed-bench:throughput_8k"
    assert commit == hub.repositories["dataset", "nvidia/SPEED-Bench"].refs["main"]
    assert f"--questions speed-bench:throughput_8k@{commit}" in made["command"]


def test_a_gated_set_says_how_to_get_access(hub, ngramkit_cli, tmp_path):
    (tmp_path / "answers.jsonl").write_text(answers_to("qualitative"))
    (refused,) = ngramkit_cli(
        [*ASKED, "--questions", "speed-bench"], env=hub.environment(tmp_path / "home")
    )
    assert refused.code == 4
    assert "Accept its terms at hf.co/datasets/nvidia/SPEED-Bench" in " ".join(refused.err.split())
