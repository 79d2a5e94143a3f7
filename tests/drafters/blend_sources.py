"""What blend's tests draft from, in token lists."""

from __future__ import annotations

import numpy as np

from ngramkit.drafters.past_requests import PastRequests

VOCABULARY, EOS = 12, 11


def ids(*tokens):
    return np.array(tokens, np.int32)


def remembering(store):
    return PastRequests(tokenizer=store.tokenizer, background=False)


def scores_by_path(tree):
    paths, found = [], {}
    for token, parent, score in zip(tree.token_ids, tree.parents, tree.scores, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), int(token)))
        found[paths[-1]] = float(score)
    return found
