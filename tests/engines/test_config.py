"""NGRAMKIT_DRAFT: what it may hold, and the message of each mistake."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.engines.batch import BatchDrafter
from ngramkit.engines.check import check_engine
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.llama_cpp import Drafter
from ngramkit.engines.metrics import Statistics
from ngramkit.engines.source import open_source
from ngramkit.engines.tensorrt_llm import make_drafter


def test_all_keys():
    given = {"drafter": "blend:scan=32", "datastores": ["hf://me/chat@v1"], "history": "past",
             "min_probability": 0.4, "tokens": 8, "budget": 16, "sessions": 64, "threads": 2,
             "pause": False, "log_steps": 9, "metrics": "m.prom", "bigram": "b", "unigram": "u",
             "frozen_table": "f", "vocabulary": 9}  # fmt: skip
    config = DraftConfig.read(json.dumps(given))
    assert config.datastores == ("hf://me/chat@v1",)
    assert {key: getattr(config, key) for key in given} == {
        **given,
        "datastores": ("hf://me/chat@v1",),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"drafer": "blend"}', "unknown key 'drafer'"),
        ('{"drafter": "blnd"}', "'blnd'"),
        ('{"drafter": "rest:max_match=0"}', "max_match must be at least 1"),
        ('{"drafter": 7}', "drafter of NGRAMKIT_DRAFT must be a text"),
        ('{"datastores": "d"}', "must be a list of folders"),
        ('{"min_probability": 1.5}', "min_probability of NGRAMKIT_DRAFT must be 0 to 1"),
        ('{"min_probability": true}', "must be 0 to 1"),
        ('{"min_probability": NaN}', "NaN"),
        ('{"tokens": 0}', "tokens of NGRAMKIT_DRAFT must be a whole number, 1 to 64"),
        ('{"threads": 2.0}', "threads"),
        ('{"pause": 1}', "pause of NGRAMKIT_DRAFT must be true or false"),
        ('{"pause": true, "pause": false}', "twice"),
        ('{"history": 7}', "history of NGRAMKIT_DRAFT must be a folder, or true"),
        ('{"history": true, "history_by": "user"}', "must be one of lora, salt, key"),
        ('{"history": true, "history_days": 0}', "must be a number above 0"),
        ('{"history": true, "history_tokens": 0}', "whole number"),
        ('{"history_days": 3}', "history_days of NGRAMKIT_DRAFT: it needs a history"),
        ('{"history": false, "history_prompts": true}', "history_prompts of NGRAMKIT_DRAFT:"),
        ('{"store": false}', "store of NGRAMKIT_DRAFT: it needs a history"),
        ('{"history": true, "history_days": 3}', "a history in memory has no folder"),
        ('{"history": true, "history_bytes": 65536}', "a history in memory has no folder"),
        (
            '{"history": "h", "store": false, "history_days": 3}',
            "with store false nothing is added",
        ),
        ('{"history": "h", "store": false, "history_bytes": 65536}', "history_bytes of NGRAMKIT"),
        (
            '{"history": "h", "store": false, "history_prompts": true}',
            "history_prompts of NGRAMKIT",
        ),
        ('{"history": true, "store": false}', "a history in memory then stays empty"),
        ('{"metrics": "m.prom", "log_steps": 0}', "each line in the log, and log_steps is 0"),
        ('{"min_probability": 0, "pass_cost": 2}', "pass_cost of NGRAMKIT_DRAFT: min_probability"),
        ('{"min_probability": 0.1, "clock": true}', "clock of NGRAMKIT_DRAFT: min_probability"),
        ('{"pass_cost": 2, "clock": true}', "clock of NGRAMKIT_DRAFT: pass_cost replaces it"),
        (" ", "NGRAMKIT_DRAFT must be JSON or a path, got ' '"),
        ('{"history": true, "store": 1}', "store of NGRAMKIT_DRAFT must be true or false"),
        ('{"pass_cost": [1]}', "pass_cost of NGRAMKIT_DRAFT must be a number"),
        ("[1]", "no such file"),
        ("{", "not JSON"),
    ],
)
def test_each_mistake_has_its_message(text, says):
    with pytest.raises((UsageError, InputError)) as caught:
        DraftConfig.read(text)
    assert says.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)
    assert caught.value.hint or "must be" in str(caught.value)


def test_switches_that_are_off_may_stand_next_to_what_replaces_them():
    given = {"min_probability": 0.1, "clock": False, "history": "h", "history_days": 3}
    assert DraftConfig.read(given).clock is False
    given = {"history": "h", "store": False, "history_prompts": False, "history_by": "key"}
    assert DraftConfig.read(given).store is False


@pytest.mark.parametrize("vocabulary", [0, -1, 1 << 31, "100", 100.0, True])
def test_a_vocabulary_is_a_number_of_ids(vocabulary):
    """A kernel would write beyond its arrays."""
    for build in (BatchDrafter.open, open_source):
        with pytest.raises((UsageError, TypeError), match="vocabulary must be"):
            build(DraftConfig(), vocabulary=vocabulary)
    with pytest.raises((UsageError, TypeError), match="vocabulary must be"):
        Drafter(vocabulary=vocabulary)


@pytest.mark.parametrize("config", [{"drafter": "context"}, {}, '{"drafter": "context"}'])
def test_a_configuration_in_python_is_a_draft_config(config):
    for build in (Drafter, BatchDrafter.open, partial(make_drafter, 8)):
        with pytest.raises(TypeError, match="config must be a DraftConfig"):
            build(config, vocabulary=100)


def test_an_engine_is_a_name():
    with pytest.raises(TypeError, match="engine must be a text, got 5"):
        check_engine(5)


@pytest.mark.parametrize("key", ["pass_cost", "clock"])
def test_engines_that_do_not_price_passes_refuse_a_price(key):
    config = DraftConfig.parse({key: True if key == "clock" else 1.1})
    for engine in ("vllm", "llama-cpp"):
        config.refuse_keys_of_other_engines(engine)
    with pytest.raises(UsageError, match=f"cannot use {key} with sglang"):
        config.refuse_keys_of_other_engines("sglang")


def test_a_file_may_hold_it(tmp_path, monkeypatch):
    path = tmp_path / "draft.json"
    path.write_text('{"drafter": "context:query=3"}')
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    config = DraftConfig.from_environment()
    assert config is not None
    assert config.drafter == "context:query=3"
    path.write_text("[1]")
    with pytest.raises(InputError, match="must be a JSON object"):
        DraftConfig.from_environment()
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    assert DraftConfig.from_environment() is None


def test_a_path_or_a_mapping_is_a_configuration(tmp_path):
    path = tmp_path / "draft.json"
    path.write_text('{"tokens": 3}')
    assert DraftConfig.read(path) == DraftConfig.read({"tokens": 3}) == DraftConfig(tokens=3)
    for given in (path, str(path), {"tokens": 3}, '{"tokens": 3}'):
        checked = check_engine("sglang", model="demo", draft=given)
        assert checked.notes[-1] == "tokens has no effect in this engine"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (5, TypeError, "draft must be a mapping, JSON or a path, got 5"),
        ({"tokens": 0}, UsageError, "tokens of draft must be a whole number, 1 to 64, got 0"),
        ({"x": 1}, UsageError, "unknown key 'x' in draft"),
        ("{", InputError, "draft: not JSON"),
        ("none.json", InputError, "cannot read none.json: No such file or directory"),
        (Path("{"), InputError, "cannot read {: No such file or directory"),
    ],
)
def test_errors_name_draft_and_not_the_variable(given, error, says):
    with pytest.raises(error) as caught:
        check_engine("vllm", draft=given)
    assert str(caught.value).startswith(says)
    assert CONFIG_VARIABLE not in str(caught.value)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "draft.json").write_text('{"datastores": ["~/d", "hf://me/x"], "metrics": "~/m"}')
    monkeypatch.setenv(CONFIG_VARIABLE, "~/draft.json")
    config = DraftConfig.from_environment()
    assert config is not None
    assert config.datastores == (f"{tmp_path}/d", "hf://me/x")
    assert (config.metrics, config.history) == (f"{tmp_path}/m", None)


def test_artifacts_that_cannot_be_opened_are_named(tmp_path):
    with pytest.raises(UsageError, match="needs an artifact or a tokenizer"):
        open_source(DraftConfig())
    with pytest.raises(UsageError, match="rest: it needs a datastore"):
        open_source(DraftConfig("rest"), 100)
    with pytest.raises(ArtifactError):
        open_source(DraftConfig(datastores=(str(tmp_path / "none"),)), 100)
    with pytest.raises(ArtifactError, match="no such history"):
        open_source(DraftConfig(history=str(tmp_path / "none"), store=False), 100)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sessions", -1), ("threads", 0), ("tokens", 3.5), ("pause", "no"), ("store", 1),
        ("datastores", "mine"), ("history", 5), ("drafter", None), ("min_probability", 2),
        ("history_by", "user"), ("pass_cost", True), ("metrics", Path("m")),
    ],
)  # fmt: skip
def test_a_config_of_wrong_values_is_not_made(key, value):
    with pytest.raises(UsageError, match=f"{key} of the configuration must be"):
        DraftConfig(**{key: value})


def test_keys_with_their_defaults_are_not_logged(caplog):
    DraftConfig(pause=True, sessions=5).log_unused(("pause", "tokens"), "this engine")
    assert caplog.records == []
    DraftConfig(pause=False, tokens=5, budget=5).log_unused(("pause", "tokens"), "this engine")
    assert [each.getMessage() for each in caplog.records] == [
        "this engine: these keys have no effect: pause, tokens"
    ]


def test_another_tokenizers_artifact_is_refused(token_store, tmp_path):
    from ngramkit.builders.datastore import build_datastore

    build_datastore(token_store([[1, 2, 3]], 500), tmp_path / "d")
    config = DraftConfig(datastores=(str(tmp_path / "d"),))
    with pytest.raises(ArtifactError, match="the engine's model has 499"):
        open_source(config, 499)
    assert open_source(config, 512).vocabulary == 500
    assert DraftConfig(datastores=[str(tmp_path / "d")]) == config  # a list is a tuple too


@pytest.mark.parametrize("name", ["blend", "cacheback", "context", "prompt-lookup", "none"])
def test_drafters_that_need_no_artifact_serve(name):
    drafter = BatchDrafter.open(DraftConfig(name, min_probability=0.01), vocabulary=100)
    tokens = [*range(20)] * 3
    (chain,) = drafter.chain_batch([tokens[:50]], [4])
    length = 0 if name == "none" else 4
    assert chain.token_ids.tolist() == tokens[50 : 50 + length]


def test_a_drafter_that_wants_evidence_gets_a_warning(caplog):
    with caplog.at_level("WARNING", "ngramkit"):
        open_source(DraftConfig("recycling"), 100)
    assert [each.getMessage() for each in caplog.records] == [
        "the drafter recycling needs evidence, which engines do not give"
    ]


def test_statistics_are_logged_and_written(tmp_path, caplog):
    config = DraftConfig("context", log_steps=2, metrics=str(tmp_path / "m.prom"))
    drafter = BatchDrafter.open(config, vocabulary=100)
    with caplog.at_level("INFO", "ngramkit"):
        for end in range(30, 36):
            drafter.chain_batch([[*range(10)] * 3 + [*range(end - 30)]], [4])
    assert sum("accepted" in each.message for each in caplog.records) == 3
    text = (tmp_path / "m.prom").read_text()
    assert text == drafter.statistics.prometheus()
    assert f"ngramkit_draft_tokens_total {drafter.statistics.draft_tokens}\n" in text
    for name in ("ngramkit_accepted_tokens_total", "ngramkit_draft_seconds_total"):
        assert f"# TYPE {name} counter\n{name} " in text
    assert [p.name for p in tmp_path.iterdir()] == ["m.prom"]


def test_metrics_that_cannot_be_written_stop_nothing(tmp_path, caplog):
    config = DraftConfig("context", log_steps=1, metrics=str(tmp_path / "no" / "m.prom"))
    drafter = BatchDrafter.open(config, vocabulary=100)
    for _ in range(3):
        drafter.chain_batch([[1, 2, 1]], [4])
    assert sum("nothing more is written" in each.message for each in caplog.records) == 1
    assert isinstance(drafter.statistics, Statistics)
