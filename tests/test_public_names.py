"""What programs use: the package's own example runs, and every public name is there."""

from __future__ import annotations

import importlib
import inspect
import json
import pydoc
import textwrap
from pathlib import Path

import numpy as np
import pytest

import ngramkit
from ngramkit.basics.errors import UsageError
from ngramkit.basics.kinds import KIND_OF_ROLE
from ngramkit.corpus.open import CorpusWords
from ngramkit.drafters.sources import Sources, SourceWords, given_sources
from ngramkit.engines.config import DraftConfig
from ngramkit_cli.options import SourceOptions


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
HAND_ON = {"custom_generate", "generate"}  # keywords of transformers' own, which refuses others


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, "Conversation"} - HAND_ON))
def test_a_function_shows_its_words_and_names_the_near_ones(name):
    function = getattr(ngramkit, name)
    parameters = inspect.signature(function).parameters.values()
    if name != "load_drafter":  # whose options are those of the drafter
        assert all(each.kind != each.VAR_KEYWORD for each in parameters)
    shown = pydoc.plain(pydoc.render_doc(function))
    assert all(each.name in shown for each in parameters)
    near = [each.name for each in parameters if each.kind == each.KEYWORD_ONLY][:1]
    first = () if name not in ("load_drafter", "inspect") else ("rest",)
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_word'"):
        function(*first, no_such_word=1)
    for word in near:
        with pytest.raises(TypeError, match=rf"did you mean {word}\?"):
            function(*first, **{f"{word}_": 1})


@pytest.mark.parametrize(
    ("words", "function", "beside"),
    [
        (CorpusWords, ngramkit.open_corpus, {"corpus", "reporter"}),
        (SourceWords, given_sources, {"artifacts"}),
    ],
)
def test_the_words_for_editors_are_those_of_the_function(words, function, beside):
    assert set(words.__annotations__) | beside == set(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    "drafting",
    [Sources, SourceWords, given_sources, ngramkit.load_drafter, ngramkit.DecodeOptions,
     DraftConfig, SourceOptions],
)  # fmt: skip
def test_every_role_of_an_artifact_is_a_word_of_all_that_drafts(drafting):
    words = getattr(drafting, "__annotations__", {}).keys()
    for role in KIND_OF_ROLE:
        assert words & {role, role.removesuffix("s")}, f"{drafting} lacks {role}"


def test_the_defaults_of_words_that_are_handed_on_are_those_of_where_they_go():
    target = inspect.signature(ngramkit.open_corpus).parameters
    for builder in (ngramkit.tokenize, ngramkit.build_datastore, ngramkit.build_frozen):
        own = inspect.signature(builder).parameters
        assert all(
            own[word].default == target[word].default for word in CorpusWords.__annotations__
        )
    bench = inspect.signature(ngramkit.bench).parameters
    options = inspect.signature(ngramkit.DecodeOptions).parameters
    shared = ("temperature", "device", "budget", "datastores", "history")
    assert all(bench[word].default == options[word].default for word in shared)


def test_the_same_words_ask_for_the_same_drafts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import os\nimport sys\n\n\ndef main():\n    pass\n"
    store = ngramkit.build_datastore([text] * 3, "store", model="demo")
    (tmp_path / "answers.jsonl").write_text(json.dumps({"prompt": text[:9], "output": text[9:]}))
    asked = {"model": "demo", "drafters": "rest", "budgets": [4], "template": "none"}
    by_role = ngramkit.replay("answers.jsonl", datastores=[store], **asked)
    by_kind = ngramkit.replay("answers.jsonl", artifacts=[store], **asked)
    assert by_role[0].total.passes == by_kind[0].total.passes < by_role[0].total.tokens
    with pytest.raises(UsageError, match="beside curves"):
        ngramkit.replay("answers.jsonl", artifacts={"": [store]}, datastores=[store], **asked)
    by_role.plot(tmp_path / "replay.png")
    assert (tmp_path / "replay.png").read_bytes().startswith(b"\x89PNG")
