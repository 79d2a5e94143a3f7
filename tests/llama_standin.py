"""A stand-in of llama-cpp-python 0.3.36 for drafters: a Llama that writes a given text under a JSON
schema, and those calls of its module that read the grammar of a sampler.

A grammar is a set of rules, the ways in which a text may go on. A rule is a tuple of elements, each
behind the other: `bytes`, of which one character follows; `frozenset`, of whose rules one follows;
`Many`, a rule any number of times. JSON's rules are those of the engine's own converter: a space
or none in a place where JSON allows space.
"""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np


class Many(NamedTuple):
    rule: tuple


def either(*rules):
    return frozenset(rules)


def literal(text):
    return tuple(bytes([character]) for character in text.encode())


def anyof(characters):
    return bytes(characters, "ascii")


SPACE = either((), (b" ",))
DIGIT, HEX = anyof("0123456789"), anyof("0123456789abcdefABCDEF")
PLAIN = bytes(set(range(256)) - set(b'"\\'))
ESCAPED = either((anyof('"\\/bfnrt'),), (b"u", HEX, HEX, HEX, HEX))
CHARACTER = either((PLAIN,), (b"\\", ESCAPED))


def rule_of(schema):
    """Return the rule of a JSON schema."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return either(*(literal(json.dumps(value)) for value in values)), SPACE
    match schema["type"]:
        case "boolean":
            return either(literal("true"), literal("false")), SPACE
        case "integer":
            return either((), (b"-",)), either((DIGIT,), (DIGIT[1:], Many((DIGIT,)))), SPACE
        case "string":
            return b'"', Many((CHARACTER,)), b'"', SPACE
        case "array":
            item = rule_of(schema["items"])
            items = (*item, Many((b",", SPACE, *item)))
            body = items if schema.get("minItems") else (either((), items),)
            return b"[", SPACE, *body, b"]", SPACE
        case "object":
            return b"{", SPACE, *_members(schema), b"}", SPACE


def _members(schema):
    needed = schema.get("required", [])
    members = {
        name: (*literal(json.dumps(name)), SPACE, b":", SPACE, *rule_of(value))
        for name, value in schema["properties"].items()
    }
    optional = [name for name in members if name not in needed]
    found = []
    for name in filter(needed.__contains__, members):
        found += [b",", SPACE, *members[name]] if found else members[name]
    ways = [
        (*members[name], *(either((), (b",", SPACE, *members[n])) for n in optional[i + 1 :]))
        for i, name in enumerate(optional)
    ]
    if ways:
        found.append(either((), (b",", SPACE, either(*ways)) if found else (either(*ways),)))
    return found


def ways_on(rule):
    """Yield (characters, the rule behind one of them); (None, ()) where the text may end."""
    if not rule:
        yield None, ()
        return
    first, rest = rule[0], rule[1:]
    if isinstance(first, bytes):
        yield first, rest
    elif isinstance(first, Many):
        yield from ways_on(rest)
        yield from ways_on((*first.rule, first, *rest))
    else:
        for way in first:
            yield from ways_on((*way, *rest))


class Sampler:
    """One of llama.cpp's samplers; one with `rules` is a grammar."""

    def __init__(self, name, rules=frozenset()):
        self.name, self.rules, self.freed = name, rules, False

    def ways(self):
        return [way for rule in self.rules for way in ways_on(rule)]

    def behind(self, text):
        """Return the grammar behind `text`; without rules where that is refused."""
        rules = self.rules
        for character in text:
            ways = Sampler(self.name, rules).ways()
            rules = {rest for of, rest in ways if of is not None and character in of}
        return Sampler(self.name, rules)


class Data(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class DataArray(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.POINTER(Data)),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    ]


class Module:
    """What a drafter calls of the module llama_cpp; `copies` are all that were made of samplers."""

    llama_token_data, llama_token_data_array = Data, DataArray

    def __init__(self, pieces):
        self.pieces, self.copies = pieces, []

    def llama_sampler_chain_n(self, chain):
        return len(chain)

    def llama_sampler_chain_get(self, chain, i):
        return chain[i]

    def llama_sampler_name(self, sampler):
        assert sampler.name is not None  # llama.cpp would call a null pointer
        return sampler.name

    def llama_sampler_clone(self, sampler):
        self.copies.append(Sampler(sampler.name, sampler.rules))
        return self.copies[-1]

    def llama_sampler_free(self, sampler):
        assert sampler in self.copies
        assert not sampler.freed
        sampler.freed = True

    def llama_sampler_accept(self, sampler, token):
        """Raises AssertionError where llama.cpp would end the process."""
        assert not sampler.freed
        sampler.rules = sampler.behind(self.pieces[token]).rules
        assert sampler.rules

    def llama_sampler_apply(self, sampler, pointer):
        assert not sampler.freed
        ways = sampler.ways()
        begins = set().union(*(of for of, _ in ways if of is not None))
        ends = any(of is None for of, _ in ways)
        array = ctypes.cast(pointer, ctypes.POINTER(DataArray)).contents
        for row in array.data[: array.size]:
            piece = self.pieces[row.id]
            passes = piece[0] in begins if piece else ends
            if not passes or (len(piece) > 1 and not sampler.behind(piece).rules):
                row.logit = float("-inf")


class Llama:
    """A Llama that a drafter knows by its ids and its sampler. A piece of no bytes is the EOS."""

    context = 512

    def __init__(self, pieces):
        self.pieces, self.eos = pieces, pieces.index(b"")
        self.module = Module(pieces)
        self.input_ids = np.empty(self.context, np.intc)
        self.scores = np.empty((self.context, 1), np.float32)
        self._sampler = None

    def n_ctx(self):
        return self.context

    def n_vocab(self):
        return len(self.pieces)

    def token_eos(self):
        return self.eos

    def detokenize(self, tokens):
        return b"".join(self.pieces[token] for token in tokens)

    def tokenize(self, text, add_bos=True, special=False):
        """Return the longest pieces from the front."""
        tokens = []
        while text:
            piece = max(filter(None, self.pieces), key=lambda p: len(p) * text.startswith(p))
            tokens.append(self.pieces.index(piece))
            text = text[len(piece) :]
        return tokens

    def under(self, schema, written=b""):
        """Begin a request under a schema, of whose answer `written` was written."""
        self._sampler = SimpleNamespace(
            sampler=[
                Sampler(b"penalties"),
                Sampler(b"grammar", {rule_of(schema)}),
                Sampler(b"top-k"),
            ]
        )
        for token in self.tokenize(written):
            self._accept(token)

    def freely(self):
        """Begin a request without a schema."""
        self._sampler = None

    def _accept(self, token):
        self.module.llama_sampler_accept(self._sampler.sampler[1], token)

    def write(self, prompt, answer, drafter):
        """Write `answer` behind `prompt`, bytes, with drafts; return how many passes that took, and
        what was drafted that the grammar refuses."""
        text, wanted = self.tokenize(prompt), [*self.tokenize(answer), self.eos]
        passes, done, refused = 0, 0, []
        while done < len(wanted):
            self.input_ids[: len(text)] = text
            draft = drafter(self.input_ids[: len(text)]).tolist()
            passes += 1
            if not self._sampler.sampler[1].behind(self.detokenize(draft)).rules:
                refused.append(self.detokenize(draft))
            for i in range(len(draft) + 1):
                text.append(wanted[done])
                done += 1
                if text[-1] != self.eos:
                    self._accept(text[-1])
                if done == len(wanted) or (i < len(draft) and draft[i] != text[-1]):
                    break
        return passes, refused


def obj(properties, required=None):
    """Return the schema of an object; all its properties are required if nothing is said."""
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


STRING, TRUTH = {"type": "string"}, {"type": "boolean"}
TRIP = obj({"flight": obj({"from": STRING, "seats": {"type": "integer"}}), "paid": TRUTH})
CABIN = obj({"cabin": {"enum": ["basic_economy", "business"]}, "bags": {"const": 2}})
LEGS = obj({"legs": {"type": "array", "items": obj({"to": STRING}), "minItems": 1}})
NOTES = obj({"name": STRING, "note": STRING, "size": {"enum": ["S", "M"]}}, ["name"])

# A schema, what was written under it, and what it forces then.
FORCED = [
    (TRIP, b"", b'{"flight": {"from": "'),
    (TRIP, b'{"flight": {"from": "BER', b""),
    (TRIP, b'{"flight": {"from": "BER", "se', b'ats":'),
    (TRIP, b'{"flight":{"from":"BER","se', b'ats":'),
    (TRIP, b'{"flight": {"from": "BER", "seats": 2}, ', b'"paid":'),
    (TRIP, b'{"flight": {"from": "BER", "seats": 2}, "paid": f', b"alse}"),
    (CABIN, b"", b'{"cabin": "b'),
    (CABIN, b'{"cabin": "ba', b'sic_economy", "bags": 2}'),
    (CABIN, b'{"cabin":"bu', b'siness", "bags":2}'),
    (LEGS, b'{"le', b'gs": [{"to": "'),
    (LEGS, b'{"legs": [{"to": "AMS"},', b' {"to": "'),
    (LEGS, b'{"legs": [{"to": "AMS"}]', b"}"),
    (NOTES, b'{"name": "x"', b""),
    (NOTES, b'{"name": "x", ', b'"'),
    (NOTES, b'{"name": "x", "n', b'ote": "'),
    (NOTES, b'{"name": "x", "s', b'ize": "'),
    (TRIP, rb'{"flight": {"from": "oh \"\u00e', b""),
    (TRIP, rb'{"flight": {"from": "oh \"\u00e9\\", "se', b'ats":'),
]
