"""`ngramkit.decode` and `ngramkit.calibrate`, as a program calls them."""

from __future__ import annotations

import inspect
import json
import shutil
from functools import partial

import pytest

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.models import resolve_model
from ngramkit.drafters.context import Context


@pytest.fixture(scope="module")
def model():
    from ngramkit.decode.load import load_model

    return load_model("demo")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_prompt_gives_an_answer_and_a_list_gives_several(model):
    shown = []
    answer = ngramkit.decode(
        "def main(",
        model,
        drafter="context:query=1",
        max_new_tokens=8,
        show=lambda piece, drafted: shown.append(piece),
    )
    assert "".join(shown) == answer.text
    assert answer.drafter.label == "context:query=1"
    assert (answer.model, answer.budget, answer.template) == ("demo", "auto", None)
    assert json.loads(json.dumps(answer.to_dict()))["drafter"] == "context:query=1"
    assert repr(answer).startswith("<Answer of demo with context:query=1: 8 tokens, ")
    both = ngramkit.decode(["def main(", "import "], model, drafter=Context(), max_new_tokens=8)
    assert (both[0].text, len(both)) == (answer.text, 2)
    assert both[1].drafter.label == "Context"


def test_it_compares_and_takes_every_option(model):
    answer = ngramkit.decode(
        "def main(",
        model,
        drafter=Context,
        max_new_tokens=6,
        stop=[":"],
        temperature=0.5,
        seed=3,
        budget=2,
        verify="batch",
        compare=True,
    )
    assert answer.budget == 2
    assert answer.comparison.speedup > 0
    assert {"speedup", "identical", "baseline_seconds"} <= answer.to_dict().keys()


def test_a_temperature_may_be_a_whole_number(model):
    decode = partial(ngramkit.decode, "def main(", model, drafter="none", max_new_tokens=6)
    assert decode(temperature=2).text == decode(temperature=2.0).text


def test_a_comparison_does_not_know_the_answer(model, tmp_path):
    """The history remembers it only after the comparison."""
    passes = []
    for compare in (False, True):
        history = tmp_path / str(compare)
        options = {"drafter": "ssd", "max_new_tokens": 24, "budget": 16, "history": history}
        for _ in range(2):
            answer = ngramkit.decode("def f(", model, compare=compare, **options)
            passes.append(answer.run.passes)
        assert ngramkit.history_inspect(history).requests == 2
    first, again, compared, compared_again = passes
    assert compared == first
    assert compared_again == again < first
    kept = ngramkit.decode("def f(", model, **options)
    with pytest.raises(UsageError, match="cannot compare an answer that the history remembers"):
        kept.compared()


def test_a_drafter_object_is_not_compared(model):
    """It may have learnt the answer."""
    options = {"model": model, "max_new_tokens": 8}
    with pytest.raises(UsageError, match="must be a name or a class, got one Context"):
        ngramkit.decode("def f(", drafter=Context(), compare=True, **options)
    answer = ngramkit.decode("def f(", drafter=Context(), **options)
    with pytest.raises(UsageError, match="must be a name or a class, got one Context"):
        answer.compared()
    assert ngramkit.decode("def f(", drafter=lambda: Context(), **options).compared().comparison


def test_what_makes_no_sense_is_told_before_the_model_is_loaded():
    with pytest.raises(UsageError, match="resst"):
        ngramkit.decode("x", "no/such-model", drafter="resst")
    with pytest.raises(UsageError, match="deep"):
        ngramkit.decode("x", "no/such-model", drafter="rest:deep=1")


def test_what_is_missing_is_told_before_the_model_is_loaded(monkeypatch, tmp_path):
    from ngramkit.decode import load

    shutil.copytree(resolve_model("demo"), tmp_path / "mine")
    monkeypatch.setattr(load, "load_weights", lambda *a, **k: pytest.fail("it was loaded"))
    with pytest.raises(ArtifactError, match="no datastore for mine"):
        ngramkit.decode("x", "mine", drafter="rest")
    with pytest.raises(UsageError, match="no chat template"):
        ngramkit.decode("x", "mine", template="auto")
    assert not (tmp_path / "artifacts").exists()


def test_a_conversation_is_refused_by_a_model_of_code(model):
    with pytest.raises(UsageError, match="cannot hold a conversation"):
        ngramkit.decode("Hello", model, drafter="none", template="auto")
    told = ngramkit.decode("Q", model, drafter="none", template="vicuna", max_new_tokens=2)
    assert told.template == "vicuna"
    assert told.run.prompt_tokens > 40


def test_budgets_are_checked(model):
    with pytest.raises(UsageError, match="must be 1 to 4096"):
        ngramkit.decode("x", model, budget=0)


def test_a_calibration_is_kept_and_used(model, monkeypatch):
    from ngramkit.decode import calibrate

    monkeypatch.setattr(calibrate, "MAX_SPREAD", 1e9)  # whatever else this machine does
    few = partial(calibrate.measure_best_rounds, sizes=(0, 4), contexts=(32,))
    monkeypatch.setattr(calibrate, "measure_best_rounds", few)
    found = ngramkit.calibrate(model, seconds=0)
    assert found.path.exists()
    assert found.picture.exists()
    assert len(found.to_pandas()) == len(found.to_dict()["passes"])
    assert repr(found).startswith("<Calibration of demo on cpu")
    answer = ngramkit.decode("x = ", model, drafter="none", max_new_tokens=2)
    assert answer.budget == "auto"


def test_the_verb_and_the_package_are_one_name(model):
    import ngramkit.decode.loop

    assert inspect.ismodule(ngramkit.decode)
    assert ngramkit.decode("x", model, drafter="none", max_new_tokens=1).run.passes == 0
