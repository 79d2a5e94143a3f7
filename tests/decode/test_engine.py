"""Which engine a model is given, and that all ways to decode take one."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripted import NoisyOracle
from tape import Tape
from tiny_models import tiny_model

import ngramkit
from ngramkit.decode import static, verifiers
from ngramkit.decode.calibrate import measure
from ngramkit.decode.load import load_model
from ngramkit.decode.profiles import profile_file, profile_path
from ngramkit.decode.session import Runner, Task, warm_up
from ngramkit.decode.static import StaticVerifier
from ngramkit.decode.verifiers import engine_of, open_verifier
from ngramkit.decode.verify_rows import BatchVerifier
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.registry import NoDraft
from ngramkit.errors import UsageError


@pytest.fixture
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def demo():
    return load_model("demo", device="cpu")


def test_a_cpu_gets_the_eager_engine_unless_it_is_asked_for(model):
    assert engine_of(model) == engine_of(model, "eager") == "eager"
    assert isinstance(open_verifier(model, room=8), TreeVerifier)
    assert engine_of(model, "static") == engine_of(model, "static", "tree") == "static"
    assert isinstance(open_verifier(model, engine="static", room=8), StaticVerifier)


def test_a_gpu_gets_the_static_engine_unless_drafts_are_rows(monkeypatch):
    monkeypatch.setattr(verifiers, "takes_static", lambda model: True)
    monkeypatch.setattr(verifiers, "gains_from_static", lambda model: model.gains)
    model = SimpleNamespace(device=torch.device("cuda"), gains=True)
    assert engine_of(model) == engine_of(model, "auto", "tree") == "static"
    assert engine_of(model, "eager") == engine_of(model, "auto", "batch") == "eager"
    model.gains = False
    assert (engine_of(model), engine_of(model, "static")) == ("eager", "static")


@pytest.mark.parametrize(
    ("engine", "mode", "said"),
    [("fast", None, "no engine called 'fast'"), ("static", "batch", "as trees alone")],
)
def test_what_makes_no_sense_is_a_usage_error(model, engine, mode, said):
    with pytest.raises(UsageError, match=said):
        open_verifier(model, mode, engine, room=8)


def test_a_model_that_takes_no_tree_runs_eagerly_and_that_is_said_once(caplog):
    model = tiny_model("bloom")
    for _ in range(2):
        assert isinstance(open_verifier(model, engine="static", room=8), BatchVerifier)
    said = "bloom cannot verify a draft as a tree; it runs with engine=eager"
    assert [record.getMessage() for record in caplog.records].count(said) == 1


def test_a_model_on_several_devices_runs_eagerly_and_that_is_said(model, caplog):
    model.lm_head.to("meta")
    assert engine_of(model, "static") == "eager"
    assert "llama is spread over several devices; it runs with engine=eager" in caplog.text


def test_a_model_that_keeps_a_number_from_one_pass_is_found_out(model, caplog, monkeypatch):
    monkeypatch.setattr(static, "POOLS", weakref.WeakKeyDictionary())
    tape = Tape()
    monkeypatch.setattr(static, "recorder_for", lambda model: tape)
    forward = model.forward

    def with_length(input_ids, past_key_values=None, position_ids=None, **options):
        """Python's idea of the length is that of the pass that was recorded."""
        if position_ids is not None:
            root = past_key_values.get_seq_length()
            position_ids = position_ids - position_ids[:, :1] + root
        return forward(
            input_ids, past_key_values=past_key_values, position_ids=position_ids, **options
        )

    model.forward = with_length
    assert engine_of(model, "static") == "eager"
    assert tape.replayed > tape.recorded
    assert "llama writes something else in passes of fixed shape" in caplog.text


def test_memory_that_runs_out_is_not_taken_for_an_answer(model, monkeypatch):
    def take(self, room):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(static.Pool, "take", take)
    with pytest.raises(torch.OutOfMemoryError):
        engine_of(model, "static")


@pytest.fixture
def opened(monkeypatch):
    """The static verifiers that are opened."""
    found = []
    init = StaticVerifier.__init__

    def noted(self, model, *, room):
        found.append(room)
        init(self, model, room=room)

    monkeypatch.setattr(StaticVerifier, "__init__", noted)
    return found


def test_complete_takes_it(demo, opened):
    prompt = np.array([3, 14, 15, 92, 65], np.int32)
    plain = Task(demo, Runner.of(demo.model, budget=6), 20).complete(prompt, NoDraft())
    assert not opened
    drafter = NoisyOracle(plain.token_ids, 4096)
    run = Task(demo, Runner.of(demo.model, budget=12, engine="static"), 20).complete(
        prompt, drafter
    )
    assert run.token_ids.tolist() == plain.token_ids.tolist()
    assert run.tokens_per_step > 1.5
    assert opened


def test_a_warm_up_records_what_the_task_needs(demo, monkeypatch):
    monkeypatch.setattr(static, "POOLS", weakref.WeakKeyDictionary())
    tape = Tape()
    monkeypatch.setattr(static, "recorder_for", lambda model: tape)
    prompt = np.arange(300, dtype=np.int32)
    task = Task(demo, Runner.of(demo.model, budget=6, engine="static"), 40)
    warm_up(task, prompt, NoDraft())
    recorded, replayed = tape.recorded, tape.replayed
    task.complete(prompt, NoDraft())
    assert tape.recorded == recorded
    assert tape.replayed == replayed + 39


def test_generate_takes_it(model, opened):
    prompt = torch.tensor([[5, 17, 3, 44, 9, 17, 3]])
    options = {"do_sample": False, "max_new_tokens": 20, "drafter": "cacheback"}
    expected = ngramkit.generate(model, prompt, **options)
    assert not opened
    assert torch.equal(ngramkit.generate(model, prompt, engine="static", **options), expected)
    assert opened
    with pytest.raises(UsageError, match="no engine"):
        ngramkit.generate(model, prompt, engine="fast", **options)


def test_every_engine_has_its_profile(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = measure(demo, engine="static", contexts=(8,), seconds=0)
    assert found.engine == "static"
    assert found.sizes == [0, 1, 8, 9, 16, 17, 32, 33, 64, 65, 96]
    found.save(profile_path(demo, "static"))
    assert profile_file(demo.model, "static") == profile_path(demo, "static")
    assert profile_file(demo.model, "eager") is None
