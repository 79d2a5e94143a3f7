"""What programs use: the package's own example runs, and every public name is there."""

from __future__ import annotations

import importlib
import inspect
import json
import textwrap
from pathlib import Path

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.corpus.open import CorpusOptions
from ngramkit.decode.answer import decode
from ngramkit.drafters.sources import Sources, given_sources
from ngramkit.engines.config import DraftConfig
from ngramkit_cli.shared_options import SourceOptions


def test_the_example_of_the_package_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = next(part for part in ngramkit.__doc__.split("\n\n") if part.startswith("    "))
    names: dict = {"ngramkit": ngramkit}
    small = textwrap.dedent(block).replace('"demo")', '"demo", limit=3)')
    exec(small, names)
    drafter = names["drafter"]
    drafter.start(np.array([5, 6], np.int32))
    drafter.draft(8).check()
    drafter.accept(np.array([7], np.int32))
    drafter.finish()
    assert (
        ngramkit.open_artifact("artifacts/mine").manifest.build == names["datastore"].manifest.build
    )


def test_every_public_name_is_there():
    for name in ngramkit.__all__:
        assert getattr(ngramkit, name) is not None
    assert set(ngramkit.__all__) <= set(dir(ngramkit))


def test_a_module_with_the_name_of_a_public_function_is_callable():
    """Its import puts the module in the function's place."""
    modules = {path.stem for path in Path(ngramkit.__file__).parent.iterdir()}
    for name in modules & set(ngramkit.__all__):
        assert callable(importlib.import_module(f"ngramkit.{name}"))


FUNCTIONS = [
    name
    for name in ngramkit.__all__
    if callable(getattr(ngramkit, name)) and not isinstance(getattr(ngramkit, name), type)
]
HAND_ON = {"custom_generate", "generate"}  # keywords of transformers, which refuses others


def signature(name):
    """The parameters of a public function, of decode and drafters that of the called function."""
    home = importlib.import_module(ngramkit._HOMES[name])
    return inspect.signature(getattr(home, name)).parameters


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, "Conversation"} - HAND_ON - {"load_drafter"}))
def test_a_function_shows_its_parameters_and_refuses_others(name):
    assert all(each.kind != each.VAR_KEYWORD for each in signature(name).values())
    with pytest.raises(TypeError, match=r"no_such_word|missing"):
        getattr(ngramkit, name)(no_such_word=1)


@pytest.mark.parametrize(
    "drafting",
    [Sources, given_sources, ngramkit.load_drafter, ngramkit.DecodeOptions, decode,
     ngramkit.Conversation.__init__, ngramkit.bench, ngramkit.choose_drafter, ngramkit.replay,
     ngramkit.record, ngramkit.forecast, DraftConfig, SourceOptions],
)  # fmt: skip
def test_every_role_of_an_artifact_is_a_word_of_all_that_drafts(drafting):
    words = getattr(drafting, "__annotations__", {}).keys()
    for role in KIND_OF_ROLE:
        assert words & {role, role.removesuffix("s")}, f"{drafting} lacks {role}"


def defaults(thing):
    return {name: each.default for name, each in inspect.signature(thing).parameters.items()}


READERS = [name for name in FUNCTIONS if "licenses" in signature(name)]


def test_corpora_are_read_by_name():
    assert {"open_corpus", "tokenize", "build_datastore", "build_frozen"} <= set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_the_functions_that_read_a_corpus_take_its_options_with_its_defaults(name):
    assert defaults(CorpusOptions).items() <= defaults(getattr(ngramkit, name)).items()


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (ngramkit.bench, {"max_new_tokens"}),
        (ngramkit.record, {"max_new_tokens", "budget"}),
        (ngramkit.self_corpus, {"max_new_tokens", "template"}),
        (ngramkit.calibrate, set()),
        (ngramkit.model_bigram, set()),
        (ngramkit.model_unigram, set()),
        (ngramkit.Conversation, {"max_new_tokens"}),
        (ngramkit.replay, {"template"}),
        (ngramkit.forecast, {"template", "drafter"}),
        (ngramkit.choose_drafter, set()),
    ],
)
def test_a_parameter_of_decoding_has_one_default(function, own):
    known, given = defaults(ngramkit.DecodeOptions), defaults(function)
    shared = (known.keys() & given.keys()) - own - {"template"}
    assert len(shared) > 3
    assert {name: given[name] for name in shared} == {name: known[name] for name in shared}


def test_the_same_words_ask_for_the_same_drafts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import os\nimport sys\n\n\ndef main():\n    pass\n"
    store = ngramkit.build_datastore([text] * 3, "store", model="demo")
    (tmp_path / "answers.jsonl").write_text(json.dumps({"prompt": text[:9], "output": text[9:]}))
    asked = {"model": "demo", "drafters": "rest", "budgets": [4], "template": "none"}
    by_role = ngramkit.replay("answers.jsonl", datastores=[store], **asked)
    by_kind = ngramkit.replay("answers.jsonl", artifacts=[store], **asked)
    assert by_role[0].total.passes == by_kind[0].total.passes < by_role[0].total.tokens
    with pytest.raises(UsageError, match="artifacts must be the only sources"):
        ngramkit.replay("answers.jsonl", artifacts={"": [store]}, datastores=[store], **asked)
    by_role.plot(tmp_path / "replay.png")
    assert (tmp_path / "replay.png").read_bytes().startswith(b"\x89PNG")
