"""Histories of a tokenizer of 100 ids, and what is in them."""

import numpy as np

from ngramkit.formats.history import History
from ngramkit.formats.tokenizer_record import TokenizerRecord

RECORD = TokenizerRecord("small", 100, "f" * 64, 1)


def ids(*tokens):
    return np.array(tokens, np.int32)


def held(path):
    """The tokens of every request there."""
    return [request.tokens.tolist() for request in History.open(path).news()[0]]
