"""Sources are checked against the engine's model: another tokenizer's artifacts are refused."""

from __future__ import annotations

import json
import logging
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from test_sglang import Req

from ngramkit.basics.errors import ArtifactError
from ngramkit.builders.datastore import build_datastore
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.engines.config import CONFIG_VARIABLE
from ngramkit.engines.llama_cpp import Drafter
from ngramkit.engines.sglang import NgramCorpus
from ngramkit.engines.source import load_engine_tokenizer, require_same_encoding
from ngramkit.engines.tensorrt_llm import BASE_MODULE, make_drafter
from ngramkit.engines.vllm import Proposer
from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

WORDS = ["<s>", "</s>", "?", "Hello", "world", "in", "100%", "if", "a", "b", "\u0120world", "!"]
TEXT = [3, 4, 5, 6, 7, 8, 9, 10] * 4


def save(folder, split, added=()):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "?"))
    backend.pre_tokenizer = getattr(pre_tokenizers, split)()
    full = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    full.add_tokens(list(added))
    full.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders: the artifact's own model, one that splits otherwise, one with a token more."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "own": save(folder / "own", "WhitespaceSplit"),
        "other": save(folder / "other", "Punctuation"),
        "tuned": save(folder / "tuned", "WhitespaceSplit", ["<tool>"]),
    }


@pytest.fixture
def built(models, token_store, tmp_path, monkeypatch):
    """A datastore of the model "own", in NGRAMKIT_DRAFT."""
    record = load_tokenizer(models["own"]).record
    build_datastore(token_store([TEXT], record=record), tmp_path / "d")
    said = {"datastores": [f"{tmp_path}/d"], "min_probability": 0.01, "vocabulary": 12}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(said))
    return [SimpleNamespace(path="the datastore", tokenizer=record)]


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_tokenizers_are_compared_by_what_they_encode(built, models, caplog):
    require_same_encoding(built, load_engine_tokenizer(models["own"]))
    assert warnings(caplog) == []
    require_same_encoding(built, load_engine_tokenizer(models["tuned"]))
    assert warnings(caplog) == ["the datastore and the engine's model: their vocabularies differ"]
    with pytest.raises(ArtifactError, match=r"encodes .* differently"):
        require_same_encoding(built, load_engine_tokenizer(models["other"]))
    assert require_same_encoding([], load_engine_tokenizer(models["other"])) is None


def test_a_function_that_encodes_is_compared(built, models):
    own, other = (load_tokenizer(models[name]).backend for name in ("own", "other"))
    require_same_encoding(built, lambda text: own.encode(text, add_special_tokens=False).ids)
    with pytest.raises(ArtifactError, match="cannot use the datastore: it was built for"):
        require_same_encoding(built, lambda text: other.encode(text, add_special_tokens=False).ids)


def test_what_cannot_be_compared_is_logged(built, caplog):
    require_same_encoding(built, None)
    require_same_encoding(built, SimpleNamespace(encode=str))  # a tokenizer of another kind
    older = TokenizerRecord("some/model", 12, "ab" * 32)
    require_same_encoding([SimpleNamespace(path="an old one", tokenizer=older)], lambda text: [])
    assert load_engine_tokenizer("/nowhere/at/all") is None
    said = warnings(caplog)
    assert ["number of ids" in each for each in said] == [True, True, True, False]
    assert "older format" in said[2]
    assert "cannot load the tokenizer" in said[3]


def vllm_config(tokenizer, **more):
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=4),
        model_config=SimpleNamespace(
            max_model_len=64, get_vocab_size=lambda: 12, tokenizer=tokenizer, **more
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        additional_config={},
    )


def test_vllm_compares_when_it_starts(built, models, caplog):
    assert Proposer(vllm_config(models["own"])).enabled
    assert warnings(caplog) == []
    with pytest.raises(ArtifactError, match="Build it with the model's own"):
        Proposer(vllm_config(models["other"]))
    assert Proposer(vllm_config(models["other"], skip_tokenizer_init=True)).enabled
    assert len(warnings(caplog)) == 1


def test_sglang_compares_at_its_first_request_and_drafts_nothing(built, models, caplog):
    def drafted(name):
        corpus = NgramCorpus(draft_token_num=4)
        request = Req("a", TEXT[:5])
        request.tokenizer = load_engine_tokenizer(models[name])
        for _ in range(2):
            corpus.see([request])
        return corpus.batch_get(["a"], [TEXT[:5]], [5])[0].tolist()

    assert drafted("own") == [7, 8, 9, 10]
    assert warnings(caplog) == []
    assert drafted("other") == [7, 0, 0, 0]
    (said,) = warnings(caplog)
    assert "nothing is drafted" in said


@pytest.mark.parametrize(("name", "added"), [("own", 1), ("other", 0)])
def test_sglang_adds_nothing_to_another_tokenizers_history(
    name, added, models, tmp_path, monkeypatch
):
    past = History.at(tmp_path / "h", load_tokenizer(models["own"]).record)
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"history": str(past.path), "vocabulary": 12}))
    corpus = NgramCorpus(draft_token_num=4)
    request = SimpleNamespace(
        rid="a", origin_input_ids_unpadded=TEXT[:5], output_ids=TEXT[5:7], finished_reason=None,
        tokenizer=load_engine_tokenizer(models[name]),
    )  # fmt: skip
    corpus.see([request])
    request.finished_reason = object()
    corpus.see([request])
    corpus.see([])
    corpus.history.flush()
    assert len(History.open(past.path).news()[0]) == added


class Llama(SimpleNamespace):
    """A stand-in that may be referenced weakly."""


def test_llama_cpp_compares_on_request(built, models, caplog):
    def llama(name):
        backend = load_tokenizer(models[name]).backend

        def tokenize(text, add_bos=True, special=False):
            assert (add_bos, special) == (False, True)
            return backend.encode(text.decode(), add_special_tokens=False).ids

        return Llama(
            tokenize=tokenize, scores=np.empty((64, 1)), n_ctx=lambda: 64, n_vocab=lambda: 12
        )

    tokens = np.array(TEXT[:5], np.intc)
    drafter = Drafter()
    drafter.check(llama("own"))
    assert len(drafter(tokens)) > 0
    assert warnings(caplog) == []
    with pytest.raises(ArtifactError, match="differently"):
        drafter.check(llama("other"))
    unchecked = Drafter()
    assert len(unchecked(tokens)) == len(unchecked(tokens)) > 0
    assert len(warnings(caplog)) == 1  # said once


def test_tensorrt_llm_compares_what_it_is_given(built, models, caplog, monkeypatch):
    parts = BASE_MODULE.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    module.Drafter = type("Drafter", (), {})
    make_drafter(4, tokenizer=models["own"])
    make_drafter(4, tokenizer=load_engine_tokenizer(models["own"]))
    assert warnings(caplog) == []
    with pytest.raises(ArtifactError, match="differently"):
        make_drafter(4, tokenizer=models["other"])
    make_drafter(4)
    assert len(warnings(caplog)) == 1
