"""Which model is meant when nobody says: NGRAMKIT_MODEL, `ngramkit use`, the embedded one."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ngramkit.basics.errors import InputError
from ngramkit.basics.models import chosen_model, settings_path, use
from ngramkit_cli.main import app


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def test_named_then_the_environment_then_the_chosen_then_the_embedded(monkeypatch):
    assert (chosen_model().name, chosen_model().why) == ("demo", "default")
    use("vicuna-7b")
    assert (chosen_model().name, chosen_model().why) == ("vicuna-7b", "chosen with: ngramkit use")
    monkeypatch.setenv("NGRAMKIT_MODEL", "qwen3-8b")
    assert (chosen_model().name, chosen_model().why) == ("qwen3-8b", "NGRAMKIT_MODEL")
    assert (chosen_model("me/mine").name, chosen_model("me/mine").why) == ("me/mine", "")
    monkeypatch.setenv("NGRAMKIT_MODEL", "")
    assert chosen_model().name == "vicuna-7b"
    use(unset=True)
    assert chosen_model().name == "demo"


def test_a_folder_is_meant_from_everywhere(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=r"mine: it has neither config\.json nor"):
        use("mine")
    (tmp_path / "mine" / "config.json").write_text("{}")
    use("mine")
    monkeypatch.chdir("/")
    assert chosen_model().name == str(tmp_path / "mine")


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', "[" * 100_000, "\0"])
def test_settings_that_cannot_be_understood_are_named(text):
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text(text)
    with pytest.raises(InputError, match=r"settings\.json"):
        chosen_model()
    assert chosen_model("demo").name == "demo"


def test_the_command_shows_keeps_and_forgets():
    assert run("use").stdout == "demo (default)\n"
    assert run("use", "vicuna-7b").stdout == "vicuna-7b (chosen with: ngramkit use)\n"
    assert "lmsys/vicuna-7b-v1.5  <- chosen with: ngramkit use" in run("models").stdout
    assert json.loads(run("models", "--json").stdout)["chosen"] == "vicuna-7b"
    assert run("use", "me/mine").exit_code == 0
    assert "me/mine  <- chosen" in run("models").stdout
    assert json.loads(run("use", "demo", "--json").stdout.splitlines()[-1])["model"] == "demo"
    assert run("use", "me/mine", "--unset").exit_code == 2
    assert run("use", "--unset").stdout == "demo (default)\n"


def test_the_command_refuses_what_no_model_is_called():
    refused = run("use", "vicunna")
    assert (refused.exit_code, "unknown model" in refused.stderr) == (2, True)
    assert run("use", "./nowhere").exit_code == 3
    assert chosen_model().name == "demo"


def test_the_environment_goes_first_and_that_is_said(monkeypatch):
    monkeypatch.setenv("NGRAMKIT_MODEL", "qwen3-8b")
    done = run("use", "vicuna-7b")
    assert done.stdout == "qwen3-8b (NGRAMKIT_MODEL)\n"
    assert "NGRAMKIT_MODEL is set" in done.stderr


def test_every_command_says_which_model_and_why(tmp_path):
    (tmp_path / "a.txt").write_text("some text, " * 10)
    assert "model: demo (default)" in run("tokenize", "--corpus", "a.txt").stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    run("use", "mine")
    done = run("tokenize", "--corpus", "a.txt")
    assert f"model: {tmp_path / 'mine'} (chosen with: ngramkit use)" in done.stderr
    assert done.exit_code == 3


def test_a_hub_corpus_for_the_embedded_model_is_noticed_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    typed = ["build-frozen", "--corpus", "openwebtext", "--sample", "0.01"]
    asked = []
    monkeypatch.setattr(
        "ngramkit.builders.tokens.open_with",
        lambda name, *rest, **options: asked.append(name) or pytest.fail("not reached"),
    )
    said = run(*typed).stderr
    assert "will serve the embedded model demo only" in said
    assert "ngramkit build-frozen --corpus openwebtext --sample 0.01 --model MODEL" in said
    assert asked
    assert "will serve" not in run(*typed, "--model", "demo").stderr
    assert "will serve" not in run("build-frozen", "--corpus", str(tmp_path / "a.txt")).stderr
