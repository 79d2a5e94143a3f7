"""Texts that come with a request: parameters, limits, and drafts as of a drafter of its own."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ngramkit.basics.errors import UsageError
from ngramkit.drafters.base import Source
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.context import Context
from ngramkit.drafters.references import ReferenceTexts
from ngramkit.engines import request_texts, tool_templates
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.blend_source import BlendSource
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource
from ngramkit.engines.request_texts import given_texts, join_with_separator, token_ids
from ngramkit.engines.tool_templates import call_templates
from ngramkit.formats.tokenizer_record import TokenizerRecord

VOCABULARY = 12
RECORD = TokenizerRecord("small", VOCABULARY, "f" * 64)


def ids(tokens):
    return np.array(tokens, np.int32)


def made(drafter="blend", vocabulary=VOCABULARY, **options):
    config = DraftConfig(drafter, threads=1, min_probability=0.0, pause=False, **options)
    return BatchDrafter.open(config, vocabulary=vocabulary)


# Parameters.


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (None, []),
        ("", []),
        ([], []),
        ("old", ["old"]),
        (["one", "", "two"], ["one", "two"]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([5, 6, -1, 7, -1], [[5, 6], [7]]),
        (["one", 5, 6, "two"], ["one", [5, 6], "two"]),
        ([[5, 6], [], [7]], [[5, 6], [7]]),
        ("half \ud83d", ["half ?"]),
    ],
)
def test_a_value_holds_texts_and_ids(value, texts):
    assert given_texts(value) == texts


@pytest.mark.parametrize(
    "value", [5, 5.0, True, {"a": 1}, [1.5], [True], [None], [[1, "a"]], [[-1]], [[[1]]], b"x"]
)
def test_other_values_are_refused(value):
    with pytest.raises(UsageError, match="ngramkit_reference must be texts or lists of token ids"):
        given_texts(value)


def test_texts_are_bounded_in_bytes():
    most = request_texts.MAX_REQUEST_TEXT_BYTES
    assert given_texts("x" * most)
    for value in ("é" * most, ["x" * most, "x"], [1] * most):
        with pytest.raises(UsageError, match="must have at most 262,144 bytes, got"):
            given_texts(value)


def test_a_text_of_the_largest_size_is_used_whatever_its_tokens():
    """The front end counts a text's bytes; each may be a token."""
    batch, most = made(), request_texts.MAX_REQUEST_TEXT_BYTES
    encoded = join_with_separator(
        token_ids(given_texts("a" * most), lambda text: [1, 2] * (len(text) // 2), VOCABULARY)
    )
    assert len(encoded) == most
    assert batch.request_texts().read("a", encoded).tokens == most
    assert len(batch.request_texts().read("a", [*encoded, 1])) == 0
    assert batch.statistics.unused_references == 1


def test_ids_are_those_of_the_model():
    assert token_ids([[1, 11], "ab"], lambda text: [3, 99], VOCABULARY) == [[1, 11], [3, 12]]
    assert join_with_separator([[1, 11], [3]]) == [1, 11, -1, 3]
    assert join_with_separator([]) == []
    with pytest.raises(UsageError, match="must be below 12, got 12"):
        token_ids([[12]], None, VOCABULARY)
    assert token_ids([[1, 12, 99]], None, VOCABULARY, strict=False) == [[1, 12, 12]]
    with pytest.raises(UsageError, match="the engine gives no tokenizer"):
        token_ids(["ab"], None, VOCABULARY)


# The texts of running requests.


def test_what_cannot_be_used_is_counted_and_logged_once(caplog):
    batch = made()
    texts = batch.request_texts()

    def fails(text):
        raise RuntimeError("no such tokenizer")

    for name, value, encode in (
        ("a", 7, None), ("b", 8, None), ("c", "text", None), ("d", "text", fails),
        ("e", [1.5], None),
    ):  # fmt: skip
        assert len(texts.read(name, value, encode)) == 0
        assert name in texts
    assert batch.statistics.unused_references == 5
    assert len(caplog.records) == 3
    assert len(texts.read("f", None)) == 0
    assert "f" not in texts


@pytest.mark.parametrize("which", ["blend", "context"])
def test_a_text_with_ids_that_the_model_does_not_have_is_used(which):
    """The front end writes the model's vocabulary for such ids, and an artifact may know fewer."""
    drafter = made(which, 100)
    texts = drafter.request_texts().read("a", [1, 2, 120, 3, 100, 4, 5, 6])
    assert [text.tolist() for text in texts.texts] == [[1, 2, 100, 3, 100, 4, 5, 6]]
    assert drafter.statistics.unused_references == 0

    def drafted(row):
        (chain,) = drafter.chain_batch([ids(row)], [4], asked=[Asked(2, references=texts)])
        return chain.token_ids.tolist()

    assert drafted([50, 51, 1]) == [2]
    assert drafted([50, 51, 1, 2]) == []
    assert drafted([50, 51, 1, 2, 7, 8, 4, 5]) == [6]


def test_texts_of_running_requests_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(request_texts, "MAX_RUNNING_TEXT_TOKENS", 10)
    texts = made().request_texts()
    assert len(texts.read("a", [1, 2, 3, 4, 5, 6])) == 1
    assert len(texts.read("b", [1, 2, 3, 4, 5])) == 0
    assert len(texts.read("c", [1, 2, 3, 4])) == 1
    texts.drop("a")
    assert texts.tokens == 4
    assert len(texts.read("b", [1, 2, 3, 4, 5])) == 1
    texts.keep({"b"})
    assert texts.tokens == 5
    assert "at most 10 tokens, got 11" in caplog.text


def test_a_drafter_without_references_leaves_texts_unused():
    batch = made("cacheback")
    assert len(batch.request_texts().read("a", [1, 2, 3])) == 0
    assert batch.statistics.unused_references == 1


def test_templates_are_sorted_once_for_a_tenants_requests():
    texts = made().request_texts()
    one = texts.read("a", None, templates=[1, 2, -1, 3, 4])
    assert len(one) == 2
    assert texts.read("b", None, templates=[1, 2, -1, 3, 4]) is one
    assert texts.read("c", None, templates=[1, 2, -1, 3, 4], tenant="t") is not one
    both = texts.read("d", [5, 6], templates=[1, 2, -1, 3, 4])
    assert [text.tolist() for text in both.texts] == [[5, 6], [1, 2], [3, 4]]
    assert len(made("cacheback").request_texts().read("a", None, templates=[1, 2])) == 0


@pytest.mark.parametrize("which", ["blend", "context"])
def test_an_answer_does_not_begin_with_a_template(which):
    drafter = made(which, 200)
    texts = drafter.request_texts().read("a", None, templates=list(range(100, 140)))

    def drafted(row):
        (chain,) = drafter.chain_batch([ids(row)], [4], asked=[Asked(2, references=texts)])
        return chain.token_ids.tolist()

    assert drafted([1, 2]) == []
    assert drafted([1, 2, 7, 104, 105]) == [106, 107, 108, 109]


# Templates.

HOSTILE = [
    None, 5, [], {}, "x", {"properties": 5}, {"properties": {"a": 5}}, {"type": 5}, {"type": ["x"]},
    {"enum": [{}]}, {"enum": "x"}, {"items": []}, {"properties": {"\ud83d": {}}},
    {"$ref": 5}, {"$ref": "#"}, {"$ref": "#/a/0"}, {"$ref": "http://x"}, {"$ref": "#/" + "a" * 999},
    {"anyOf": 5}, {"anyOf": []}, {"oneOf": [5]}, {"allOf": "x"}, {"allOf": [None, {"$ref": "#"}]},
    {"const": {"a": [1]}}, {"const": 10**5000}, {"default": 10**5000}, {"const": float("nan")},
    {"properties": {"a": {"$ref": "#"}}}, {"type": []}, {"type": ["null"]}, {"type": [{}]},
]  # fmt: skip


def test_a_template_has_all_keys_of_a_schema():
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["only"]},
            "at": {"type": "array", "items": {"properties": {"x": {"type": "number"}}}},
            "on": {"type": "boolean"},
            "none": {"anyOf": [{"type": "null"}]},
            "free": {"type": "object"},
            "list": {"type": "array"},
        },
    }
    assert call_templates([], schema)[1] == json.dumps(
        {"kind": "only", "at": [{"x": 0}], "on": False, "none": None, "free": {}, "list": []}
    )
    assert call_templates([("é", None)]) == ['{"name": "é", "arguments": {}}']


def test_a_template_follows_references_and_choices():
    """The schema that pydantic writes for nested models, and a tree."""
    schema = {
        "$defs": {
            "Place": {
                "properties": {
                    "city": {"type": "string"},
                    "kind": {"const": "home", "type": "string"},
                    "zip": {"anyOf": [{"type": "null"}, {"type": "integer"}], "default": None},
                },
                "type": "object",
            },
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": ["null", "number"]},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
            },
            "a/b~c": {"type": "boolean"},
        },
        "properties": {
            "at": {"$ref": "#/$defs/Place"},
            "all": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "tree": {"$ref": "#/$defs/Node"},
            "odd": {"$ref": "#/$defs/a~1b~0c"},
            "both": {
                "allOf": [{"$ref": "#/$defs/Place"}, {"properties": {"more": {"type": "integer"}}}]
            },
            "first": {"oneOf": [{"const": None}, {"type": "boolean"}, {"type": "integer"}]},
            "some": {"type": "integer", "default": 10},
            "nowhere": {"$ref": "#/$defs/Other"},
        },
    }
    place = {"city": "", "kind": "home", "zip": 0}
    wanted = {
        "at": place, "all": [place], "tree": {"value": 0, "next": None, "children": []},
        "odd": False, "both": {**place, "more": 0}, "first": False, "some": 10, "nowhere": "",
    }  # fmt: skip
    for text in call_templates([], schema):
        assert text == json.dumps(wanted, separators=(",", ":") if ": " not in text else None)
    assert call_templates([], {"const": {"a": [1, None]}}) == ['{"a":[1,null]}', '{"a": [1, null]}']
    assert call_templates([], {"a": {"type": "null"}, "$ref": "#/a"}) == ["null"]


@pytest.mark.parametrize("schema", HOSTILE)
def test_any_schema_has_templates(schema):
    for text in call_templates([("f", schema)], schema):
        json.loads(text)


def test_templates_are_bounded():
    deep = {}
    for _ in range(500):
        deep = {"properties": {"a": deep, "b": deep}}
    assert (
        sum(map(len, call_templates([("f", deep)] * 100, deep)))
        <= tool_templates.MAX_TEMPLATE_BYTES
    )
    wide = {"properties": {str(i): {} for i in range(100_000)}}
    assert call_templates([], wide) == []


@pytest.mark.parametrize(
    "shared",
    [
        {"const": "x" * 100_000},
        {"default": "x" * 100_000},
        {"enum": ["x" * 100_000]},
        {"const": [1] * 100_000},
        {"properties": {"x" * 100_000: {}}},
        {"properties": {str(i): {} for i in range(100_000)}},
        {"anyOf": [{"type": "null"}] * 100_000},
        {"type": ["null"] * 100_000},
        {"allOf": [{"$ref": "#/b"}] * 100_000},
        {"allOf": [{"properties": {str(i): {} for i in range(1000)}}] * 1000},
        {"properties": {name: {"$ref": f"#/b{i}"} for i, name in enumerate("cdefgh")}},
    ],
)
def test_a_part_that_is_named_often_is_bounded(shared, monkeypatch):
    """A short request must not make a long template, or take long."""
    made = []
    write = json.dumps
    monkeypatch.setattr(
        tool_templates.json, "dumps", lambda *a, **k: made.append(write(*a, **k)) or made[-1]
    )
    often = {str(i): {"$ref": "#/b"} for i in range(5000)}
    schema = {"b": shared, "properties": often, **{f"b{i}": {"allOf": [shared]} for i in range(6)}}
    started = time.process_time()
    call_templates([("f", schema)], schema)
    assert time.process_time() - started < 2
    assert max(map(len, made)) < 1_500_000


# Drafts.

MAKERS = {"blend": lambda: Blend(tokenizer=RECORD), "context": Context}
token = st.integers(0, 3)
text = st.lists(token, min_size=1, max_size=30)
step = st.lists(
    st.tuples(
        st.integers(0, 3),  # which request
        st.integers(0, 3),  # tokens of its answer that are taken back
        st.lists(token, max_size=9),  # and these are appended
        st.booleans(),  # it ends after this step
    ),
    max_size=4,
    unique_by=lambda each: each[0],
)


def source_of(make):
    first = make()
    return BlendSource(first) if isinstance(first, Blend) else DrafterSource(make, VOCABULARY)


def same(one, other):
    columns = ("token_ids", "parents", "scores", "source")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


@pytest.mark.parametrize("which", ["blend", "context"])
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(st.lists(text, max_size=3), min_size=4, max_size=4),
    prompt=st.lists(token, min_size=1, max_size=12),
    steps=st.lists(step, max_size=8),
    budget=st.integers(1, 9),
)
def test_requests_with_texts_are_drafted_for_as_by_decode(which, texts, prompt, steps, budget):
    """All requests have the same prompt, so only their texts differ."""
    config = DraftConfig(threads=1, pause=False, log_steps=0)
    drafter = BatchDrafter(source_of(MAKERS[which]), config)
    given = [ReferenceTexts([ids(each) for each in some]) for some in texts]
    rows = {}
    for each in steps:
        for name, back, more, _ in each:
            row = rows.get(name, prompt)
            kept = max(len(row) - back, len(prompt))
            rows[name] = row[:kept] + more
        names = [name for name, *_ in each]
        asked = [Asked(len(prompt), references=given[name], name=str(name)) for name in names]
        drafts = drafter.draft_batch([ids(rows[n]) for n in names], [budget] * len(names), asked)
        for (name, *_, ends), draft in zip(each, drafts, strict=True):
            alone = MAKERS[which]()
            alone.start(ids(prompt), references=given[name])
            if len(rows[name]) > len(prompt):
                alone.accept(ids(rows[name][len(prompt) :]))
            assert same(draft, alone.draft(budget))
            if ends:
                drafter.sessions.end(str(name))
                del rows[name]


LONG = list(range(100, 160))


@pytest.mark.parametrize("which", ["blend", "context"])
def test_a_text_is_followed_from_its_start_and_found_again(which):
    drafter, texts = made(which, 200), ReferenceTexts([ids(LONG)])

    def drafted(row, prompt=3):
        (chain,) = drafter.chain_batch([ids(row)], [4], asked=[Asked(prompt, references=texts)])
        assert set(chain.source.tolist()) <= {int(Source.REFERENCE)}
        return chain.token_ids.tolist()

    prompt = [1, 2, 3]
    assert drafted([*prompt, 100]) == [101, 102, 103, 104]
    assert drafted([*prompt, 100, 101, 7, 8]) != [102, 103, 104, 105]
    assert drafted([*prompt, 100, 101, 7, 8, 120, 121, 122]) == [123, 124, 125, 126]


@pytest.mark.parametrize("which", ["blend", "context"])
@pytest.mark.parametrize("after", [[], [9, 9, 9]], ids=["the same text", "the next turn"])
def test_the_next_request_with_these_tokens_has_no_text_of_this_one(which, after):
    """In its place, and without a name, so it uses the same session."""
    drafter, texts = made(which, 200), ReferenceTexts([ids(LONG)])
    row = [1, 2, 3, 100, 101]
    (chain,) = drafter.chain_batch([ids(row)], [4], asked=[Asked(3, references=texts)])
    assert chain.token_ids.tolist() == [102, 103, 104, 105]
    begun = [*row, *after]
    (chain,) = drafter.chain_batch([ids(begun)], [4], asked=[Asked(len(begun))])
    assert Source.REFERENCE not in chain.source
    assert not set(chain.token_ids.tolist()) & set(LONG[2:])
    other = ReferenceTexts([ids([50, 51, 52, 53])])
    asked = [Asked(len(begun), references=other)]
    (chain,) = drafter.chain_batch([ids([*begun, 50])], [3], asked=asked)
    assert chain.token_ids.tolist() == [51, 52, 53]
    third = ReferenceTexts([ids([*after, 50, 60, 61, 62])])
    asked = [Asked(len(row), references=third)]
    (chain,) = drafter.chain_batch([ids([*begun, 50])], [3], asked=asked)
    assert chain.token_ids.tolist() == [60, 61, 62]
    assert (len(drafter.sessions), drafter.statistics.requests) == (1, 2 if after else 1)


def test_tenants_and_rows_have_their_own_texts(tmp_path):
    """The same prompt in one step, with a history for each tenant."""
    drafter = made(vocabulary=200, history=str(tmp_path / "h"), history_by="key")
    texts = [ReferenceTexts([ids([20 + 10 * i + j for j in range(9)])]) for i in range(3)]
    asked = [Asked(3, f"tenant {i % 2}", each) for i, each in enumerate(texts)]
    asked.append(Asked(3, "tenant 0"))
    rows = [ids([1, 2, 3, 20 + 10 * i]) for i in range(3)] + [ids([1, 2, 3, 20])]
    for _ in range(2):
        drafts = [
            each.token_ids.tolist() for each in drafter.chain_batch(rows, [2] * 4, asked=asked)
        ]
        assert drafts == [[21, 22], [31, 32], [41, 42], []]
    assert drafter.history.remembered == 0


@pytest.mark.parametrize("which", ["blend", "context", "prompt-lookup", "ssd"])
def test_no_id_that_the_model_does_not_have_is_drafted_from_a_text(which):
    """A tokenizer may know more ids than the model."""
    drafter = made(which, 8, history=which == "ssd")
    lists = token_ids(["any"], lambda text: [1, 2, 3, 8, 4, 9, 5], 8)
    texts = ReferenceTexts([ids(each) for each in lists])
    drafted, row = 0, [6, 7]
    for token in [1, 2, 3, 8, 4, 8, 5]:
        asked = [Asked(2, references=texts, name="a")]
        for draft in (
            *drafter.draft_batch([ids(row)], [4], asked),
            *drafter.chain_batch([ids(row)], [4], asked=asked),
        ):
            draft.check()
            assert (draft.token_ids < 8).all()
            drafted += len(draft)
        row.append(token)
    assert drafted > 0
