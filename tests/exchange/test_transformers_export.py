"""A folder for custom_generate, loaded by transformers itself."""

from __future__ import annotations

import sys

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList

import ngramkit
from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.basics.models import resolve_model
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.exchange.transformers import export_folder
from ngramkit.formats.tokenizer_record import TokenizerRecord

PROMPT = "def read_config(path):\n    with open(path) as file:\n"


@pytest.fixture(scope="module")
def demo():
    source = resolve_model("demo")
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(source)


@pytest.fixture(scope="module")
def parts(tmp_path_factory, demo):
    """Artifacts of a text that the model writes, so that drafts fit."""
    model, tokenizer = demo
    folder = tmp_path_factory.mktemp("parts")
    ids = tokenizer(PROMPT, return_tensors="pt")
    text = tokenizer.decode(model.generate(**ids, max_new_tokens=80, do_sample=False)[0])
    (folder / "text.txt").write_text(text, encoding="utf-8")
    store = tokenize(open_corpus(str(folder / "text.txt")), "demo", folder / "tokens")
    return {
        "tokens": store,
        "datastore": build_datastore(store, folder / "datastore"),
        "frozen-table": build_frozen(store, folder / "frozen"),
    }


@pytest.fixture
def folder(parts, tmp_path, monkeypatch, request):
    """An exported folder; transformers copies its code below tmp_path."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "m"), *sys.path])
    before = set(sys.modules)
    out = tmp_path / "exported"
    export_folder(parts[request.param], out)
    yield out
    for name in set(sys.modules) - before:
        if name.startswith("transformers_modules"):
            del sys.modules[name]


def passes(model):
    """Counts the calls of the model from now on."""
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("folder", ["datastore", "frozen-table"], indirect=True)
def test_greedy_text_is_the_models_own_in_fewer_passes(folder, demo):
    tokenizer = demo[1]
    model = AutoModelForCausalLM.from_pretrained(resolve_model("demo"), dtype=torch.float32).eval()
    inputs, options = tokenizer(PROMPT, return_tensors="pt"), {"max_new_tokens": 40}
    hub = {"custom_generate": str(folder), "trust_remote_code": True, "tokenizer": tokenizer}
    hub["budget"] = 16  # what pays depends on the machine, passes of so many nodes do not
    calls = passes(model)
    alone = model.generate(**inputs, **options, do_sample=False)
    plain = len(calls)
    assert plain == alone.shape[1] - inputs.input_ids.shape[1] == 40
    first = model.generate(**inputs, **options, do_sample=False, **hub)
    before = len(calls)  # only the first call tries how the model verifies
    again = model.generate(**inputs, **options, do_sample=False, **hub)
    assert torch.equal(first, alone)
    assert torch.equal(again, alone)
    own = len(calls) - before
    assert own <= before - plain
    assert own < 0.6 * plain


class Banned:
    """A processor that looks at the ids so far: no token three times in a row."""

    def __init__(self):
        self.seen = []

    def __call__(self, ids, scores):
        self.seen.append(ids.shape[1])
        if ids.shape[1] > 1 and ids[0, -1] == ids[0, -2]:
            scores[0, ids[0, -1]] = -torch.inf
        return scores


@pytest.mark.parametrize("folder", ["datastore"], indirect=True)
@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "temperature": 0.8, "top_p": 0.9},
        {"do_sample": False, "stop_strings": ["return", "\n\n"]},
    ],
)
def test_generation_options_are_honoured(folder, demo, options):
    model, tokenizer = demo
    inputs = tokenizer(PROMPT, return_tensors="pt")
    wanted, banned = [], []
    for extra in ({}, {"custom_generate": str(folder), "trust_remote_code": True}):
        torch.manual_seed(0)
        banned.append(Banned())
        wanted.append(
            model.generate(
                **inputs, max_new_tokens=40, tokenizer=tokenizer, **options, **extra,
                logits_processor=LogitsProcessorList([banned[-1]]),
            )
        )  # fmt: skip
    assert torch.equal(*wanted)
    assert banned[0].seen == banned[1].seen[: len(banned[0].seen)]


@pytest.mark.parametrize("folder", ["datastore"], indirect=True)
def test_a_streamer_gets_every_token_once(folder, demo):
    model, tokenizer = demo
    inputs = tokenizer(PROMPT, return_tensors="pt")
    got = []

    class Streamer:
        def put(self, ids):
            got.extend(ids.flatten().tolist())

        def end(self):
            got.append("end")

    output = model.generate(
        **inputs, max_new_tokens=20, do_sample=False, streamer=Streamer(),
        custom_generate=str(folder), trust_remote_code=True,
    )  # fmt: skip
    assert got == [*output[0].tolist(), "end"]


@pytest.mark.parametrize("folder", ["datastore"], indirect=True)
def test_options_that_cannot_be_honoured_are_refused_by_name(folder, demo, tmp_path):
    model, tokenizer = demo
    hub = {"custom_generate": str(folder), "trust_remote_code": True, "max_new_tokens": 4}
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with pytest.raises(UsageError, match="beam"):
        model.generate(**inputs, **hub, num_beams=2)
    with pytest.raises(UsageError, match="unknown drafter"):
        model.generate(**inputs, **hub, drafter="resd")


@pytest.mark.parametrize("folder", ["datastore"], indirect=True)
def test_another_tokenizer_is_refused(folder, demo, word_model):
    model, tokenizer = demo
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with pytest.raises(ArtifactError, match="tokenizer"):
        model.generate(
            **inputs, custom_generate=str(folder), trust_remote_code=True, max_new_tokens=4,
            tokenizer=AutoTokenizer.from_pretrained(word_model),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "named", "base"),
    [
        ("/home/me/models/My-2.5/", "My-2.5", None),
        ("models/My-135M.Q4.gguf", "My-135M.Q4", None),
        ("vicuna-7b", "lmsys/vicuna-7b-v1.5", "lmsys/vicuna-7b-v1.5"),
        ("acme/model", "acme/model", "acme/model"),
    ],
)
def test_the_card_names_the_model_and_no_path_of_this_machine(
    token_store, tmp_path, model, named, base
):
    record = TokenizerRecord(model, 9, "ab" * 32)
    made = build_frozen(token_store([[1, 2, 3, 1, 2]], record=record), tmp_path / "f", leader_len=1)
    export_folder(made, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"frozen-table for {named}\n" in text
    assert f"tokenizer\nof {named}." in text
    assert yaml.safe_load(text.split("---\n")[1]).get("base_model") == base
    assert "home/me" not in text
    assert "models/" not in text


def test_a_kind_that_no_drafter_takes_is_not_exported(parts, tmp_path):
    with pytest.raises(UsageError, match="to transformers: it is a token store"):
        ngramkit.export(parts["tokens"], "transformers", tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match="exists"):
        export_folder(parts["datastore"], tmp_path / "x")
