"""gigatoken is used only where it gives the ids of tokenizers; a stand-in has each fault."""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from forked import in_child
from reporters import Notes

from ngramkit.basics.terminal_text import visible
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import gigatoken
from ngramkit.corpus.encoding import PlainEncoder
from ngramkit.corpus.gigatoken import ComparedEncoder, hard_texts
from ngramkit.corpus.open import open_corpus
from ngramkit.corpus.tokenizer import load_tokenizer

TEXTS = [f"def f{n}(x):\n    return x + {n}\n" * (1 + n % 3) for n in range(60)]
BATCH = 10


class Fast:
    """A stand-in for gigatoken, by tokenizers; texts that are `wrong` get the `fault`."""

    def __init__(self, backend, wrong, fault):
        self.backend, self.wrong, self.fault = backend, wrong, fault
        self.encoded = 0

    def encode_batch(self, texts, parallel):
        assert not parallel
        self.encoded += len(texts)
        ids = [list(each.ids) for each in self.backend.encode_batch(texts, False, False)]
        for text, own in zip(texts, ids, strict=True):
            if self.wrong(text):
                self.fault(own)
        ends = np.cumsum([0, *map(len, ids)])
        flat = np.array([token for own in ids for token in own], np.uint32)
        data = SimpleNamespace
        return data(layout=data(offsets=data(data=ends), content=data(data=flat)))


@pytest.fixture
def opened(monkeypatch):
    """Return opened(wrong, fault) -> (encoder, its stand-in of gigatoken, the notes)."""

    def make(wrong=lambda text: False, fault=lambda ids: None, load=None):
        backend = load_tokenizer("demo").backend
        fast = Fast(backend, wrong, fault)
        module = ModuleType("gigatoken")
        module.__spec__ = ModuleSpec("gigatoken", None)
        module.Tokenizer = SimpleNamespace(from_json=load or (lambda text: fast))
        monkeypatch.setitem(sys.modules, "gigatoken", module)
        monkeypatch.setattr(gigatoken, "GIGATOKEN_AFTER_CHARACTERS", 200)
        monkeypatch.setattr(gigatoken, "CODE_POINTS", range(0x1000))  # gigatoken itself gets all
        reporter = Notes()
        return ComparedEncoder(backend, reporter), fast, reporter.lines

    return make


def encoded(encoder):
    found = [encoder.encode(TEXTS[i : i + BATCH]) for i in range(0, len(TEXTS), BATCH)]
    return np.concatenate([f.tokens for f in found]), np.concatenate([f.lengths for f in found])


def is_right(found):
    tokens, lengths = PlainEncoder(load_tokenizer("demo").backend).encode(TEXTS)
    return np.array_equal(found[0], tokens) and np.array_equal(found[1], lengths)


def test_long_builds_use_gigatoken_after_the_comparison(opened):
    encoder, fast, notes = opened()
    assert is_right(encoded(encoder))
    hard = len(list(hard_texts(fast.backend)))
    # The first batch is that of tokenizers, the second one is compared whole before it is encoded.
    assert fast.encoded == hard + len(TEXTS)
    assert notes == ["encoding with gigatoken, checked against tokenizers"]


def test_short_builds_do_not_load_gigatoken(opened, monkeypatch):
    encoder, fast, notes = opened()
    monkeypatch.setattr(gigatoken, "GIGATOKEN_AFTER_CHARACTERS", 1 << 22)
    assert is_right(encoded(encoder))
    assert (fast.encoded, notes) == (0, [])


@pytest.mark.parametrize(
    ("wrong", "fault", "said"),
    [
        (lambda text: "\r\n" in text, lambda ids: ids.append(7), "differently"),
        (lambda text: "\u0e01" in text, lambda ids: ids.__setitem__(0, 7), "differently"),
        (lambda text: text == "ſt", lambda ids: 1 / 0, "fails (ZeroDivisionError"),
    ],
)
def test_one_hard_text_that_differs_is_enough(opened, wrong, fault, said):
    encoder, fast, notes = opened(wrong, fault)
    assert is_right(encoded(encoder))
    assert fast.encoded == len(list(hard_texts(fast.backend)))
    (note,) = notes
    assert "with tokenizers: gigatoken " in note
    assert said in note


def test_a_whole_batch_of_the_build_is_compared_too(opened):
    wrong = TEXTS[BATCH + 3]
    encoder, fast, notes = opened(lambda text: text == wrong, lambda ids: ids.__setitem__(3, 7))
    assert is_right(encoded(encoder))
    assert fast.encoded == len(list(hard_texts(fast.backend))) + BATCH
    assert notes == [f"encoding with tokenizers: gigatoken encodes {said_of(wrong)!r} differently"]


def said_of(text):
    """Return the part of a text that a note shows."""
    return visible(text[:40])


def test_a_tokenizer_that_gigatoken_does_not_read(opened):
    def load(text):
        raise RuntimeError("Byte remapping failed\n\nLocation:\n  mod.rs")

    encoder, _, notes = opened(load=load)
    assert is_right(encoded(encoder))
    assert notes == [
        "encoding with tokenizers: gigatoken cannot load this tokenizer (Byte remapping failed)"
    ]


@pytest.mark.parametrize("number", [29, 39, 59])
def test_a_later_difference_ends_the_use_of_gigatoken(opened, caplog, number):
    """The last document of each batch is compared."""
    wrong = TEXTS[number]
    encoder, fast, _ = opened(lambda text: text == wrong, lambda ids: ids.pop())
    assert is_right(encoded(encoder))
    hard = len(list(hard_texts(fast.backend)))
    assert fast.encoded == hard + BATCH * (1 + number // BATCH)
    (said,) = caplog.records
    assert "continuing with tokenizers" in said.getMessage()


def test_a_lone_surrogate_becomes_a_replacement_character():
    plain = PlainEncoder(load_tokenizer("demo").backend)
    assert plain.encode(["a\ud800b"]).tokens.tolist() == plain.encode(["a\ufffdb"]).tokens.tolist()


@pytest.mark.skipif(find_spec("gigatoken") is None, reason="gigatoken has no wheel here")
def test_gigatoken_itself(monkeypatch):
    monkeypatch.setattr(gigatoken, "GIGATOKEN_AFTER_CHARACTERS", 200)
    reporter = Notes()
    backend = load_tokenizer("demo").backend
    encoder = ComparedEncoder(backend, reporter)
    assert is_right(encoded(encoder))
    assert reporter.lines == ["encoding with gigatoken, checked against tokenizers"]
    text = ["a\ud800b"]
    assert (
        encoder.encode(text).tokens.tolist() == PlainEncoder(backend).encode(text).tokens.tolist()
    )


def test_a_forked_child_encodes(tmp_path):
    """The threads of tokenizers are its parent's, and it would wait for them for ever."""
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    built = [tmp_path / "parent", tmp_path / "child"]

    def build(place):
        tokenize(open_corpus(str(tmp_path / "*.txt")), "demo", place)

    build(built[0])
    assert in_child(lambda: build(built[1])) == "done"
    one, other = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in built)
    assert one == other


def test_a_child_forked_while_the_fast_encoder_opens_encodes(opened):
    """The thread that opens it, and holds the encoder's lock, is not there in the child."""
    is_opening, may_end = threading.Event(), threading.Event()

    def load(*_):
        is_opening.set()
        assert may_end.wait(60)
        raise ValueError("no such tokenizer")

    encoder, _, _ = opened(load=load)
    reads = threading.Thread(target=encoded, args=(encoder,))
    reads.start()
    assert is_opening.wait(60)

    def encode():
        may_end.set()  # the child's own copy
        assert is_right(encoded(encoder))

    try:
        assert in_child(encode) == "done"
    finally:
        may_end.set()
        reads.join()
