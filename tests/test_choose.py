"""The drafter and artifacts taken by default, and those never taken or made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from choosing import MINE, chosen
from reporters import Notes

from ngramkit.basics.errors import ArtifactError, InputError, UsageError
from ngramkit.basics.kinds import KIND_OF_ROLE, KINDS, Kind
from ngramkit.basics.progress import SILENT
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.choose import choose_drafter
from ngramkit.default_artifacts import select_default_artifacts
from ngramkit.drafters.asked import asked_drafters
from ngramkit.drafters.sources import PastUse, Sources
from ngramkit.drafters.spec import DrafterSpec
from ngramkit.formats.manifest import Manifest
from ngramkit.formats.outputs import AUTOMATIC, Found
from ngramkit.formats.tokens import TokenStore

DEMO = replace(MINE, id="demo")  # another name for the same ids
BIG, SMALL = [[1, 2, 3, 4, 5]] * 40, [[1, 2, 3, 4]]


@pytest.fixture
def here(tmp_path, monkeypatch, token_store):
    """here(kind, name, documents, record): an artifact under artifacts/."""
    monkeypatch.chdir(tmp_path)

    def build(kind, name, documents, record=MINE, corpus=None):
        corpus = corpus or {"id": "made-up", "documents": documents}
        store = token_store(documents, record=record, corpus=corpus)
        if kind == "tokens":
            Path("artifacts").mkdir(exist_ok=True)
            return store.path.rename(Path("artifacts") / name)
        make = build_datastore if kind == "datastore" else build_frozen
        return make(store, Path("artifacts") / name).path

    return build


def test_all_datastores_are_taken_the_largest_first_and_not_the_newest(here):
    here("datastore", "big", BIG)
    here("datastore", "tiny", SMALL)  # built last
    choice, notes = chosen("rest")
    assert choice.names == ["artifacts/big", "artifacts/tiny"]
    assert "drafter: rest over artifacts/big (200 tokens), artifacts/tiny (4 tokens)" in notes
    drafter = choice.load()
    drafter.start(np.array([1, 2, 3, 4], np.int32))
    assert drafter.draft(4).token_ids[0] == 5


def test_of_tables_the_largest_is_taken_and_the_others_are_named(here):
    here("frozen-table", "big", BIG)
    here("frozen-table", "tiny", SMALL)
    choice, notes = chosen("cacheback")
    assert choice.names == ["artifacts/big"]
    assert "left out: artifacts/tiny (artifacts/big is larger)" in notes


def test_blend_takes_all_that_adds_something(here):
    here("datastore", "chat", BIG)
    here("datastore", "chat-again", BIG)
    here("frozen-table", "chat-table", BIG)
    here("frozen-table", "web-table", [[7, 8, 9, 7]] * 30)
    choice, notes = chosen(None)
    assert choice.names == ["artifacts/chat", "artifacts/web-table"]
    assert "left out: artifacts/chat-again (its corpus is in artifacts/chat)" in notes
    assert "left out: artifacts/chat-table (its corpus is in artifacts/chat)" in notes
    assert "drafter: blend (default) over" in notes


def test_a_trial_is_left_out_beside_its_whole_corpus_and_named_without_it(here):
    corpus = {"id": "chat", "sha256": "1"}
    trial = {**corpus, "limit": 50, "seed": 0}
    here("datastore", "trial", SMALL, corpus=trial)
    here("frozen-table", "trial-table", SMALL, corpus=trial)
    choice, notes = chosen(None)
    assert choice.names == ["artifacts/trial"]
    assert "artifacts/trial holds only a part of its corpus (limit 50)" in notes
    here("datastore", "whole", BIG, corpus=corpus)
    choice, notes = chosen(None)
    assert choice.names == ["artifacts/whole"]
    assert "left out: artifacts/trial (its corpus is in artifacts/whole)" in notes
    assert "holds only a part" not in notes


def test_what_is_left_out_is_bounded_and_other_tokenizers_are_counted(here):
    for i in range(7):
        here("datastore", f"d{i}", BIG)
    other = replace(MINE, id="other", fingerprint="g")
    here("datastore", "other", BIG, other)
    Path("artifacts/broken").mkdir()
    Path("artifacts/broken/manifest.json").write_text("{")
    _, notes = chosen("rest")
    left_out = [line for line in notes.lines if line.startswith("left out")]
    assert len(left_out) == 5
    assert "broken" in left_out[0]
    assert left_out[-1] == "left out: 4 more"
    _, few = chosen("rest", other)
    assert "7 for other tokenizers (me/mine)" in few


def test_named_artifacts_are_taken_alone_and_must_fit(here):
    here("datastore", "big", BIG)
    tiny = here("datastore", "tiny", SMALL)
    table = here("frozen-table", "table", SMALL)
    choice, notes = chosen(None, artifacts=[tiny])
    assert choice.names == [str(tiny)]
    assert "left out" not in notes
    assert chosen(None, artifacts=[table, tiny])[0].artifacts.keys() == {
        "datastores", "frozen_table",
    }  # fmt: skip
    with pytest.raises(ArtifactError, match="must be a datastore, got a frozen-table"):
        chosen("rest", artifacts=Sources(datastores=[table]))
    with pytest.raises(ArtifactError, match="built for the tokenizer of me/mine"):
        chosen("rest", replace(MINE, fingerprint="g"), [tiny])
    with pytest.raises(UsageError, match="frozen_table must be one artifact"):
        chosen(None, artifacts=[table, table])
    with pytest.raises(UsageError, match="got a token store"):
        chosen(None, artifacts=here("tokens", "store", SMALL))


def test_what_is_missing_is_never_made_of_a_corpus_that_nobody_chose(here):
    """In an empty folder, for any model but the embedded one."""
    for drafter, command in {
        "rest": "ngramkit build-datastore --corpus CORPUS --model me/mine",
        "bigram": "ngramkit model-bigram me/mine",
        "ngrammys": "ngramkit model-bigram me/mine",
        "unigram": "ngramkit model-unigram me/mine",
    }.items():
        with pytest.raises(ArtifactError, match="for me/mine under artifacts/") as caught:
            chosen(drafter)
        assert caught.value.hint == f"Run: {command}"
    assert not Path("artifacts").exists()
    for drafter in ("blend", "cacheback"):  # these draft from the text itself
        choice, notes = chosen(drafter)
        assert choice.names == []
        assert "drafting without one. Run: ngramkit build-" in notes
        choice.load()


def test_no_command_names_a_folder_without_a_model(here):
    Path("tokenizer").mkdir()
    with pytest.raises(ArtifactError) as caught:
        chosen("bigram", replace(MINE, id="tokenizer"))
    assert caught.value.hint == "Run: ngramkit model-bigram MODEL"


@pytest.mark.parametrize("name", ["my-own", "./gone", "artifacts/a/b"])
def test_a_table_of_a_tokenizer_whose_name_is_no_model_s_is_missing(here, name):
    with pytest.raises(ArtifactError, match=f"no model-bigram for {name} under artifacts/"):
        chosen("ngrammys", replace(MINE, id=name))


def test_a_hint_about_an_automatic_place_can_be_followed(here):
    here("tokens", "mine", BIG)
    taken = Path("artifacts/automatic/made-up-mine-datastore")
    taken.mkdir(parents=True)
    (taken / "thesis.doc").write_text("years")
    with pytest.raises(InputError, match="did not write thesis") as caught:
        chosen("rest")
    assert caught.value.hint == f"Move {taken} away, or name the artifacts to draft from."


@pytest.mark.parametrize(
    ("kind", "role", "drafter"),
    [("n-grams", "datastores", "rest"), ("model-trigram", "bigram", "bigram")],
)
def test_a_kind_that_is_never_made_by_itself_is_named_with_its_command(
    kind, role, drafter, here, monkeypatch
):
    """No artifact of another kind is made in its place."""
    here("tokens", "chat-mine-tokens-1234", BIG)
    monkeypatch.setitem(KINDS, kind, Kind(kind, kind, f"build-{kind}", "New.", role, drafter))
    monkeypatch.setitem(KIND_OF_ROLE, role, kind)
    Path("me/mine").mkdir(parents=True)
    Path("me/mine/model.safetensors").write_bytes(b"weights")
    with pytest.raises(ArtifactError, match=f"no {kind} for me/mine under artifacts/") as caught:
        choose_drafter(drafter, MINE, load_model=lambda: None)
    assert caught.value.hint.startswith(f"Run: ngramkit build-{kind} ")


def test_a_token_store_at_hand_is_used(here):
    here("tokens", "chat-mine-tokens-1234", BIG)
    here("tokens", "tiny-mine-tokens-1234", SMALL)
    choice, notes = chosen("rest")
    assert choice.names == [str(AUTOMATIC / "made-up-mine-datastore")]
    assert "building one from artifacts/chat-mine-tokens-1234" in notes
    assert choice.opened[0].manifest.counts["tokens"] == 200
    built = (Path(choice.names[0]) / "manifest.json").stat().st_mtime_ns
    again, _ = chosen("rest")
    assert (Path(again.names[0]) / "manifest.json").stat().st_mtime_ns == built


@pytest.mark.parametrize("part", [{"limit": 50}, {"sample": 0.1, "seed": 0}])
def test_the_token_store_of_a_trial_is_noted_and_not_used(here, part):
    trial = here("tokens", "chat-mine-tokens-1234", BIG, corpus=part)
    notes = Notes()
    with pytest.raises(ArtifactError, match="no datastore for me/mine"):
        choose_drafter("rest", MINE, reporter=notes)
    name = next(iter(part))
    assert f"only a part of its corpus ({name} {part[name]})" in notes
    assert f"build-datastore --tokens {trial}" in notes
    named, notes = chosen("rest", artifacts=[build_datastore(TokenStore.open(trial), "named")])
    assert named.names == ["named"]
    assert f"(200 tokens, {name} {part[name]})" in notes, "what a default is made of is said"


def test_what_a_command_made_by_itself_never_joins_the_defaults_of_another_model(here):
    here("datastore", "automatic/python-stdlib-demo-datastore", BIG, DEMO)
    with pytest.raises(ArtifactError, match="no datastore for me/mine"):
        chosen("rest")
    here("datastore", "mine", SMALL)
    assert chosen("rest")[0].names == ["artifacts/mine"]
    both = ["artifacts/automatic/python-stdlib-demo-datastore", "artifacts/mine"]
    assert chosen("rest", DEMO)[0].names == both


def test_a_models_own_table_goes_before_a_larger_one():
    def found(name, model, tokens):
        parameters = {"model": model}
        counts = {"tokens": tokens}
        manifest = Manifest("model-bigram", name, MINE, parameters, {}, counts)
        return Found(Path(name), manifest)

    tables = [found("other", "you/yours", 900), found("mine", "me/mine", 10)]
    taken, left_out = select_default_artifacts(tables, ["bigram"], MINE)
    assert taken == {"bigram": [Path("mine")]}
    assert left_out == ["other (mine is the model's own, or larger)"]


def test_of_an_artifact_and_its_pruned_copies_one_is_taken():
    def found(name, tokens, pruned=None):
        corpus = {"id": "chat"} if pruned is None else {"id": "chat", "pruned": {"of": pruned}}
        counts = {"documents": 9, "tokens": tokens}
        return Found(Path(name), Manifest("datastore", name, MINE, {}, corpus, counts))

    whole = found("whole", 900)
    half = found("half", 450, {"build": "whole"})
    tenth = found("tenth", 90, {"build": "half", "pruned": {"of": {"build": "whole"}}})
    odd = Found(Path("odd"), Manifest("datastore", "odd", MINE, {}, {"id": "x", "pruned": 3}, {}))
    taken, left_out = select_default_artifacts([tenth, half, whole, odd], ["datastores"], MINE)
    assert taken == {"datastores": [Path("whole"), Path("odd")]}
    assert left_out == ["half (its corpus is in whole)", "tenth (its corpus is in whole)"]
    taken, left_out = select_default_artifacts([tenth, half], ["datastores"], MINE)
    assert taken == {"datastores": [Path("half")]}
    assert left_out == ["tenth (its corpus is in half)"]


def test_of_a_merge_and_its_parts_the_merge_is_taken():
    def found(name, tokens, corpus):
        counts = {"documents": 9, "tokens": tokens}
        return Found(Path(name), Manifest("datastore", name, MINE, {}, corpus, counts))

    chat, code, other = {"id": "chat"}, {"id": "code"}, {"id": "other"}
    pair = {"id": "chat + code", "merged": [chat, code]}
    folders = [
        found("chat", 300, chat),
        found("all", 900, {"id": "chat + code + odd", "merged": [pair, "odd"]}),
        found("other", 100, other),
        found("code", 600, code),
        found("trial", 30, {**chat, "limit": 9, "seed": 0}),
        found("odd", 8, {"id": "odd", "merged": 3}),
    ]
    taken, left_out = select_default_artifacts(folders, ["datastores"], MINE)
    assert taken == {"datastores": [Path("all"), Path("other"), Path("odd")]}
    assert left_out == [
        "code (its corpus is in all)",
        "chat (its corpus is in all)",
        "trial (its corpus is in all)",
    ]


CHAT, CODE = {"id": "chat"}, {"id": "code"}
HALF = {**CHAT, "weight": 0.5, "seed": 0}
PAIR = {"id": "chat + code", "merged": [CHAT, CODE]}
MIXED = {"id": "chat + code", "mixed": [HALF, CODE]}


@pytest.mark.parametrize(
    ("corpora", "expected"),
    [
        ({"pair": PAIR | {"pruned": {}}, "chat": CHAT, "code": CODE}, ["chat", "code"]),
        ({"pair": PAIR | {"pruned": {}}, "chat": CHAT}, ["pair", "chat"]),
        ({"pair": PAIR, "mixed": MIXED}, ["pair"]),
        ({"pair": PAIR, "mixed": MIXED | {"limit": 9}}, ["pair"]),
        ({"mixed": MIXED, "code": CODE, "half": HALF}, ["mixed"]),
        ({"mixed": MIXED, "code": CODE, "chat": CHAT}, ["code", "chat"]),
        ({"mixed": MIXED | {"limit": 9}, "code": CODE, "half": HALF}, ["mixed", "code", "half"]),
        ({"mixed": MIXED | {"limit": 9}, "half": HALF}, ["mixed", "half"]),
    ],
)
def test_an_artifact_is_left_out_if_others_hold_its_corpora(corpora, expected):
    found = [
        Found(Path(name), Manifest("datastore", name, MINE, {}, corpus, {"tokens": 9 - place}))
        for place, (name, corpus) in enumerate(corpora.items())
    ]
    taken, _ = select_default_artifacts(found, ["datastores"], MINE)
    assert taken == {"datastores": list(map(Path, expected))}


def test_next_to_nothing_to_draft_from_is_said(here):
    here("datastore", "seven", [[1, 2, 3, 4, 5, 6, 7]])
    choice, notes = chosen(None)
    assert choice.names == ["artifacts/seven"]
    assert "artifacts/seven holds only 7 tokens" in notes
    _, named = chosen(None, artifacts=["artifacts/seven"])
    assert "alone" not in str(named)


def test_what_is_named_and_not_drafted_from_is_said(here, tmp_path):
    path = here("datastore", "some", BIG)
    named = Sources(datastores=[path], past=PastUse(tmp_path / "past"))
    _, notes = chosen("context", artifacts=named)
    assert "context does not draft from a datastore" in notes
    assert f"context does not learn from past requests: {tmp_path / 'past'}" in notes
    assert "does not" not in str(chosen("none", artifacts=named)[1])  # others' measure
    assert "does not" not in str(chosen("blend", artifacts=named)[1])


def test_tokens_of_no_history_are_said_to_be_left(here, tmp_path):
    said = "history_tokens 5 is not used"
    for drafter, path, noted in (
        ("blend", None, True),
        ("blend", tmp_path / "past", False),
        ("ssd", None, False),  # it remembers so many in memory
        ("none", None, False),
    ):
        named = Sources(past=PastUse(path, tokens=5))
        assert (said in chosen(drafter, artifacts=named)[1]) == noted


def test_options_of_past_requests_hold_next_to_a_list_of_artifacts(here):
    path = here("datastore", "some", BIG)
    notes = Notes()
    choose_drafter("blend", MINE, [path], history_tokens=5, reporter=notes)
    assert "history_tokens 5 is not used" in notes
    for store in (True, False):
        assert choose_drafter("ssd", MINE, [path], store=store).learns is store


def test_past_requests_are_used_where_they_are_named(here, tmp_path):
    past = Sources(past=PastUse(tmp_path / "past"))
    assert chosen("ssd")[0].learns
    assert not chosen("context")[0].learns
    choice, _ = chosen("ssd", artifacts=past)
    assert choice.names == [str(tmp_path / "past")]
    assert (tmp_path / "past" / "manifest.json").exists()
    recorded = Sources(past=PastUse(tmp_path / "none")).recorded()
    choice, notes = chosen("ssd", artifacts=recorded)
    assert "no history at" in notes
    assert not (tmp_path / "none").exists()
    choice.load().start(np.array([1], np.int32))


def test_a_drafter_that_is_named_twice_is_one():
    named = asked_drafters(["rest", "rest:max_match=4", "rest: max_match=4", "rest"], SILENT)
    assert [each.label for each in named] == ["rest", "rest:max_match=4"]
    texts = ["rest:budget=8", "rest:max_match=4,budget=auto", "rest:budget=8", "rest"]
    budgeted = asked_drafters(texts, SILENT, DrafterSpec.with_budget)
    assert [each.label for each in budgeted] == [texts[0], texts[1], "rest"]
    assert [each.budget for each in budgeted] == [8, "auto", 0]
    assert [str(each) for each in budgeted] == ["rest", "rest:max_match=4", "rest"]


def test_a_tokenizer_may_be_given_in_several_ways(here, monkeypatch):
    from ngramkit.corpus.tokenizer import load_tokenizer

    monkeypatch.setenv("NGRAMKIT_MODEL", "demo")
    demo = load_tokenizer("demo")
    for given in (demo, demo.record, "demo", None):
        assert choose_drafter("context", given).tokenizer == demo.record
    with pytest.raises(UsageError, match="tokenizer must be"):
        choose_drafter("context", 3)
