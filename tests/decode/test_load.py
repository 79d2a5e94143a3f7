"""Loading a model to decode with: at a revision, quantised, spread over devices."""

from __future__ import annotations

import json
import os
import shutil
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.models import resolve_model, split_revision
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import load, placement
from ngramkit.decode.load import load_model, quantisation_method
from ngramkit.decode.verify_tree import TreeVerifier
from ngramkit.drafters.base import DraftTree

DEMO = files("ngramkit") / "demo" / "model"
SWITCH = "TRANSFORMERS_SDPA_FORCE_GQA"


@pytest.fixture
def quantised(tmp_path):
    """The embedded model, whose config says that it is quantised."""
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())

    def by(**how):
        config["quantization_config"] = how
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return by


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "of tomorrow"}, "of tomorrow"),
    ],
)
def test_what_a_quantised_checkpoint_lacks_is_said(quantised, how, named):
    with pytest.raises(InputError, match=rf"quantised \({named}\)"):
        load_model(quantised(**how), device="cpu")


class Unmoved:
    """A model whose weights must stay as they are."""

    is_quantized = True

    def eval(self):
        return self

    def to(self, *_):
        raise ValueError("`.to` is not supported for quantised models")


def test_a_quantised_model_is_neither_moved_nor_cast(quantised, monkeypatch):
    told = {}

    def from_pretrained(source, **options):
        told.update(options)
        return Unmoved()

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    folder = quantised(quant_method="gptq", bits=4)
    assert isinstance(load_model(folder, device="cpu").model, Unmoved)
    safe = {"trust_remote_code": False, "weights_only": True}
    assert told == {"revision": None, "dtype": "auto", **safe}
    # A GPU's is loaded to where it is to be.
    monkeypatch.setattr(load, "choose_device", lambda name: torch.device("cuda:1"))
    load_model(folder, dtype="bfloat16")
    assert told["dtype"] == torch.bfloat16
    assert told["device_map"] == {"": torch.device("cuda:1")}


def test_how_a_checkpoint_is_quantised():
    assert quantisation_method(SimpleNamespace()) is None
    assert (
        quantisation_method(SimpleNamespace(quantization_config={"quant_method": "fp8"})) == "fp8"
    )
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    assert quantisation_method(SimpleNamespace(quantization_config=config)) == "bitsandbytes"


def test_a_device_map_without_accelerate_is_said(monkeypatch):
    monkeypatch.setattr(placement, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="cannot use device_map: it needs"):
        load_model("demo", device_map="auto")


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("acme/tiny@v1", None, ("acme/tiny", "v1")),
        ("acme/tiny@refs/pr/3", None, ("acme/tiny", "refs/pr/3")),
        ("acme/tiny@v1", "v1", ("acme/tiny", "v1")),
        ("acme/tiny", "v1", ("acme/tiny", "v1")),
        ("vicuna-7b@main", None, ("vicuna-7b", "main")),
        ("demo", None, ("demo", None)),
    ],
)
def test_a_revision_stands_behind_the_name(name, given, found):
    assert split_revision(name, given) == found


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("acme/tiny@", None, "must be ID@REVISION"),
        ("@v1", None, "must be ID@REVISION"),
        ("acme/tiny@v1", "v2", "one revision"),
    ],
)
def test_revisions_that_make_no_sense(name, given, said):
    with pytest.raises(UsageError, match=said):
        split_revision(name, given)


def test_folders_have_no_revisions_but_may_have_such_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DEMO, tmp_path / "mine@home")
    assert resolve_model("mine@home") == "mine@home"
    assert load_tokenizer("mine@home").record.vocabulary == 4096
    for name in ("demo@v1", "mine@home@v1"):
        with pytest.raises(UsageError, match="is a folder"):
            load_tokenizer(name)
    assert resolve_model("vicuna-7b@v1") == "lmsys/vicuna-7b-v1.5"


def test_every_command_takes_a_revision(hub, ngramkit_cli, tmp_path):
    held = {each.name: each.read_bytes() for each in DEMO.iterdir()}
    first = hub.add("model", "acme/pinned", held)
    first.tags["v1"] = first.refs["main"]
    hub.add("model", "acme/pinned", {"README.md": b"nothing is left"})
    (tmp_path / "text.py").write_text("def main(self):\n    return self.name\n" * 20)
    done = ngramkit_cli(
        ["decode", "--model", "acme/pinned@v1", "--prompt", "def", "--max-new-tokens", 4, "--json",
         "--drafter", "context"],
        ["tokenize", "--model", "acme/pinned@v1", "--corpus", "text.py", "--json"],
        ["model-bigram", "acme/pinned@v1", "--k", 2, "--json"],
        ["decode", "--model", "acme/pinned", "--prompt", "def", "--json"],
        ["decode", "--model", "acme/pinned@v2", "--prompt", "def", "--json"],
        env=hub.environment(tmp_path / "home"),
    )  # fmt: skip
    codes = [each.code for each in done]
    assert codes[:3] == [0, 0, 0], [each.err for each in done]
    assert all(codes[3:])
    assert len(done[0].json["token_ids"]) == 4
    assert "v2" in done[4].err


@pytest.mark.skipif(
    torch.__version__ < "2.9" or torch.accelerator.is_available(), reason="heads are copied there"
)
def test_a_tree_copies_no_keys_for_the_heads_that_share_them(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    model = load_model("demo", device="cpu").model
    config, heads, attend = model.config, [], torch.nn.functional.scaled_dot_product_attention

    def listen(query, key, value, **words):
        heads.append(key.shape[1])
        return attend(query, key, value, **words)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", listen)

    def logits():
        with torch.inference_mode():
            verifier = TreeVerifier(model, room=16)
            verifier.prefill(np.arange(5, dtype=np.int32))
            heads.clear()
            return verifier.verify(5, siblings(3))

    shared = logits()
    assert set(heads) == {config.num_key_value_heads}
    monkeypatch.setenv(SWITCH, "0")
    assert torch.equal(logits(), shared)
    assert set(heads) == {config.num_attention_heads}


def test_a_switch_of_the_users_own_stays(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    load_model("demo", device="cpu")
    assert os.environ[SWITCH] == "0"


def test_with_another_device_heads_are_copied_as_ever(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    load_model("demo", device="cpu")
    assert SWITCH not in os.environ


def siblings(count):
    """Return a draft of `count` tokens that all follow the root."""
    nodes = np.arange(count, dtype=np.int32)
    return DraftTree(nodes, nodes * 0 - 1, np.ones(count, np.float32), np.zeros(count, np.uint8))


def test_too_little_memory_is_not_called_a_fault_of_the_model(monkeypatch):
    def without_memory(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", without_memory)
    with pytest.raises(torch.OutOfMemoryError):
        load_model("demo", device="cpu")
