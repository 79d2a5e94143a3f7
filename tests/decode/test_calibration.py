"""What a pass costs: measured, kept, found again, and how noisy it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny_models import tiny_model

from ngramkit.basics.errors import InputError, NgramkitError
from ngramkit.basics.progress import Reporter
from ngramkit.budget.profile import Pass, Profile
from ngramkit.decode.calibrate import calibrate, measure_best_rounds, plot_costs
from ngramkit.decode.kept_costs import profile_file, profile_path
from ngramkit.decode.load import LanguageModel


def test_measured_profiles_are_found_again(model, tmp_path):
    sizes = (0, 1, 8)
    found = measure_best_rounds(model, sizes=sizes, contexts=(8, 64, 100_000), seconds=0)
    assert found.sizes == list(sizes)
    assert found.contexts == [8, 64]  # 100,000 tokens do not fit the model
    table = found.table()
    assert table.shape == (2, 3)
    assert table.min() > 0
    assert np.all(np.diff(table) >= 0)
    assert np.all(np.diff(table, axis=0) >= 0)
    assert profile_file(model.model) is None
    found.save(profile_path(model))
    assert profile_file(model.model) == profile_path(model)
    assert Profile.load(profile_path(model)) == found
    assert profile_path(model).is_relative_to(tmp_path)
    plot_costs(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sizes", [(0, 4), (0, 1, 2, 4, 8, 16, 32, 64, 96)])
def test_the_heat_map_holds_any_name(tmp_path, sizes):
    from matplotlib.image import imread

    passes = [Pass(size, 128, 0.01 + size / 1000, 0.03) for size in sizes]
    name = "somebody/a-long-name-of-a-model-" + "-".join(["instruct"] * 8)
    plot_costs(Profile(name, "cpu, 2 threads", "float32", passes), tmp_path / "map.png")
    picture = imread(tmp_path / "map.png")
    for edge in (picture[:, 0], picture[:, -1], picture[0], picture[-1]):
        assert edge.min() == 1, "something is cut off at the edge"


def test_another_model_has_another_profile(model):
    other = LanguageModel("tiny/llama", tiny_model("llama", num_hidden_layers=3), model.tokenizer)
    assert profile_path(other) != profile_path(model)


def test_a_damaged_profile_is_named(model):
    path = profile_path(model)
    measure_best_rounds(model, sizes=(0, 1), contexts=(8,), seconds=0).save(path)
    whole = json.loads(path.read_text())
    for damage in ("{", json.dumps({"passes": []}), json.dumps({**whole, "passes": [{"size": 1}]})):
        path.write_text(damage)
        with pytest.raises(InputError, match=r"not JSON|profile"):
            Profile.load(profile_file(model.model))


PASS = {"tree_size": 0, "context_length": 8, "seconds": 0.1}
WHOLE = {"model": "m", "device": "d", "dtype": "t", "passes": [PASS]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"a": 1}, "model is missing"),
        *(
            ({key: value for key, value in WHOLE.items() if key != name}, f"{name} is missing")
            for name in WHOLE
        ),
        ([1], "it must be an object, got [1]"),
        ({**WHOLE, "passes": []}, "passes must be a list, got []"),
        ({**WHOLE, "passes": 5}, "passes must be a list, got 5"),
        ({**WHOLE, "passes": [5]}, "pass 1: it must be an object, got 5"),
        ({**WHOLE, "passes": [PASS, {"tree_size": 1}]}, "pass 2: context_length is missing"),
        (
            {**WHOLE, "passes": [{**PASS, "tree_size": -1}]},
            "pass 1: tree_size must be a whole number, got -1",
        ),
        (
            {**WHOLE, "passes": [{**PASS, "seconds": "1"}]},
            "pass 1: seconds must be a number, got '1'",
        ),
        (
            {**WHOLE, "passes": [PASS, {**PASS, "tree_size": 1, "context_length": 9}]},
            "no pass has context_length 8 and tree_size 1",
        ),
    ],
)
def test_a_field_that_a_profile_lacks_is_named(body, says, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(body))
    with pytest.raises(InputError) as caught:
        Profile.load(path)
    at, _, cause = says.rpartition(": ")
    part = f"{at} of the profile" if at else "the profile"
    assert str(caught.value) == f"cannot read {part} {path}: {cause}"
    assert caught.value.hint == "Make one with ngramkit pass-cost or ngramkit calibrate."
    path.write_text(json.dumps({**WHOLE, "engine": "eager"}))
    assert Profile.load(path) == Profile("m", "d", "t", [Pass(0, 8, 0.1)])


def test_a_profile_of_an_earlier_version_is_read(model):
    path = profile_path(model)
    found = measure_best_rounds(model, sizes=(0, 1), contexts=(8,), seconds=0)
    found.save(path)
    path.write_text(json.dumps({"engine": "eager", **json.loads(path.read_text())}))
    assert Profile.load(path) == found


def test_noise_is_measured_and_shown_not_smoothed_away(model):
    passes = [Pass(0, 8, 2.0, 0.9), Pass(1, 8, 1.0, 0.1), Pass(2, 8, 3.0, 0.5)]
    noisy = Profile("m", "d", "t", passes)
    assert noisy.measured().tolist() == [[2.0, 1.0, 3.0]]
    assert noisy.table().tolist() == [[1.0, 1.0, 3.0]]
    assert noisy.noise == 0.5
    found = measure_best_rounds(model, sizes=(0, 1, 2), contexts=(8, 64), seconds=0)
    assert all(each.spread >= 0 for each in found.passes)


def test_calibration_takes_the_time_that_it_announces(model, monkeypatch):
    from ngramkit.decode import calibrate as module

    took, now = {8: 0.002, 32: 0.05, 64: 0.2}, [0.0]

    class Slow:
        def __init__(self, context):
            self.context = context

    def timed(verifier, size):
        now[0] += took[verifier.context]
        return took[verifier.context]

    notes: list[str] = []

    class Notes(Reporter):
        def note(self, text):
            notes.append(text)

    monkeypatch.setattr(module, "open_filled", lambda model, verify, context, nodes: Slow(context))
    monkeypatch.setattr(module, "time_pass", timed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    found = measure_best_rounds(
        model, sizes=(0, 1), contexts=(8, 32, 64), seconds=0.6, reporter=Notes()
    )
    assert now[0] < 1.5  # five rounds of 64 would take two
    assert found.contexts == [8, 32]
    assert "64 tokens" in notes[0]


def test_what_too_little_time_gives_is_not_kept(model, tmp_path, monkeypatch):
    from ngramkit.decode import calibrate as module

    calls: list[int] = []

    def slow(verifier, size):
        calls.append(size)
        now[0] += 0.5
        return 0.5

    now = [0.0]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(module, "open_filled", lambda model, verify, context, nodes: None)
    monkeypatch.setattr(module, "time_pass", slow)
    with pytest.raises(NgramkitError, match="in 2 s: only 0 of 4 rounds"):
        calibrate(model, seconds=2)
    assert (
        len(calls) <= len(module.MEASURED_SIZES) + 1
    )  # it ends when the time is over, but for one round
    assert not list(tmp_path.rglob("profiles"))


def test_what_a_noisy_machine_gives_is_not_kept(model, tmp_path, monkeypatch):
    from ngramkit.decode import calibrate as module

    noisy = Profile("m", "d", "t", [Pass(0, 8, 1.0, 0.5)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "measure_best_rounds", lambda *args, **options: noisy)
    with pytest.raises(NgramkitError, match="too noisy, a typical pass took 50% "):
        calibrate(model)
    assert not list(tmp_path.rglob("profiles"))
