"""The order of a SpeCache's copies and reads, what was found, and whose guess stands in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from specache_runs import prompt_of, written
from tiny_models import tiny_model

from ngramkit.decode.specache.cache import SpeCacheRun
from ngramkit.decode.specache.options import SpeCache
from ngramkit.decode.specache.store import Copies
from ngramkit.decode.specache.verify import Guesses
from ngramkit.drafters.base import DraftTree


class Recorded(Copies):
    """In place of a CUDA stream: writes down what would happen in which order."""

    def __init__(self):
        self.log, self.marks = [], 0

    def copy(self, target, source, *, now=False):
        self.log.append(("copy", tuple(source.shape), now))
        target.copy_(source)

    def mark(self):
        self.marks += 1
        self.log.append(("mark", self.marks))
        return self.marks

    def wait(self, mark):
        self.log.append(("wait", mark))

    def wait_here(self, mark):
        self.log.append(("wait here", mark))


def test_positions_are_waited_for_before_pairs_are_gathered_and_pairs_before_they_are_read():
    options = SpeCache(bits=2, group=8, top_k=3, residual=0)
    copies = Recorded()
    layer = SpeCacheRun(options, 1, room=32, copies=copies).low_layers[0]
    rows = torch.randn(1, 2, 16, 8)
    layer.update(rows, rows)
    stored = copies.marks
    layer.update(rows[:, :, :2], rows[:, :, :2])
    copies.log.clear()
    layer.ask(torch.rand(2, 18), 1)
    layer.keep(1)
    layer.prefetch_asked()
    layer.update(rows[:, :, :2], rows[:, :, :2])
    asked, there = stored + 1, stored + 2
    assert copies.log == [
        ("copy", (2, 3), False),  # positions to the CPU, after the attention that chose them
        ("mark", asked),
        ("wait here", asked),
        ("wait here", stored),  # the store's own copies
        ("copy", (2, 3, 8), True),  # keys and values back, beside the rest of the pass
        ("copy", (2, 3, 8), True),
        ("mark", there),
        ("wait", there),  # the next pass reads them
    ]


def test_a_pass_does_not_write_where_the_last_one_still_reads():
    options = SpeCache(bits=2, group=8, top_k=3, residual=0)
    layer = SpeCacheRun(options, 1, room=32).low_layers[0]
    rows = torch.randn(1, 2, 16, 8)
    layer.update(rows, rows)
    places = []
    for _ in range(3):
        layer.update(rows[:, :, :2], rows[:, :, :2])
        layer.ask(torch.rand(2, 18), 0)
        layer.keep(0)
        layer.prefetch_asked()
        places.append(layer.fetched.keys.data_ptr())
    assert places[0] == places[2] != places[1]


def test_hits_are_whole_where_every_pair_is_fetched_and_less_where_few_are():
    model = tiny_model("llama")
    shares = {}
    for top_k in (1000, 2):
        options = SpeCache(bits=2, group=8, top_k=top_k, residual=0, measure=True)
        _, verifier = written(model, prompt_of(40), options, 12)
        shares[top_k] = verifier.run.hits
    assert shares[1000].mass_held() == pytest.approx([1, 1])
    assert shares[1000].top_k_found() == [1, 1]
    assert all(0 < share < 1 for share in shares[2].mass_held())
    assert all(0 <= share < 1 for share in shares[2].top_k_found())


class Knows:
    """Drafts the next token of a text that it knows."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def start(self, prompt):
        self.at = 0

    def draft(self, budget):
        one = [
            np.array([x], d)
            for x, d in ((self.text[self.at], "i4"), (-1, "i4"), (1, "f4"), (0, "u1"))
        ]
        return DraftTree(*one)

    def accept(self, tokens, evidence=None):
        self.at += len(tokens)

    def finish(self):
        pass


def test_a_drafters_guess_stands_in_for_the_speculative_token(monkeypatch):
    model = tiny_model("llama")
    prompt = prompt_of(40)
    options = SpeCache(bits=2, group=8, top_k=1000, residual=0, speculative="drafter")
    right, _ = written(model, prompt, SpeCache(bits=2, group=8, top_k=1000, residual=0), 10)
    rows = []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward",
        lambda self, input_ids=None, **k: rows.append(input_ids[0].tolist())
        or forward(self, input_ids=input_ids, **k),
    )  # fmt: skip
    tokens, _ = written(model, prompt, options, 10, drafter=Guesses(Knows([*right, 1, 1])))
    assert tokens == right
    assert [row[1] for row in rows if len(row) == 2] == right[1:]
