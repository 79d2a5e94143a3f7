"""The static engine proves itself before it is used: each fault, by a stand-in that has it."""

from __future__ import annotations

import time
import weakref

import pytest
import torch
from tape import Tape
from tiny_models import tiny_model

import ngramkit
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import static, verifiers
from ngramkit.decode.load import LanguageModel
from ngramkit.decode.session import PassOptions
from ngramkit.decode.static_cache import StaticCache
from ngramkit.decode.static_check import check_static
from ngramkit.decode.static_pass import StaticPass
from ngramkit.decode.verifiers import engine_of, gains_from_static
from ngramkit.errors import UsageError


@pytest.fixture
def recorded_by(monkeypatch):
    """recorded_by(recorder): what passes are recorded with from now on."""

    def install(recorder):
        monkeypatch.setattr(static, "POOLS", weakref.WeakKeyDictionary())
        monkeypatch.setattr(static, "recorder_for", lambda model: recorder)
        return recorder

    return install


class Stale(Tape):
    """Replays give what came of the recorded inputs."""

    def record(self, body, pool):
        result = body()
        return lambda: result


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
def test_a_right_engine_is_found_right_by_replays(recorded_by, name):
    tape = recorded_by(Tape())
    found = check_static(tiny_model(name))
    assert found.fault == ""
    assert tape.replayed > tape.recorded
    assert {each.nodes for each in found.passes} == {0, 7, 8, 22, 24}
    assert all(0 <= max(each.logits, each.kept) < 1e-4 for each in found.passes)
    assert found.gain > 0
    assert {"torch", "transformers", "ngramkit"} <= found.software.keys()


def fallen(model, caplog):
    """What is said where the model runs eagerly after all."""
    assert engine_of(model, "static") == "eager"
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith("it runs with engine=eager")
    return line


def test_replays_that_do_nothing_are_found_out(recorded_by, caplog):
    recorded_by(Stale())
    said = fallen(tiny_model("llama"), caplog)
    assert "llama writes something else in passes of fixed shape (logits of" in said


def test_rows_that_are_kept_wrongly_are_found_out(monkeypatch, caplog):
    def keep(self, rows):
        self.length += len(rows)  # as they lie

    monkeypatch.setattr(StaticCache, "keep", keep)
    assert "in passes of fixed shape (" in fallen(tiny_model("llama"), caplog)


def test_a_pass_that_fails_is_said_with_its_reason(monkeypatch, caplog):
    def run(self, *_):
        raise RuntimeError("CUDA error: operation not permitted\nmore of it")

    monkeypatch.setattr(StaticPass, "run", run)
    said = fallen(tiny_model("llama"), caplog)
    assert (
        "fails in passes of fixed shape (RuntimeError: CUDA error: operation not permitted)" in said
    )


def test_memory_that_runs_out_is_raised(monkeypatch):
    def run(self, *_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(StaticPass, "run", run)
    with pytest.raises(torch.OutOfMemoryError):
        check_static(tiny_model("llama"))


def test_an_engine_that_gains_nothing_is_not_the_default(monkeypatch, caplog):
    run = StaticPass.run

    def slow(self, *args):
        time.sleep(0.05)
        return run(self, *args)

    monkeypatch.setattr(StaticPass, "run", slow)
    model = tiny_model("llama")
    assert engine_of(model, "static") == "static"  # asked for, and right
    assert not gains_from_static(model)
    assert "times the eager engine's speed here; llama runs with engine=eager" in caplog.text


def test_what_was_proven_is_remembered_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tiny_model("llama").save_pretrained(tmp_path / "tiny")
    load = lambda: type(tiny_model("llama")).from_pretrained(tmp_path / "tiny").eval()  # noqa: E731
    monkeypatch.setattr(verifiers.SelfCheck, "pays", True)
    model = load()
    assert engine_of(model, "static") == "static"
    assert gains_from_static(model)
    monkeypatch.setattr(verifiers, "check_static", None)  # not called again
    again = load()
    assert engine_of(again, "static") == "static"
    assert gains_from_static(again)


def test_it_is_a_verb():
    model = LanguageModel("tiny/llama", tiny_model("llama"), load_tokenizer("demo"))
    found = ngramkit.self_check(model)
    assert found.model == "tiny/llama"
    assert len(found.to_pandas()) == len(found.to_dict()["passes"]) == 6
    assert repr(found).startswith("<SelfCheck of tiny/llama: right, ")
    with pytest.raises(UsageError, match="eager engine is what others"):
        ngramkit.self_check(model, passes=PassOptions(engine="eager"))
