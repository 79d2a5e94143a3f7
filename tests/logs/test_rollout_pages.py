"""What the page of the trainers tells to write is what ngramkit takes."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from ngramkit.engines.config import DraftConfig
from ngramkit.engines.vllm_wanted import uses_our_speculator
from ngramkit.logs.read import FORMATS

PAGE = (Path(__file__).parents[2] / "docs" / "rl" / "README.md").read_text(encoding="utf-8")
SECTIONS = {
    title.lower(): text
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def block(trainer, kind):
    """Return the first fenced block of that kind in a trainer's section."""
    return re.search(rf"```{kind}\n(.*?)```", SECTIONS[trainer], re.DOTALL).group(1)


def of_toml():
    return tomllib.loads(block("prime-rl", "toml"))["inference"]["vllm"]


def of_yaml():
    return yaml.safe_load(block("nemo-rl", "yaml"))["policy"]["generation"]["vllm_kwargs"]


def of_overrides():
    """The words of a command: KEY={...} of Hydra, + before it."""
    words = shlex.split(block("verl", "sh").replace("\\\n", " "))
    begin = "+actor_rollout_ref.rollout.engine_kwargs.vllm."
    given = dict(word.removeprefix(begin).split("=", 1) for word in words if begin in word)
    return {
        "speculative_config": yaml.safe_load(given["speculative_config"]),
        "additional_config": {"ngramkit": yaml.safe_load(given["additional_config.ngramkit"])},
    }


@pytest.mark.parametrize("options", [of_toml, of_yaml, of_overrides])
def test_options_of_vllm(options):
    given = options()
    speculative = SimpleNamespace(**given["speculative_config"])
    assert 0 < speculative.num_speculative_tokens <= 64
    config = {"speculative_config": speculative, "additional_config": given["additional_config"]}
    assert uses_our_speculator(SimpleNamespace(**config))
    assert DraftConfig.parse(given["additional_config"]["ngramkit"]).history == "/data/past"


def test_options_of_sglang():
    words = shlex.split(block("slime", "sh").replace("\\\n", " "))
    (runtime,) = [word for word in words if word.startswith("--runtime-env-json=")]
    variables = json.loads(runtime.partition("=")[2])["env_vars"]
    assert DraftConfig.read(variables["NGRAMKIT_DRAFT"]).history == "/data/past"
    assert words[words.index("--sglang-speculative-algorithm") + 1] == "NGRAM"


def test_every_trainer_has_a_format_that_is_read_and_the_page_says_how():
    assert {"verl", "nemo-rl", "prime-rl", "slime"} <= FORMATS.keys() & SECTIONS.keys()
    assert "ngramkit history import" in PAGE


def test_the_class_of_model_runner_v1_is_there():
    module, _, name = re.search(r"`model: ([\w.]+)`", PAGE)[1].rpartition(".")
    source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
    assert f"class {name}" in source
