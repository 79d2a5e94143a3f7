"""Bigram tables of tiny models."""

from __future__ import annotations

from tiny_lms import HOLE, VOCABULARY, tiny_tokenizer

from ngramkit.builders.model_bigram import build_model_bigram

REAL = [i for i in range(VOCABULARY) if i != HOLE]
K, WIDTH = 7, 4


def build(model, out, tokenizer=None, **parameters):
    return build_model_bigram(
        model, tokenizer or tiny_tokenizer(), out, **{"k": K, "width": WIDTH, **parameters}
    ).table
