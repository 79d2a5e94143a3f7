"""`ngramkit decode` over the demo model, in this process."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from typer.testing import CliRunner

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.formats.history import History
from ngramkit_cli.main import app

KEYS = {
    "command",
    "artifact",
    "seconds",
    "text",
    "token_ids",
    "prompt_tokens",
    "new_tokens",
    "passes",
    "tokens_per_step",
    "tokens_per_second",
    "draft_seconds",
    "verify_seconds",
    "accepted_per_pass",
    "nodes_per_pass",
    "declined_passes",
    "ended_by",
    "model",
    "drafter",
    "artifacts",
    "template",
    "budget",
    "lossless",
}
SHORT = ["decode", "--prompt", "def main(", "--max-new-tokens", "12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder whose artifacts/ hold a datastore and a frozen table of a little text."""
    path = tmp_path_factory.mktemp("work")
    text = path / "text.py"
    text.write_text("def main(self):\n    return self.name\n" * 20)
    store = tokenize(open_corpus(str(text)), "demo", path / "artifacts" / "tokens")
    build_datastore(store, path / "artifacts" / "datastore")
    build_frozen(store, path / "artifacts" / "frozen")
    return path


@pytest.fixture
def decode(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)
    return lambda *options, stdin="": CliRunner().invoke(app, [*map(str, options)], input=stdin)


def last_line(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_json_has_exactly_the_promised_keys(decode):
    facts = last_line(decode(*SHORT, "--drafter", "rest", "--json"))
    assert set(facts) == KEYS
    assert facts["artifact"] == "artifacts/datastore"
    named = {key: facts[key] for key in ("model", "drafter", "artifacts", "budget")}
    assert named == {
        "model": "demo",
        "drafter": "rest",
        "artifacts": ["artifacts/datastore"],
        "budget": "auto",
    }
    assert facts["template"] is None
    assert facts["new_tokens"] == len(facts["token_ids"]) == 12
    assert facts["passes"] == len(facts["accepted_per_pass"])
    assert sum(facts["accepted_per_pass"]) + facts["passes"] == 11


@pytest.mark.parametrize("drafter", ["rest", "cacheback", "none"])
def test_compare_says_that_the_output_is_identical(decode, drafter):
    result = decode(*SHORT, "--drafter", drafter, "--compare", "--json")
    facts = last_line(result)
    compared = {
        "baseline_seconds", "speedup", "identical", "parting", "busy_cores", "generate_seconds",
        "over_generate", "undrafted_over_generate",
    }  # fmt: skip
    assert set(facts) == KEYS | compared
    assert facts["identical"] is True
    assert facts["speedup"] > 0
    assert facts["over_generate"] > 0
    assert "output identical" in result.stderr
    assert "speed-up over it" in result.stderr
    assert ("noise" in result.stderr) == (drafter == "none")


def test_text_goes_to_stdout_and_everything_else_to_stderr(decode):
    result = decode(*SHORT, "--drafter", "rest")
    text = last_line(decode(*SHORT, "--drafter", "none", "--json"))["text"]
    assert result.stdout.rstrip("\n") == text.rstrip("\n")
    assert "\x1b" not in result.stdout
    assert "model: demo (default)" in result.stderr
    assert "drafter: rest over artifacts/datastore (" in result.stderr
    assert "tokens/step" in result.stderr


def test_the_default_drafter_is_said(decode):
    everything = decode(*SHORT).stderr
    assert "drafter: blend (default) over artifacts/datastore (" in everything
    assert "left out: artifacts/frozen (its corpus is in artifacts/datastore)" in everything
    by_table = decode(*SHORT, "--frozen-table", "artifacts/frozen")
    assert "drafter: blend (default) over artifacts/frozen (" in by_table.stderr
    assert "left out" not in by_table.stderr


def test_blend_remembers_where_it_is_told_to(decode, folder):
    for count in (1, 2):
        decode(*SHORT, "--history", "past")
        assert len(History.open(folder / "past").news()[0]) == count
    decode(*SHORT, "--history", "past", "--no-store")
    assert len(History.open(folder / "past").news()[0]) == 2


def test_prompts_from_everywhere_are_the_same_prompt(decode, folder):
    (folder / "prompt.txt").write_text("def main(", encoding="utf-8-sig")
    options = ["decode", "--drafter", "none", "--max-new-tokens", 12, "--json"]
    given = [
        last_line(decode(*options, "--prompt", "def main(")),
        last_line(decode(*options, "--prompt-file", "prompt.txt")),
        last_line(decode(*options, "--prompt-file", "-", stdin="def main(")),
        last_line(decode(*options, stdin="def main(")),
    ]
    assert len({facts["text"] for facts in given}) == 1


def test_several_prompts_have_an_answer_each(decode):
    line = [*SHORT[:1], *SHORT[3:], "--drafter", "context"]
    alone = last_line(decode(*line, "--prompt", "import os", "--json"))
    both = [*line, "--prompt", "def main(", "--prompt", "import os"]
    answers = last_line(decode(*both, "--json"))["answers"]
    assert [answer["new_tokens"] for answer in answers] == [12, 12]
    assert answers[1]["text"] == alone["text"]
    shown = decode(*both)
    assert shown.stdout == "".join(f"{answer['text']}\n" for answer in answers)
    assert shown.stderr.count("tokens/step") == 2


def test_without_a_prompt_the_demo_model_takes_a_held_out_one(decode):
    result = decode("decode", "--drafter", "rest", "--max-new-tokens", 1)
    assert result.exit_code == 0
    assert "\n1 token, 0 passes, " in result.stderr
    assert "held-out file xml/etree/ElementTree.py" in result.stderr


def test_sampling_is_repeatable_and_differs_by_seed(decode):
    sampled = [*SHORT, "--drafter", "cacheback", "--temperature", 1.0, "--top-p", 0.9, "--json"]
    first = last_line(decode(*sampled, "--seed", 1))["text"]
    assert last_line(decode(*sampled, "--seed", 1))["text"] == first
    assert last_line(decode(*sampled, "--seed", 2))["text"] != first


def test_rest_keeps_to_its_bounds(decode, folder, token_store):
    written = last_line(decode(*SHORT, "--drafter", "none", "--json"))["token_ids"]
    record = load_tokenizer("demo").record
    known = build_datastore(token_store([written], record=record), folder / "known").path

    def accepted(options):
        named = ["--drafter", f"rest{options}", "--datastore", known, "--budget", 12]
        facts = last_line(decode(*SHORT, *named, "--json"))
        assert facts["drafter"] == f"rest{options}"
        return facts["accepted_per_pass"]

    assert max(accepted("")) > 2
    assert max(accepted(":continuation=2")) == 2
    assert max(accepted(":min_match=16")) == 0


def test_references_are_drafted_from(decode, folder):
    alone = last_line(decode(*SHORT, "--drafter", "context", "--budget", "8", "--json"))
    files = [folder / "one.txt", folder / "two.txt"]
    files[0].write_text("something else")
    files[1].write_text(alone["text"])
    given = [option for file in files for option in ("--reference", file)]
    result = decode(*SHORT, "--drafter", "context", "--budget", "8", *given, "--json")
    facts = last_line(result)
    assert facts["token_ids"] == alone["token_ids"]
    assert facts["passes"] < alone["passes"]
    assert "drafting from 2 references too, " in result.stderr


def test_a_stop_string_ends_the_output(decode):
    facts = last_line(decode(*SHORT, "--drafter", "rest", "--stop", ":", "--json"))
    assert facts["text"].count(":") == 1
    assert ":" in facts["text"][-4:]


def test_another_models_artifact_is_refused(decode, folder, token_store):
    other = build_datastore(token_store([[1, 2, 3]], 10), folder / "other")
    result = decode(*SHORT, "--drafter", "rest", "--datastore", other.path)
    assert result.exit_code == 3
    assert "none-10" in result.stderr
    assert "demo" in result.stderr


def test_ctrl_c_ends_cleanly(decode, monkeypatch):
    from ngramkit.decode.verify_tree import TreeVerifier

    passes = []
    verify = TreeVerifier.verify

    def interrupted(self, root, tree):
        passes.append(len(tree))
        if len(passes) > 10:
            raise KeyboardInterrupt
        return verify(self, root, tree)

    monkeypatch.setattr(TreeVerifier, "verify", interrupted)
    result = decode(*SHORT[:-1], 60, "--drafter", "none", "--json")
    assert result.exit_code == 130
    facts = json.loads(result.stdout.splitlines()[-1])
    assert facts["text"]
    assert 0 < facts["new_tokens"] < 60
    assert "interrupted" in result.stderr


def test_without_memory_a_smaller_model_is_named(decode, monkeypatch):
    def without_memory(*_):
        raise MemoryError

    monkeypatch.setattr(import_module("ngramkit.decode.answer"), "answer", without_memory)
    done = decode(*SHORT)
    assert done.exit_code == 3
    assert "Use a smaller model" in done.stderr
