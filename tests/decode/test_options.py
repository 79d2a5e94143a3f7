"""DecodeOptions: the command line's words, from Python, and what makes no sense in them."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

import ngramkit
from ngramkit import DecodeOptions, SpeCache, UsageError
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.open import open_corpus
from ngramkit.decode import answer, conversation
from ngramkit.drafters.sources import PastUse, Sources
from ngramkit_cli.main import app

# Options of the command that are no words of DecodeOptions.
OF_THE_TERMINAL = {
    "prompt", "prompt_file", "color", "json", "debug", "help", "bits", "group", "kv_top_k",
    "residual", "speculative", "cache_dir", "cache_size", "verbose", "quiet",
}  # fmt: skip
RENAMED = {"datastore": "datastores", "reference": "references", "no_store": "store"}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_words_of_the_command_line_work_from_python(tmp_path):
    (tmp_path / "corpus.txt").write_text("def main():\n    return 0\n" * 40)
    tokens = tokenize(open_corpus(str(tmp_path / "corpus.txt")), "demo", tmp_path / "tokens")
    store = build_datastore(tokens, tmp_path / "mine")
    answer = ngramkit.decode(
        "def main(", "demo", chat=True, template="chatml", system="Be brief.", drafter="rest",
        datastores=[store.path], temperature=0.7, top_k=40, seed=3, budget=4, max_new_tokens=6,
    )  # fmt: skip
    assert (answer.drafter.label, answer.template, answer.budget) == ("rest", "chatml", 4)
    assert answer.drafter.names == [str(store.path)]
    assert len(answer.run.token_ids) <= 6
    again = ngramkit.decode(
        "def main(", model="demo", artifacts=[store.path], drafter="rest", max_new_tokens=6
    )
    assert again.drafter.names == [str(store.path)]


def test_a_list_of_prompts_gives_a_list_of_answers():
    answers = ngramkit.decode(["a = ", "b = "], "demo", drafter="none", max_new_tokens=2)
    assert [len(answer.run.token_ids) for answer in answers] == [2, 2]
    assert ngramkit.decode([], "demo", drafter="none") == []


def test_every_option_is_a_parameter_and_reaches_the_options(monkeypatch):
    seen = []

    def options_of(model, **others):
        seen.append({"model": model, **others})
        raise InterruptedError

    monkeypatch.setattr(answer, "DecodeOptions", options_of)
    monkeypatch.setattr(conversation, "DecodeOptions", options_of)
    given = {field.name: object() for field in fields(DecodeOptions)}
    of_talk = {*given} - {"chat", "cache", "compare", "show"}
    with pytest.raises(InterruptedError):
        ngramkit.decode("x", **given)
    with pytest.raises(InterruptedError):
        ngramkit.Conversation(**{name: given[name] for name in of_talk})
    decoded, talk = seen
    assert decoded == given
    assert talk == {"chat": True, **{name: given[name] for name in of_talk}}


def test_the_command_line_has_no_words_of_its_own():
    words = set(inspect.signature(DecodeOptions).parameters)
    for option in get_command(app).commands["decode"].params:
        name = RENAMED.get(option.name, option.name)
        assert name in words | OF_THE_TERMINAL, name


def test_sources_by_role_or_by_kind():
    options = DecodeOptions(
        datastores=["a"], bigram="b", history="h", history_tokens=9, store=False
    )
    past = PastUse(Path("h"), 9, store=False)
    assert options.sources() == Sources(("a",), bigram="b", past=past)
    assert DecodeOptions().sources() == Sources()
    sources = Sources(unigram="u")
    assert DecodeOptions(artifacts=sources).sources() is sources
    assert DecodeOptions(artifacts=sources, history="h").sources().past.path == Path("h")
    with pytest.raises(UsageError, match="artifacts must be"):
        DecodeOptions(artifacts=sources, bigram="b").sources()


def test_a_cache_can_be_named():
    assert DecodeOptions(cache="full").cache is None
    assert DecodeOptions(cache="specache").cache == SpeCache()
    assert DecodeOptions(cache="low-bit").cache == SpeCache().without_fetching()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"drafter": "resst"}, "unknown drafter"),
        ({"budget": 0}, "must be 1 to 4096"),
        ({"budget": "ten"}, "budget must be"),
        ({"verify": "rows"}, "unknown verify mode 'rows'"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"top_k": 4}, "top_k or top_p"),
        ({"system": "Be brief."}, "cannot use system"),
        ({"datastores": "artifacts/mine"}, "datastores must be a list"),
        ({"stop": "end"}, "stop must be a list"),
        ({"references": "text"}, "references must be a list"),
        ({"cache": "specache", "budget": 4}, "cannot use budget"),
        ({"cache": "specache", "compare": True}, "cannot use compare"),
        ({"cache": "specache", "drafter": "rest"}, "SpeCache"),
        ({"cache": "all"}, "unknown cache"),
        ({"drafter": "rest", "references": ["text"]}, "cannot draft from references"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(words, said):
    with pytest.raises(UsageError, match=said):
        DecodeOptions(**words)
