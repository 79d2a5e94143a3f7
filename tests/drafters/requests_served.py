"""Requests of a small vocabulary, served to drafters that remember."""

import numpy as np

from ngramkit.drafters.past_requests import PastRequests
from ngramkit.formats.tokenizer_record import TokenizerRecord

VOCABULARY, EOS = 50, 49
RECORD = TokenizerRecord("small", VOCABULARY, "f" * 64, EOS)


def ids(*tokens):
    return np.array(tokens, np.int32)


def remembering(**parameters):
    return PastRequests(tokenizer=RECORD, **{"background": False, **parameters})


def serve(drafter, prompt, output):
    drafter.start(ids(*prompt))
    drafter.accept(ids(*output))
    drafter.finish()


def contents(past):
    """Every request that is searchable, in any order."""
    stream = [t for part in past.shards for shard in part for t in shard.tokens.tolist()]
    found, request = [], []
    for token in stream:
        if token == past.separator:
            found.append(tuple(request))
            request = []
        else:
            request.append(token)
    assert not request
    return sorted(found)
