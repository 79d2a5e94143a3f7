"""A tokenizer of twelve words, for formats that carry text or check ids."""

from __future__ import annotations

import pytest

from ngramkit.corpus.tokenizer import load_tokenizer

WORDS = ["<s>", "</s>", "zero", "one", "two", "three", "four", "five", "six", "seven", "é", '"']


@pytest.fixture(scope="session")
def word_model(tmp_path_factory):
    """A folder that load_tokenizer takes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "zero"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    folder = tmp_path_factory.mktemp("words")
    full = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    full.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def word_tokenizer(word_model):
    return load_tokenizer(str(word_model))
