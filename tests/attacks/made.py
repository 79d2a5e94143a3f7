"""Inputs and outputs of the killed commands, of a few bytes each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ngramkit.builders import tokens as token_builder
from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus import tokenizer as tokenizers
from ngramkit.corpus.open import open_corpus
from ngramkit.formats.datastore import Datastore
from ngramkit.formats.frozen_table import FrozenTable
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.formats.tokens import TokenStore

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)
RECIPE = """
kind = "frozen-table"
model.id = "demo"
corpus.name = "c.jsonl"
parameters = {leaders = 20, followers = %d}
"""
MODEL = tokenizers.load_tokenizer("demo")
LINES = [f"def name_{n}(self): return self.value_{n % 3} + {n}" for n in range(16)]


def prepare_driver() -> None:
    """Start no thread, since none lives on in a fork, and load each tokenizer once."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    token_builder.use_cores = lambda workers: None
    tokenizers.load_tokenizer = cache(tokenizers.load_tokenizer)
    token_builder.load_tokenizer = tokenizers.load_tokenizer


def texts(name: str = "c.jsonl", lines: list[str] = LINES) -> None:
    Path(name).write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))


def tokens(out: str = "tokens", **options: Any) -> TokenStore:
    return tokenize(open_corpus("c.jsonl"), "demo", out, **options)


def frozen(out: str = "x", leaders: int = 30, **options: Any) -> FrozenTable:
    store = TokenStore.open("tokens")
    return build_frozen(store, out, leaders=leaders, followers=3, workers=1, **options)


def datastore(out: str = "x", shard_tokens: int = 120, **options: Any) -> Datastore:
    store = TokenStore.open("tokens")
    return build_datastore(store, out, shard_tokens=shard_tokens, workers=1, **options)


def each(*steps: Callable[[], Any]) -> Callable[[], None]:
    return lambda: [step() for step in steps] and None


def source() -> None:
    texts()
    tokens(shard_tokens=150)


@cache
def tiny() -> tuple[Any, Any]:
    """Return a random model and its tokenizer."""
    from builders.tiny_lms import tiny_lm, tiny_tokenizer

    return tiny_lm("llama"), tiny_tokenizer()
