"""`check-engine`, and what vLLM's commands tell before they load a model."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_vllm import released

import ngramkit
from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.budget.crossover import (
    ASSUMED_ACCEPTANCE,
    ASSUMED_CONTEXT,
    gain_of_drafts,
    stops_paying,
)
from ngramkit.budget.model_cost import ModelCost
from ngramkit.budget.model_size import ModelSize
from ngramkit.budget.pass_times import pass_times
from ngramkit.builders.datastore import build_datastore
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.engines import check, vllm_modes
from ngramkit.engines.config import CONFIG_VARIABLE, DraftConfig
from ngramkit.engines.growing_history import tenant_folder
from ngramkit.engines.options_file import read_options
from ngramkit.engines.sglang_server_options import effects_of_sglang_options
from ngramkit.engines.vllm_modes import V1_CLASS, why_not_v2_before_start
from ngramkit.engines.vllm_server_options import config_in_options, effects_of_vllm_options
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

ROOT = Path(__file__).parents[2]
EXPERTS = ModelSize(dense=1e8, expert=1.5e7, experts=64, chosen=6)


@pytest.fixture
def built(token_store, tmp_path, monkeypatch):
    """A datastore of the embedded model's tokenizer, in NGRAMKIT_DRAFT."""
    tokenizer = load_tokenizer("demo")
    text = [*tokenizer.encode(f"{check.PROMPT_TEXT} it depends, as ever.")] * 3
    path = build_datastore(token_store([text], record=tokenizer.record), tmp_path / "d").path
    monkeypatch.setenv(CONFIG_VARIABLE, f'{{"datastores": ["{path}"]}}')
    return path


def test_an_engine_s_artifacts_tokenizer_and_draft_are_told(built):
    checked = ngramkit.check_engine("vllm", model="demo", budget=4)
    assert (checked.engine, checked.source, checked.drafter) == ("vllm", CONFIG_VARIABLE, "blend")
    assert [(a.path, a.kind) for a in checked.artifacts] == [(str(built), "datastore")]
    assert checked.draft.startswith(" it depends")
    assert 0 < checked.draft_tokens <= 4
    assert checked.milliseconds > 0
    assert checked.to_dict()["artifacts"][0]["vocabulary"] == 4096


def test_what_passes_cost_and_where_drafts_stop_paying(built):
    checked = ngramkit.check_engine("vllm", model="demo", budget=4)
    costs = [each.cost for each in checked.passes]
    assert costs[0] == 1
    assert costs == sorted(costs)
    assert checked.passes_by == "the config of demo, on a GPU"
    first, last = checked.passes[0], checked.passes[-1]
    assert first.drafted == 4
    assert first.speed > last.speed > 1
    assert checked.pays_below is None  # the model is tiny: most of a pass reads contexts
    given = f'{{"datastores": ["{built}"], "pass_cost": "1:50,9:100"}}'
    dear = ngramkit.check_engine("llama-cpp", draft=given, budget=4)
    assert (dear.passes_by, dear.passes[3].tokens) == ("pass_cost", 8)
    assert dear.passes[3].cost == pytest.approx(1.875)
    assert dear.passes[-1].speed == 1
    assert 8 < dear.pays_below < 16
    assert all(each.padded <= each.speed for each in checked.passes)
    assert ngramkit.check_engine("sglang", budget=4).passes[-1].padded < 1


@pytest.mark.parametrize("size", [None, EXPERTS])
@pytest.mark.parametrize("acceptance", [0.3, 0.7])
def test_no_draft_pays_from_where_they_stop_paying(size, acceptance):
    """The naive twin tries every number of requests."""
    times = ModelCost(24, size)
    ends = stops_paying(times, 3, acceptance)
    paying = [n for n in range(1, 400) if gain_of_drafts(times, n, 3, acceptance).drafted]
    assert ends == (max(paying) + 1 if paying else 1)


def test_the_file_of_a_running_server_s_metrics_is_left_as_it_is(built, tmp_path):
    metrics = tmp_path / "x.prom"
    metrics.write_text("a server's")
    config = f'{{"datastores": ["{built}"], "metrics": "{metrics}", "log_steps": 1}}'
    assert ngramkit.check_engine("vllm", draft=config).draft_tokens > 0
    assert metrics.read_text() == "a server's"
    assert [each.name for each in tmp_path.iterdir() if each != built] == ["x.prom"]


def test_without_a_model_a_datastore_s_own_text_is_drafted_for(built, monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE)
    checked = ngramkit.check_engine("sglang", draft=f'{{"datastores": ["{built}"]}}')
    assert (checked.model, checked.prompt, checked.draft) == (None, None, None)
    assert checked.draft_tokens > 0


def test_what_cannot_work_is_refused(built, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown engine 'vlm'"):
        ngramkit.check_engine("vlm")
    with pytest.raises(ArtifactError, match="no such artifact"):
        ngramkit.check_engine("vllm", draft=f'{{"datastores": ["{tmp_path}/nowhere"]}}')
    with pytest.raises(ArtifactError, match="no such history"):
        ngramkit.check_engine(
            "vllm", draft=f'{{"history": "{tmp_path}/past", "store": false}}', model="demo"
        )
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ArtifactError, match=r"cannot write the history .*: Not a directory"):
        ngramkit.check_engine("vllm", draft={"history": str(file / "past")}, model="demo")
    for metrics in (tmp_path / "nowhere" / "x.prom", tmp_path):
        with pytest.raises(InputError, match="cannot write metrics to"):
            ngramkit.check_engine("vllm", draft=f'{{"metrics": "{metrics}"}}', model="demo")
    with pytest.raises(UsageError, match="unknown key 'datastore'"):
        ngramkit.check_engine("vllm", draft='{"datastore": "d"}')
    for engine, by in (("vllm", "salt"), ("tensorrt-llm", "key"), ("llama-cpp", "lora")):
        with pytest.raises(UsageError, match=f'history_by="{by}": {engine}'):
            ngramkit.check_engine(engine, draft=f'{{"history": true, "history_by": "{by}"}}')
    with pytest.raises(UsageError, match="cannot use clock"):
        ngramkit.check_engine("sglang", draft='{"clock": true}', model="demo")
    monkeypatch.delenv(CONFIG_VARIABLE)
    with pytest.raises(UsageError, match="configuration or a model"):
        ngramkit.check_engine("vllm")


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("store", [True, False])
def test_a_history_of_tenants_is_opened_as_an_engine_does(own, store, tmp_path):
    record = load_tokenizer("demo").record if own else TokenizerRecord.unknown(9)
    History.at(tmp_path / "h" / tenant_folder(""), record).append(np.array([1, 2], np.int32), 0)
    draft = {"history": str(tmp_path / "h"), "history_by": "key", "store": store}
    if own:
        assert ngramkit.check_engine("vllm", model="demo", draft=draft).prompt == check.PROMPT_TEXT
    else:
        with pytest.raises(ArtifactError, match="it was built for the tokenizer"):
            ngramkit.check_engine("vllm", model="demo", draft=draft)


def test_a_clock_is_for_the_engine_whose_passes_it_times(built):
    draft = f'{{"clock": true, "datastores": ["{built}"]}}'
    checked = ngramkit.check_engine("llama-cpp", draft=draft, model="demo")
    assert checked.draft.startswith(" it depends")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        (
            '{"history": true, "history_by": "salt"}',
            'cannot use history_by="salt": vllm does not pass it to drafters. Use "lora" or "key".',
        ),
        ('{"datastores": ["/nowhere"]}', "no such artifact: /nowhere. Check the path"),
        (
            '{"history": "/nowhere", "store": false}',
            "no such history: /nowhere. Check the path",
        ),
        ('{"history": "/usr"}', "/usr: it exists and is not a history"),
        (
            '{"history": "hf://me/past"}',
            "history must be a folder of this machine, got hf://me/past",
        ),
        ('{"history_by": "lora"}', "history_by of NGRAMKIT_DRAFT: it needs a history"),
        (
            '{"frozen_table": "DATASTORE"}',
            "must be a frozen-table, got a datastore",
        ),
        ('{"drafer": "rest"}', "Did you mean drafter?"),
    ],
)
def test_a_server_tells_a_wrong_configuration_before_its_model_is_loaded(
    built, text, says, monkeypatch
):
    monkeypatch.setenv(CONFIG_VARIABLE, text.replace("DATASTORE", str(built)))
    with pytest.raises((UsageError, InputError)) as caught:
        plugin()()
    assert says in str(caught.value)
    assert str(caught.value).startswith(CONFIG_VARIABLE)
    assert "\n" not in str(caught.value)


def test_a_right_configuration_and_none_are_left_alone(built, monkeypatch):
    plugin()()
    monkeypatch.delenv(CONFIG_VARIABLE)
    plugin()()


def test_vllm_s_workers_can_look_through_all_modules(built):
    """In 0.33 on a CPU they do, when they start, and fail at one of llvmlite's."""
    code = "import sys, ngramkit.engines.vllm_plugin as plugin; plugin.plugin()\n"
    code += "assert not {'numba', 'llvmlite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_it_shows_which_of_vllms_runners_would_draft(built, monkeypatch):
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setenv("VLLM_PLUGINS", "other,ngramkit")
    modes = ngramkit.check_engine("vllm").modes
    assert [(mode.runner, mode.mode) for mode in modes] == [
        ("V2", "fixed"), ("V2", "trimmed"), ("V2", "adaptive"), ("V1", "trimmed"),
    ]  # fmt: skip
    assert all("vllm#" in mode.known for mode in modes if mode.mode in ("fixed", "adaptive"))
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    modes = ngramkit.check_engine("vllm").modes
    assert [mode.usable for mode in modes] == [False, False, False, True]
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in modes[0].known
    assert len(ngramkit.check_engine("sglang").modes) == 0


@pytest.mark.parametrize(("named", "got"), [("", "nothing"), ("other,third", "other,third")])
def test_it_says_that_vllm_was_told_to_leave_ngramkit_out(built, monkeypatch, named, got):
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setenv("VLLM_PLUGINS", named)
    modes = ngramkit.check_engine("vllm").modes
    assert [mode.usable for mode in modes] == [False, False, False, True]
    assert f"VLLM_PLUGINS must name ngramkit, got {got};" in modes[0].known


def plugin():
    """Return the function that vLLM loads by its entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["vllm.general_plugins"]["ngramkit"].partition(":")
    return getattr(importlib.import_module(module), name)


def test_the_command_prints_what_was_found(built, ngramkit_cli):
    [done] = ngramkit_cli(["check-engine", "vllm", "--model", "demo"])
    assert done.code == 0, done.err
    assert "tried with 0.32.0, 0.33.0" in done.out
    assert "encodes as that of demo" in done.out
    assert " it depends" in done.out


def test_what_drafts_come_from_and_what_is_learnt(built, tmp_path):
    def check(**config):
        given = ngramkit.check_engine("vllm", model="demo", draft=json.dumps(config))
        assert given.history == config.get("history")
        return given.drafts_from, given.learns, given.notes

    own, store = "the text of the request itself", f"{built}, a datastore"
    assert check(datastores=[str(built)]) == ((own, store), "nothing", ())
    learns = "the answers of finished requests, in memory"
    assert check(history=True) == ((own,), learns, ())
    only = "only the request's own text is drafted from: add datastores or a history"
    assert check(drafter="context") == ((own,), "nothing", (only,))
    unused = f"{built} is not used: ssd does not draft from it"
    missing = "there is nothing to draft from until requests finish"
    assert check(drafter="ssd", datastores=[str(built)], history=True) == (
        (), learns, (missing, unused)
    )  # fmt: skip
    folder = str(tmp_path / "past")
    found = check(history=folder, history_prompts=True, history_by="lora")
    assert found[1] == (
        f"the prompts and answers of finished requests, in {folder}, one history for each lora"
    )
    notes = ngramkit.check_engine("sglang", model="demo", draft='{"tokens": 3}').notes
    assert notes[-1] == "tokens has no effect in this engine"
    evidence = "recycling needs the model's top-k, which engines do not give"
    assert evidence in check(drafter="recycling")[2]


def test_a_history_that_decoding_wrote_is_counted(tmp_path):
    past = str(tmp_path / "past")
    for prompt in ("import os\n", "def main("):
        ngramkit.decode(prompt, "demo", drafter="ssd", history=past, max_new_tokens=8)
    draft = json.dumps({"history": past})
    for model in (None, "demo"):
        found = ngramkit.check_engine("vllm", model=model, draft=draft)
        assert found.drafts_from == ("the text of the request itself", "2 past requests")


@pytest.mark.parametrize("draft", [{"history": True}, {"history": "new"}])
def test_without_an_artifact_a_model_is_needed(draft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="without a model: it has no artifact") as caught:
        ngramkit.check_engine("vllm", draft=draft)
    assert caught.value.hint == "Give model."


V2, NGRAM = (
    "Model Runner V2, ",
    ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}'],
)
ADAPTIVE = '{"method": "ngram", "enable_adaptive_verification": true}'
V1 = ["-sc", '{"method": "custom_class", "model": "ngramkit.engines.vllm.Proposer"}']
OPTIONS = {
    "fixed": (NGRAM, [f"{V2}fixed mode: asynchronous scheduling"]),
    "trimmed": ([*NGRAM, "--no-async-scheduling"], [f"{V2}trimmed mode: --no-async-scheduling"]),
    "adaptive, two stages": (
        ["--spec-tokens=5", "-sc", ADAPTIVE, "-pp", "2"],
        [f"{V2}adaptive mode", "refuses adaptive.*pipeline", "ranks read no clock"],
    ),
    "adaptive, LoRA": (
        ["--spec-tokens=5", "-sc", ADAPTIVE, "--enable_lora", "--enforce-eager"],
        [f"{V2}adaptive mode", "refuses adaptive.*LoRA", "refuses adaptive.*full CUDA graphs"],
    ),
    "underscores": (
        ["--speculative_config", NGRAM[1], "--no_async_scheduling"],
        [f"{V2}trimmed mode"],
    ),
    "shortcuts": (["--spec-method", "ngram", "--spec-tokens", "5"], [f"{V2}fixed mode"]),
    "abbreviations": (
        ["--speculative", NGRAM[1], "--no-async", "--tensor=2"],
        [f"{V2}trimmed mode", "ranks read no clock"],
    ),
    "an inferred method": (["--spec-model=ngram", "--spec-tokens=5"], [f"{V2}fixed mode"]),
    "prompts in parallel": ([*NGRAM, "-pcp", "2"], [f"{V2}fixed", "refuses prefill context"]),
    "parallel drafts": (
        ["--spec-tokens=5", "-sc", '{"method": "ngram", "parallel_drafting": true}'],
        ["cannot draft in .* V2: it lacks parallel drafting"],
    ),
    "torchrun": (
        [*NGRAM, "-pp=2", "--distributed-executor-backend=external_launcher"],
        ["cannot draft in .* V2: it lacks pipeline parallelism with external_launcher", "no clock"],
    ),
    "on the GPU": (
        ["--spec-tokens=5", "--spec-method=ngram_gpu"],
        ["cannot draft in .* V2: method must be ngram, got ngram_gpu"],
    ),
    "V1": (
        ["--spec-tokens", "8", *V1],
        ["Model Runner V1, trimmed mode"],
    ),
    "V1, inferred": (
        ["--spec-tokens=8", f"--spec-model={V1_CLASS}"],
        ["Model Runner V1, trimmed mode"],
    ),
    "V1, as V2": (
        ["--spec-tokens=8", "-sc", '{"enable-adaptive-verification": true}', "--spec-method",
         "custom_class", "--spec-model", V1_CLASS, "--async-scheduling"],
        ["Model Runner V1", "refuses asynchronous", "refuses adaptive verification in .* V1"],
    ),
    "another class": (
        ["--spec-tokens=8", "--spec-method=custom_class", "--spec-model=me.Proposer"],
        [f"model must be {V1_CLASS}, got me.Proposer"],
    ),
    "no speculation": (["-sc", "None"], ["method must be ngram, got nothing", "write"]),
    "no drafts": (["--max-num-seqs", "8"], ["does not draft", "write --speculative-config"]),
    "a draft model": (["-sc", '{"method": "eagle"}'], ["must be ngram, got eagle", "write"]),
    "ranks": (
        [*NGRAM, "--tensor-parallel-size=2", "-dp", "2", "--enable-lora"],
        [f"{V2}fixed", "no clock", "data-parallel", "LoRA"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_what_follows_from_vllms_options(name):
    words, expected = OPTIONS[name]
    found = list(effects_of_vllm_options(read_options(words), DraftConfig()))
    assert len(found) == len(expected)
    assert all(re.search(part, line) for part, line in zip(expected, found, strict=True)), found


TREES = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens"]


@pytest.mark.parametrize(
    ("engine", "options", "keys", "length", "padded"),
    [
        ("vllm", [], {}, 8, True),
        ("vllm", [], {"tokens": 4}, 8, True),
        ("vllm", NGRAM, {"tokens": 4}, 5, True),
        ("vllm", [*NGRAM, "--no-async-scheduling"], {"tokens": 4}, 4, False),
        ("vllm", [*NGRAM, "--no-async-scheduling"], {}, 5, False),
        ("vllm", ["--spec-tokens=5", "-sc", ADAPTIVE], {}, 5, False),
        ("vllm", V1, {}, 8, False),
        ("sglang", [*TREES, "16"], {"tokens": 4}, 15, True),
        ("sglang", [*TREES, "1"], {}, 8, True),
        ("sglang", [*TREES, "100000000"], {}, 512, True),
        ("sglang", [], {}, 8, True),
        ("sglang", [], {"budget": 4}, 4, True),
        ("llama-cpp", [], {"tokens": 16}, 16, False),
        ("tensorrt-llm", [], {}, 8, False),
    ],
)
def test_drafts_are_as_long_as_the_server_asks_for(built, engine, options, keys, length, padded):
    draft = {"datastores": [str(built)], **keys}
    checked = ngramkit.check_engine(engine, draft=draft, options=options)
    assert (checked.budget, checked.padded) == (length, padded)
    times = pass_times(None, None, "cpu" if engine == "llama-cpp" else "cuda")
    assert checked.pays_below == stops_paying(times, length, padded=padded)
    assert ngramkit.check_engine(engine, draft=draft, options=options, budget=3).budget == 3


def test_the_budget_of_sglang_leaves_padding_that_is_verified(built):
    """Drafts of 4 nodes are padded to 15."""
    draft = {"datastores": [str(built)], "budget": 4}
    checked = ngramkit.check_engine("sglang", draft=draft, options=[*TREES, "16"])
    times = pass_times()
    assert (checked.budget, checked.padded) == (4, True)
    for row in checked.passes:
        assert row.drafted <= 4
        written = 1 + sum(ASSUMED_ACCEPTANCE**depth for depth in range(1, 5))
        plain, padded = times.times(np.array([1.0, 16.0]) * row.tokens, row.tokens, ASSUMED_CONTEXT)
        assert row.padded == pytest.approx(written * plain / padded, abs=1e-3)
    assert checked.pays_below == stops_paying(times, 4, padded=True, slots=15)
    assert checked.pays_below < stops_paying(times, 4, padded=True)


@pytest.mark.parametrize(
    ("engine", "options", "keys", "note"),
    [
        ("vllm", [], {"pause": False}, "no effect in the fixed mode, vLLM's default: pause$"),
        ("vllm", [], {"tokens": 4, "budget": 4}, "vLLM's default: tokens, budget$"),
        ("vllm", ["--no-async-scheduling"], {"pause": False}, None),
        ("sglang", [], {"min_probability": 0.3}, "^min_probability shortens only chains"),
        ("sglang", [], {"pause": False}, "^pause has no effect in this engine without min_prob"),
        ("llama-cpp", [], {"pause": False, "min_probability": 0.3}, None),
    ],
)
def test_keys_without_effect_are_noted_also_without_options(built, engine, options, keys, note):
    draft = {"datastores": [str(built)], **keys}
    notes = ngramkit.check_engine(engine, draft=draft, options=options).notes
    assert re.search(note, *notes) if note else not notes


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--speculative-num-draft-tokens", "1"], "trees of 0 nodes; a pass verifies 1 tokens"),
        *(
            (
                ["--speculative-num-draft-tokens", size],
                "SGLang cannot draft: --speculative-num-draft-tokens must be at least 1, got "
                f"{size}",
            )
            for size in ("0", "-3")
        ),
        *(
            (
                ["--speculative-ngram-max-bfs-breadth", breadth],
                "SGLang cannot draft: --speculative-ngram-max-bfs-breadth must be at least 1, got "
                f"{breadth}",
            )
            for breadth in ("0", "-3")
        ),
        (["--enable-dp-attention"], "SGLang refuses n-gram drafts with --enable-dp-attention"),
    ],
)
def test_values_that_sglang_cannot_use_are_named(options, line):
    found = effects_of_sglang_options(read_options([*SGLANG, *options]), DraftConfig())
    assert [each for each in found if each.startswith(line)]


FILE_OF_OPTIONS = """\
model: me/model
speculative-config:
  method: ngram
  num_speculative_tokens: 5
  prompt_lookup_max: 4
additional_config: {ngramkit: {drafter: context, pause: false, budget: 9, min_probability: 0.2}}
async-scheduling: false
tensor-parallel-size: 2
stop: [a, b]
dtype: float32
quantization: nvfp4
"""


def test_a_file_of_options_is_read_as_by_vllm(monkeypatch, tmp_path):
    """Options after it override it; what is false is left out, as vLLM 0.33.0 does."""
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    file = tmp_path / "o.yaml"
    file.write_text(FILE_OF_OPTIONS)

    def effects(*words, config=None):
        return list(effects_of_vllm_options(read_options(words), config))

    found = effects("--config", str(file))
    assert found == [
        f"{V2}fixed mode: asynchronous scheduling",
        f"async-scheduling: false in {file} has no effect: vLLM leaves out what is false; write "
        "no-async-scheduling: true",
        "in this mode these keys have no effect: budget, min_probability, pause",
        "only vLLM's own n-gram drafter uses prompt_lookup_max",
        "pass costs follow from the model's config: ranks read no clock, so clock is refused",
    ]
    changed = effects("-tp", "1", "--config", str(file), "--no-async-scheduling")
    assert changed[0] == f"{V2}trimmed mode: --no-async-scheduling"
    assert changed[1] == "in this mode these keys have no effect: budget"
    assert not [line for line in changed if line.startswith("pass costs")]
    (own, _) = effects("--config", str(file), "--additional-config", "{}")
    assert own.startswith("ngramkit does not draft, but vLLM's own")
    method = effects("--config", str(file), "-sc", '{"method": "eagle"}')[0]
    assert method.endswith("got eagle")
    *_, unread = effects(f"--config={file}")
    assert unread == "--config=FILE is not read: write --config FILE"
    given = DraftConfig(tokens=3)
    ignored = effects("--config", str(file), config=given)
    assert "in this mode these keys have no effect: tokens" in ignored
    overridden = "ngramkit in --additional-config has no effect: the other configuration overrides"
    assert f"{overridden} it" in ignored


def test_vllms_parser_reads_a_file_of_options_so():
    """`vllm serve` asks the outer parser, which knows no option that could follow --no-."""
    parser = released("vllm/utils/argparse_utils.py")
    for part in (
        'if "--config" in args:',
        'elif (no_key := f"--no-{key}") in self._option_string_actions:',
        "args[: model_index + 1]\n                    + config_args\n",
        'if extension not in ("yaml", "yml"):',
        "elif isinstance(value, dict):",
    ):
        assert part in parser
    main = released("vllm/entrypoints/cli/main.py")
    assert main.index("FlexibleArgumentParser(\n") < main.index("parser.add_subparsers(")
    assert 'Literal["auto", "half", "float16", "bfloat16", "float", "float32"]' in released(
        "vllm/config/model.py"
    )


def test_the_configuration_of_vllms_options_is_checked(built, monkeypatch, tmp_path):
    monkeypatch.delenv(CONFIG_VARIABLE)
    file = tmp_path / "o.yml"
    file.write_text(json.dumps({"additional-config": {"ngramkit": {"datastores": [str(built)]}}}))
    words = [*NGRAM, "--config", str(file)]
    checked = ngramkit.check_engine("vllm", options=words)
    assert [each.path for each in checked.artifacts] == [str(built)]
    assert checked.source == "ngramkit in --additional-config"
    ours = [*V1, "--spec-tokens", "8", "--config", str(file)]
    of_v1 = ngramkit.check_engine("vllm", options=ours)  # whose adapter reads it too
    assert (list(of_v1.artifacts), of_v1.source) == (list(checked.artifacts), checked.source)
    assert of_v1.effects == ("Model Runner V1, trimmed mode: method is custom_class",)
    for wrong, says in (("[]", "must be an object"), ('{"x": 1}', "unknown key 'x'")):
        with pytest.raises(UsageError, match=says):
            ngramkit.check_engine(
                "vllm", options=["--additional-config", f'{{"ngramkit": {wrong}}}']
            )


def test_sglang_reads_a_file_of_options_too(tmp_path):
    file = tmp_path / "o.yaml"
    file.write_text("speculative-algorithm: NGRAM\nskip-tokenizer-init: true\ntp: 2\n")
    words = ["--config", str(file), "--tp", "1"]
    found = list(effects_of_sglang_options(read_options(words), DraftConfig()))
    assert [line.split(" ")[0] for line in found] == ["trees", "texts"]


ALIASES = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 8)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read .*: No such file"),
        ("a: [", "cannot read .*: it is not YAML in line 1"),
        ("a: b\nc: d: e", "it is not YAML in line 2"),
        (b"\xff\xfe\xff", "it is not YAML"),
        ("[" * 5000, "it is not YAML"),
        ("a: 2001-99-99", "it is not YAML"),
        ("", "must be an object whose keys are options, got NoneType"),
        ("- a", "got list"),
        ("5: a", "got other keys"),
        ("a: &x {b: *x}", "cannot read a of the config file"),
        ("a: {[1]: 2}", "it is not YAML"),
        ("x" * (1 << 16) + ": 1", "more than 65,536 bytes"),
        (ALIASES, "cannot read f of the config file"),  # it has 8 ** 6 texts
        ("a: &a " + "x" * 1000 + "".join(f"\no{i}: *a" for i in range(2000)), "cannot read o10"),
    ],
    ids=range(14),
)
def test_a_file_that_does_not_hold_options_is_refused(text, says, tmp_path):
    file = tmp_path / "o.yaml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=says):
        list(effects_of_vllm_options(read_options(["--config", str(file)]), None))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--config"], "got no file"),
        (["--config", "a.yaml", "--config", "b.yaml"], "got 2 times config"),
        (["--config", "a.json"], r"must end in .yaml or .yml, got a\.json"),
    ],
)
def test_one_file_of_options_is_read(words, says):
    with pytest.raises(UsageError, match=says):
        list(effects_of_vllm_options(read_options(words), None))


def test_nothing_drafts_unless_it_is_asked_for(monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    for engine, words in (("vllm", NGRAM), ("sglang", SGLANG)):
        (found,) = ngramkit.check_engine(engine, model="demo", options=words).effects
        assert re.match(f"ngramkit does not draft, .*: set {CONFIG_VARIABLE}", found)
        monkeypatch.setenv(CONFIG_VARIABLE, "{}")
        (found,) = ngramkit.check_engine(engine, model="demo", options=words).effects
        assert re.match("Model Runner V2|trees", found)
        monkeypatch.delenv(CONFIG_VARIABLE)
    for own in ("{}", '{"drafter": "context"}'):
        asked = ["--additional_config", f'{{"ngramkit": {own}}}']
        (found,) = effects_of_vllm_options(read_options([*NGRAM, *asked]), None)
        assert found.startswith(f"{V2}fixed")


def test_a_runner_that_will_not_start_is_not_promised(monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    assert list(effects_of_vllm_options(read_options(NGRAM), DraftConfig())) == [
        "cannot draft in vLLM's Model Runner V2: VLLM_USE_V2_MODEL_RUNNER=0 asks for Model Runner "
        "V1"
    ]


def test_several_api_servers_carry_predictions_only_by_the_variable():
    words = [*NGRAM, "-asc", "2", "--additional-config", '{"ngramkit": {}}']
    assert list(effects_of_vllm_options(read_options(words), None))[1:] == [
        f"prediction is ignored with several API servers: set {CONFIG_VARIABLE}"
    ]
    given = list(effects_of_vllm_options(read_options(words[:4]), DraftConfig()))
    assert given == [f"{V2}fixed mode: asynchronous scheduling"]


def test_a_runner_that_lacks_the_method_is_not_promised(monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    words = [*V1, "--spec-tokens=8"]
    assert list(effects_of_vllm_options(read_options(words), DraftConfig())) == [
        "Model Runner V1, trimmed mode: method is custom_class",
        "vLLM refuses custom_class: VLLM_USE_V2_MODEL_RUNNER asks for Model Runner V2",
    ]


@pytest.mark.parametrize(("version", "backends"), [("0.33.0+cpu", []), ("0.33.0", ["cpu"])])
def test_v2_is_not_promised_without_triton(version, backends, monkeypatch):
    """A build for CPUs needs a backend for them, other builds the package."""
    monkeypatch.setattr(vllm_modes, "find_spec", lambda name: None)
    found = [SimpleNamespace(name=name) for name in backends]
    monkeypatch.setattr(vllm_modes, "entry_points", lambda *, group: found)
    assert why_not_v2_before_start(version) == "it needs Triton, which was not found"
    found.append(SimpleNamespace(name="cpu"))
    monkeypatch.setattr(vllm_modes, "find_spec", lambda name: found[0])
    assert why_not_v2_before_start(version) is why_not_v2_before_start(None) is None


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("--additional_config.ngramkit.drafter", "additional-config"),
        ("--speculative-config.method=ngram", "speculative-config"),
        ("-sc.method", "speculative-config"),
    ],
)
def test_keys_with_dots_are_refused(word, option):
    name = word.replace("_", "-")
    with pytest.raises(UsageError, match=f"^cannot read {name}: it is one key of an obj") as error:
        config_in_options(read_options([*NGRAM, "--hf-overrides.a", "1", word, "context"]))
    assert error.value.hint == f"Give {option} as JSON, with all its keys."


def test_passes_cost_what_the_stored_weights_do(tmp_path):
    demo = Path(ngramkit.__file__).parent / "demo" / "model"
    shutil.copytree(demo, tmp_path / "m")
    path, model = tmp_path / "m" / "config.json", str(tmp_path / "m")

    def checked(options=(), **how):
        values = json.loads((demo / "config.json").read_text())
        path.write_text(json.dumps({**values, **({"quantization_config": how} if how else {})}))
        found = ngramkit.check_engine("sglang", model=model, options=options)
        return list(found.passes), found.passes_by

    plain, by = checked()
    four, _ = checked(bits=4)
    assert four[-1].cost > plain[-1].cost
    assert checked(["--quantization", "nvfp4"]) == checked(["-q=nvfp4"]) == (four, by)
    assert checked(["--quantization", "fp8"], bits=4) == (four, by)
    file = tmp_path / "o.yaml"
    file.write_text("quantization: nvfp4\ndtype: auto\n")
    assert checked(["--config", str(file)]) == (four, by)
    wide, _ = checked(["--dtype", "float32"], bits=4)
    assert wide[-1].cost > four[-1].cost
    assert checked(["--dtype", "float"], bits=4) == (wide, by)
    assert checked(["--config", str(file), "--dtype=float32"]) == (wide, by)
    assert checked(["--dtype", "half"], bits=4) == (four, by)
    with pytest.raises(UsageError, match="unknown dtype 'float33'") as refused:
        checked(["--dtype", "float33"])
    assert refused.value.hint.startswith("Did you mean float32?")
    for weights in (tmp_path / "m").glob("*.safetensors"):
        weights.unlink()
    assert checked(bits=4) == (four, by)  # a config is enough
    note = "; weights of the unknown quantisation 'odd' count 16 bits"
    assert checked(quant_method="odd") == (plain, by + note)
    path.unlink()
    only_tokenizer = ngramkit.check_engine("sglang", model=model, draft="{}")
    assert only_tokenizer.passes_by == "a dense model, on a GPU"


def test_passes_on_a_cpu_cost_what_the_adapter_supposes(monkeypatch):
    monkeypatch.setattr("ngramkit.engines.check.version_of", lambda name: "0.33.0+cpu")
    checked = ngramkit.check_engine("vllm", model="demo")
    assert checked.passes_by == "the config of demo, on a CPU"
    llama = ngramkit.check_engine("llama-cpp", model="demo")
    assert list(checked.passes) == list(llama.passes)


SGLANG = ["--speculative-algorithm", "NGRAM"]
OF_SGLANG = {
    "trees": ([*SGLANG, "--speculative-num-draft-tokens=16"], ["trees of 15 nodes; a pass verif"]),
    "chains": ([*SGLANG, "--speculative-ngram-max-bfs-breadth", "1"], ["chains of one node less"]),
    "another": (["--speculative-algorithm", "EAGLE"], ["does not draft: .* got EAGLE"]),
    "tokenizers": (
        [*SGLANG, "--tokenizer-worker-num", "2"],
        ["trees of one node less", "several tokenizer workers refuse no wrong text"],
    ),
    "abbreviated": (["--speculative-algo=NGRAM"], ["trees of one node less"]),
    "none": (["--tp", "2"], ["does not draft: .* got nothing"]),
    "its corpus": (
        [*SGLANG, "--speculative-ngram-external-corpus-path", "a.jsonl",
         "--speculative-ngram-max-trie-depth", "9", "--tp-size", "2", "--skip-tokenizer-init"],
        ["trees", "refused: build a datastore", "max-trie-depth has no effect", "not tried",
         "token ids only"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_SGLANG)
def test_what_follows_from_sglangs_options(name):
    words, expected = OF_SGLANG[name]
    found = list(effects_of_sglang_options(read_options(words), DraftConfig()))
    assert len(found) == len(expected)
    assert all(re.search(part, line) for part, line in zip(expected, found, strict=True)), found
    assert ngramkit.check_engine(
        "sglang", model="demo", draft="{}", options=words
    ).effects == tuple(found)


def test_options_that_cannot_be_read_are_refused():
    for words in (["-tp", "two"], ["-sc", "{"], ["-sc", "[]"], ["-sc"]):
        with pytest.raises(UsageError):
            list(effects_of_vllm_options(read_options(words), DraftConfig()))
    with pytest.raises(UsageError, match="cannot read options"):
        list(effects_of_sglang_options(read_options([*SGLANG, "--tp", "two"]), DraftConfig()))
    with pytest.raises(UsageError, match="options of llama-cpp, only of vllm and sglang"):
        ngramkit.check_engine("llama-cpp", model="demo", options=["--x"])
    with pytest.raises(UsageError, match="options must be a list"):
        ngramkit.check_engine("vllm", model="demo", options="--x")
