"""What a grammar forces, against a naive twin; what a schema forces and refuses, and drafts under
it, against a stand-in of llama-cpp-python (the real one: test_llama_cpp.py)."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings, strategies as st
from llama_standin import CABIN, FORCED, LEGS, NOTES, STRING, TRIP, TRUTH, Llama, Sampler, obj

from ngramkit.engines.config import DraftConfig
from ngramkit.engines.llama_cpp import Drafter
from ngramkit.engines.llama_grammar import (
    MAX_FORCED_CHARACTERS,
    LlamaGrammar,
    SpaceHabit,
    forced_text,
)


class Texts:
    """The grammar of a few texts."""

    def __init__(self, texts):
        self.texts, self.at = texts, 0

    def next(self):
        if any(len(text) == self.at for text in self.texts):
            return None
        return bytes(sorted({text[self.at] for text in self.texts}))

    def accept(self, character):
        self.texts = [text for text in self.texts if text[self.at] == character]
        self.at += 1


def twin(texts, last):
    """Drop the texts that break the habit, character by character; what the others begin with."""
    found = b""
    while len(found) < MAX_FORCED_CHARACTERS and texts and found not in texts:
        choices = {text[len(found)] for text in texts}
        if len(choices) == 2 and ord(" ") in choices:
            spaced = last in b":,"
            choices = {c for c in choices if (c == ord(" ")) == spaced}
        if len(choices) != 1:
            break
        last = choices.pop()
        found += bytes([last])
        texts = [text for text in texts if text.startswith(found)]
    return found


@given(
    st.lists(st.text("a: ,{", min_size=1, max_size=8).map(str.encode), min_size=1, max_size=4),
    st.sampled_from(b"a:{"),
)
def test_the_forced_text_is_the_twins(texts, last):
    assert forced_text(Texts(texts), last, SpaceHabit()) == twin(texts, last)


def test_spaces_follow_the_habit():
    texts = [b'"name":"a', b'"name": "a']
    habits = SpaceHabit()
    assert forced_text(Texts(texts), ord("{"), habits) == texts[1]
    habits.learn(b'{"id":7')
    assert forced_text(Texts(texts), ord("{"), habits) == texts[0]


def test_a_long_text_ends():
    assert forced_text(Texts([b"a" * 500]), ord("a"), SpaceHabit()) == b"a" * MAX_FORCED_CHARACTERS


PIECES = [bytes([c]) for c in (*range(32, 127), ord("\n"))] + [
    b"", b'{"', b'":', b' "', b'": "', b'", "', b'"}', b'"flight', b"flight", b"economy", b"true",
    b"seats", b"name", b"note", b" 2", b"first",
]  # fmt: skip


# The real engine's own converter fails at such names.
QUOTED = obj({'say "hi"\\\n': STRING, "mood": {"const": "a\tb"}})
ESCAPES = [
    (QUOTED, b"{", rb'"say \"hi\"\\\n": "'),
    (QUOTED, rb'{"say \"hi\"\\\n": "oh \u00e', b""),
    (QUOTED, rb'{"say \"hi\"\\\n": "oh", "m', rb'ood": "a\tb"}'),
]


@pytest.fixture
def llama(monkeypatch):
    llama = Llama(PIECES)
    monkeypatch.setitem(sys.modules, "llama_cpp", llama.module)
    yield llama
    assert all(copy.freed for copy in llama.module.copies)


@pytest.mark.parametrize(("schema", "written", "wanted"), FORCED + ESCAPES)
def test_a_schema_forces_names_and_punctuation(llama, schema, written, wanted):
    llama.under(schema, written)
    forced = LlamaGrammar(llama, llama.module).forced_tokens(llama.tokenize(written)[-8:])
    assert forced == llama.tokenize(wanted)  # no other spelling


@pytest.mark.parametrize(
    ("schema", "written", "draft", "passing"),
    [
        (CABIN, b'{"cabin": "', b"basic_business", b"basic_"),
        (CABIN, b'{"cabin": "', b"first", b""),
        (CABIN, b'{"cabin": "business", "bags": 2', b"}, 7", b"}"),
        (TRIP, b'{"flight": {"from": "', b'any {"text", [2', b'any {"'),
        (TRIP, b'{"flight": {"from": "BER", "seats": ', b"-12, ", b"-12"),
        (LEGS, b'{"legs": [', b"]", b""),
        (LEGS, b'{"legs": [{"to": "AMS"}', b', {"to": "x"}, {"at', b', {"to": "x"}, {"'),
        (NOTES, b'{"name": "x"', b', "size": "S", "note": "', b', "size": "S'),
        (NOTES, b'{"name": "x"', b', "note": "", "size": "L', b', "note": "", "size": "'),
        (QUOTED, b'{"say \\"hi\\"\\\\\\n": "', b"\\n\\u00e9\\x", b"\\n\\u00e9\\"),
    ],
)
def test_what_a_schema_refuses_is_cut(llama, schema, written, draft, passing):
    llama.under(schema, written)
    tokens = llama.tokenize(draft)
    count = LlamaGrammar(llama, llama.module).allowed_length(tokens)
    assert llama.detokenize(tokens[:count]) == passing


def test_a_grammar_is_found_after_a_logits_processor(llama):
    llama.under(CABIN, b"{")
    processor = Sampler(None)
    llama._sampler.sampler.insert(0, processor)
    llama._sampler.custom_samplers = [(0, processor)]
    assert LlamaGrammar(llama, llama.module).forced_tokens(llama.tokenize(b"{"))


def test_a_draft_never_ends_the_answer(llama):
    llama.under(CABIN, b'{"cabin": "business", "bags": 2}')
    assert LlamaGrammar(llama, llama.module).allowed_length([llama.eos]) == 0


SCHEMAS = st.recursive(
    st.sampled_from([STRING, TRUTH, {"type": "integer"}, {"enum": ["on", "off", 'o"']}]),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.builds(
            obj,
            st.dictionaries(st.sampled_from(["name", "note", 'a"\\b']), inner, min_size=1),
            st.sampled_from([None, ["name"]]),
        ),
    ),
    max_leaves=5,
)


def values(schema):
    """Return a strategy of the values that a schema allows, members in its order."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers()
        case "string":
            return st.text('a "\\{}[]:,\n')
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
    needed = schema["required"]
    order = sorted(schema["properties"], key=lambda name: name not in needed)
    members = {name: values(schema["properties"][name]) for name in order}
    optional = {name: members.pop(name) for name in order if name not in needed}
    found = st.fixed_dictionaries(members, optional=optional)
    return found.map(lambda value: {name: value[name] for name in order if name in value})


@given(st.data(), SCHEMAS, st.sampled_from([(", ", ": "), (",", ":")]))
@settings(max_examples=30)
def test_any_answer_under_a_schema_is_written_with_drafts_that_it_allows(data, schema, between):
    schema = {"type": "array", "items": schema}
    answer = json.dumps(data.draw(values(schema)), separators=between).encode()
    llama = Llama(PIECES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "llama_cpp", llama.module)
        drafter = Drafter(DraftConfig(min_probability=0.01, pause=False), vocabulary=len(PIECES))
        drafter.check(llama)
        llama.under(schema)
        _, refused = llama.write(b"Answer:", answer, drafter)  # fails where it writes another text
    assert not refused
    assert all(copy.freed for copy in llama.module.copies)


def test_drafts_of_a_checked_llama_obey_its_schema(llama):
    """A prompt whose look-ups draft another cabin than the schema has, three requests in a row;
    then one without a schema."""
    passes, refused = {}, {}
    answer = b'{"cabin": "business", "bags": 2}'
    for checked in (False, True):
        drafter = Drafter(DraftConfig(min_probability=0.01, pause=False), vocabulary=len(PIECES))
        if checked:
            drafter.check(llama)
        llama.under(CABIN)
        passes[checked], refused[checked] = llama.write(
            b'{"cabin": "first", "bags": 3} {"cabin": "first"\n', answer, drafter
        )
        llama.freely()
        ids = llama.input_ids[: len(llama.tokenize(b"flight" * 9))]
        ids[:] = llama.tokenize(b"flight" * 9)
        assert set(drafter(ids).tolist()) == set(llama.tokenize(b"flight"))
    assert any(b"first" in draft for draft in refused[False])
    assert not refused[True]
    assert passes[True] < 0.5 * passes[False]


@pytest.mark.parametrize(
    ("config", "most"),
    [(DraftConfig(), 8), (DraftConfig(tokens=4), 4), (DraftConfig(min_probability=0.1), 8)],
)
def test_a_long_forced_text_is_drafted_up_to_the_most_tokens(llama, config, most):
    name = "a_name_of_more_tokens_than_a_draft"
    drafter = Drafter(config, vocabulary=len(PIECES))
    drafter.check(llama)
    for _ in range(3):
        llama.under(obj({name: TRUTH}))
        _, refused = llama.write(b"Answer:", b'{"%s": true}' % name.encode(), drafter)
        assert not refused
        llama.under(obj({name: TRUTH}), b"{")
        text = llama.tokenize(b"Answer:{")
        llama.input_ids[: len(text)] = text
        assert len(drafter(llama.input_ids[: len(text)])) <= most
    assert drafter.statistics.accepted_tokens
